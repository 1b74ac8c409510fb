//! Tests of objects and claims under many thread schedules: `cargo test -p sluice --features shuttle store::tests::shuttle`.

use std::future::poll_fn;
use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::rand::Rng;
use shuttle::thread;

use super::super::page::PAGE;
use super::super::*;
use super::model::{accepted, ask, begin_sparse};
use super::{Missing, begin, content, head, launch, store, table_key};

/// Returns the number of schedules that each test tries; in a soak, more.
fn schedules() -> usize {
    300 * sluice_lab::soak::factor() as usize
}

/// Reads to the end, and waits where bytes are missing.
fn read_all(mut reader: Reader) -> Result<Vec<u8>, Missing> {
    block_on(async move {
        let mut got = Vec::new();
        loop {
            match poll_fn(|cx| reader.poll_next(cx)).await {
                Next::Bytes(bytes) => got.extend_from_slice(&bytes),
                Next::End => return Ok(got),
                Next::Missing => return Err(Missing),
            }
        }
    })
}

#[test]
fn riders_get_every_byte_however_threads_interleave() {
    shuttle::check_random(
        || {
            let store = store(1 << 20);
            let mut landing = begin(&store, 1, None).expect("room");
            let riders: Vec<_> = [0, 70_000, 130_000]
                .into_iter()
                .map(|start| {
                    let reader = landing.object().reader(start);
                    thread::spawn(move || (start, read_all(reader)))
                })
                .collect();
            block_on(async {
                for chunk in 0..4u64 {
                    let bytes = content(chunk * 40_000, (chunk + 1) * 40_000);
                    landing.write(&bytes, 0).await.expect("room");
                    landing.announce();
                }
            });
            landing.land();
            for rider in riders {
                let (start, got) = rider.join().expect("no panic");
                assert_eq!(got.expect("no failure"), content(start, 160_000));
            }
        },
        schedules(),
    );
}

#[test]
fn a_failing_flight_wakes_everybody() {
    shuttle::check_random(
        || {
            let store = store(1 << 20);
            let mut landing = begin(&store, 1, Some(200_000)).expect("room");
            let reader = landing.object().reader(0);
            let rider = thread::spawn(move || read_all(reader));
            block_on(landing.write(&content(0, 70_000), 0)).expect("room");
            drop(landing);
            assert!(rider.join().expect("no panic").is_err());
        },
        schedules(),
    );
}

#[test]
fn one_key_gets_one_flight() {
    shuttle::check_random(
        || {
            let store = store(1 << 20);
            let launched: Vec<_> = (0..3)
                .map(|_| {
                    let store = store.clone();
                    thread::spawn(move || {
                        let spare = store.create(b"key").expect("room");
                        let weight = store.weight(b"key");
                        store.enter(1, |locked| match locked.find(0) {
                            Some(_) => false,
                            None => {
                                locked.insert(0, spare, weight);
                                true
                            }
                        })
                    })
                })
                .collect();
            let launches = launched
                .into_iter()
                .map(|t| t.join().expect("no panic"))
                .filter(|&launched| launched)
                .count();
            assert_eq!(launches, 1);
        },
        schedules(),
    );
}

#[test]
fn a_flight_with_a_window_never_waits_for_readers_that_left() {
    shuttle::check_random(
        || {
            let store = store(300_000);
            let mut landing = begin(&store, 1, None).expect("room");
            let reader = landing.object().reader(0);
            let leaver = landing.object().reader(0);
            let rider = thread::spawn(move || read_all(reader));
            let leaving = thread::spawn(move || drop(leaver));
            let all = content(0, 2 << 20);
            block_on(async {
                landing.write(&all, 0).await.expect("somebody reads");
            });
            landing.land();
            leaving.join().expect("no panic");
            assert_eq!(
                rider.join().expect("no panic").expect("no failure").len(),
                all.len()
            );
        },
        40,
    );
}

#[test]
fn two_flights_fill_one_page_from_both_sides() {
    shuttle::check_random(
        || {
            let (cut, length) = (30_000, 70_000);
            let store = store(1 << 20);
            let front = begin_sparse(&store, 1, length, 0..cut).expect("room");
            let object = front.object().clone();
            let back = accepted(ask(&store, &object, cut..length).remove(0));
            let riders: Vec<_> = [0, cut - 1, cut, 66_000]
                .into_iter()
                .map(|start| {
                    let reader = object.reader(start);
                    thread::spawn(move || (start, read_all(reader)))
                })
                .collect();
            let flights: Vec<_> = [front, back]
                .into_iter()
                .map(|landing| thread::spawn(move || fill(landing, 12_000, content)))
                .collect();
            for flight in flights {
                flight.join().expect("no panic");
            }
            for rider in riders {
                let (start, got) = rider.join().expect("no panic");
                assert!(got.expect("a flight adds the bytes") == content(start, length));
            }
            assert_eq!(object.piece(0, PAGE).expect("sealed"), content(0, PAGE));
        },
        schedules(),
    );
}

/// Writes all bytes that a flight claims, `piece` bytes at a time, and ends the flight.
fn fill(mut landing: Landing, piece: u64, bytes: impl Fn(u64, u64) -> Vec<u8>) {
    block_on(async {
        loop {
            let at = landing.range().start;
            let written = landing.write(&bytes(at, at + piece), 0).await;
            landing.announce();
            if written.expect("reserved") == Progress::Done {
                break;
            }
        }
    });
    landing.land();
}

#[test]
fn a_takeover_never_touches_bytes_that_the_other_flight_writes() {
    shuttle::check_random(
        || {
            const SIZE: u64 = 5 * PAGE;
            let store = store(2 << 20);
            let first = begin_sparse(&store, 1, SIZE, 0..SIZE).expect("room");
            let object = first.object().clone();
            let reader = object.reader(0);
            let rider = thread::spawn(move || read_all(reader));
            let of = |mark: u8| move |from: u64, to: u64| vec![mark; (to - from) as usize];
            let filling = thread::spawn(move || fill(first, 40_000, of(0xaa)));
            let taking = thread::spawn({
                let object = object.clone();
                // The takeover happens after the first flight has written a random number of pages.
                let pages = shuttle::rand::thread_rng().gen_range(0..4);
                move || {
                    while !object.covers(0..pages * PAGE) {
                        thread::yield_now();
                    }
                    for landing in ask(&store, &object, 3 * PAGE - 5_000..SIZE) {
                        fill(accepted(landing), 50_000, of(0xbb));
                    }
                }
            });
            filling.join().expect("no panic");
            taking.join().expect("no panic");
            let got = rider.join().expect("no panic").expect("all bytes arrive");
            let again = read_all(object.reader(0)).expect("all is there");
            assert!(got == again, "published bytes changed");
            assert_eq!(got.len() as u64, SIZE);
            // The first flight may have written some of the bytes before the second one took them over.
            let cut = got.iter().take_while(|&&byte| byte == 0xaa).count();
            assert!(got[cut..].iter().all(|&byte| byte == 0xbb));
            assert!(cut as u64 == SIZE || cut as u64 >= 3 * PAGE - 5_000);
        },
        schedules(),
    );
}

/// Reads to the end, and fetches missing bytes on the way.
fn read_and_fill(store: &Arc<Store>, object: &Arc<Object>, start: u64, length: u64) -> Vec<u8> {
    let mut reader = object.reader(start);
    let mut got = Vec::new();
    loop {
        match block_on(poll_fn(|cx| reader.poll_next(cx))) {
            Next::Bytes(bytes) => got.extend_from_slice(&bytes),
            Next::End => return got,
            Next::Missing => {
                let at = start + got.len() as u64;
                for mut landing in ask(store, object, at..length.min(at + PAGE)) {
                    landing.accept(landing.range(), 0).expect("its own range");
                    if landing.reserve().is_err() {
                        landing.reserve_least();
                    }
                    fill(landing, 50_000, content);
                }
            }
        }
    }
}

#[test]
fn evicted_blocks_are_fetched_again_for_their_readers() {
    shuttle::check_random(
        || {
            let length = 400_000;
            let store = store(250_000);
            let first = begin_sparse(&store, 1, length, 0..PAGE).expect("room");
            let object = first.object().clone();
            fill(first, 50_000, content);
            let riders: Vec<_> = [0, 100_000]
                .into_iter()
                .map(|start| {
                    let (store, object) = (store.clone(), object.clone());
                    let read = move || (start, read_and_fill(&store, &object, start, length));
                    thread::spawn(read)
                })
                .collect();
            let crowd = thread::spawn({
                let store = store.clone();
                move || {
                    for key in 2..5 {
                        drop(begin(&store, key, Some(50_000)));
                    }
                }
            });
            for rider in riders {
                let (start, got) = rider.join().expect("no panic");
                assert!(got == content(start, length));
            }
            crowd.join().expect("no panic");
            drop(object);
            for key in 0..5 {
                store.enter(key, |locked| locked.clear());
            }
            assert_eq!(store.ledger.used(), 0);
        },
        schedules(),
    );
}

#[test]
fn nothing_covered_by_a_purge_is_found_after_it() {
    shuttle::check_random(
        || {
            let store = store(1 << 20);
            let mut landing = launch(&store, 1).expect("room");
            let flying = {
                let store = store.clone();
                thread::spawn(move || {
                    landing.accept(0..0, 0).expect("nothing is claimed");
                    let head = |tag, born_seq| {
                        let tags = [tag].into();
                        Arc::new(Head {
                            born_seq,
                            tags,
                            ..head(Some(0))
                        })
                    };
                    let first = head(7, landing.born_seq());
                    let charge = store.charge_head(first.memory()).expect("room");
                    landing.open(first, charge, false);
                    // This request for a new head may begin before or after the purge; the new head no longer has the purged tag.
                    let second = head(8, store.moment());
                    let charge = store.charge_head(second.memory()).expect("room");
                    landing.renew(second, charge);
                    landing.land();
                })
            };
            let sweeping = {
                let store = store.clone();
                thread::spawn(move || (0..4).for_each(|_| _ = store.sweep(64)))
            };
            let looking = {
                let store = store.clone();
                thread::spawn(move || _ = store.enter(1, |locked| locked.find(0)))
            };
            let purged = store.purge(&Rule::Tag(7), false, 0).expect("room");
            let found = store.enter(1, |locked| locked.find(0).map(|object| object.phase()));
            if let Some(Phase::Open(head)) = found {
                assert!(head.born_seq > purged || !head.tags.contains(&7));
            }
            for thread in [flying, sweeping, looking] {
                thread.join().expect("no panic");
            }
        },
        schedules(),
    );
}

/// Returns a complete object in the table, and the landings of two flights of an object that replaces it.
fn replacing_by_two(store: &Arc<Store>) -> (Arc<Object>, [Landing; 2]) {
    const LENGTH: u64 = 20_000;
    let landing = begin_sparse(store, 1, LENGTH, 0..LENGTH).expect("room");
    let old = landing.object().clone();
    fill(landing, LENGTH, content);
    let new = store.create(b"key").expect("room");
    let known = old.head().expect("a head");
    assert!(store.replace_until_broken(table_key(1), (&old, &known), &new, 0));
    let mut first = ask(store, &new, 0..LENGTH).remove(0);
    first.accept(0..LENGTH / 2, 0).expect("a first flight");
    let head = Head {
        joinable: true,
        ..head(Some(LENGTH))
    };
    let charge = store.charge_head(head.memory()).expect("room");
    first.open(Arc::new(head), charge, false);
    let second = accepted(ask(store, &new, LENGTH / 2..LENGTH).remove(0));
    (old, [first, second])
}

#[test]
fn a_replacement_ends_if_its_last_two_flights_end_at_once() {
    for how in ["fail", "give back", "one lands", "abandon"] {
        let run = move || {
            let store = store(1 << 20);
            let (old, mut landings) = replacing_by_two(&store);
            let new = landings[0].object().clone();
            if how == "abandon" {
                block_on(landings[0].write(&content(0, 1), 0)).expect("room");
            }
            let flights: Vec<_> = landings
                .into_iter()
                .zip([how == "one lands", false])
                .map(|(landing, lands)| {
                    thread::spawn(move || match (lands, how) {
                        (true, _) => fill(landing, 10_000, content),
                        (false, "give back") => landing.give_back(),
                        (false, "abandon") => landing.abandon(Arc::new(Abandoned)),
                        (false, _) => landing.fail(Arc::new(Abandoned)),
                    })
                })
                .collect();
            for flight in flights {
                flight.join().expect("no panic");
            }
            let found = store.enter(1, |locked| locked.find(0)).expect("an object");
            let is_old = Arc::ptr_eq(&found, &old);
            assert!(is_old || ["one lands", "abandon"].contains(&how), "{how}");
            assert!(!is_old || how != "abandon");
            assert!(is_old || (old.is_retired() && !new.is_replacing()), "{how}");
        };
        shuttle::check_random(run, schedules());
    }
}

#[test]
fn an_object_is_not_retired_while_it_is_kept_for_its_new_version() {
    let run = || {
        let store = store(1 << 20);
        let landing = begin_sparse(&store, 1, 20_000, 0..20_000).expect("room");
        let old = landing.object().clone();
        fill(landing, 20_000, content);
        let known = old.head().expect("a head");
        let retiring = {
            let (store, old) = (store.clone(), old.clone());
            thread::spawn(move || store.supersede(table_key(1), &old, None))
        };
        let replacing = {
            let (store, old) = (store.clone(), old.clone());
            let new = store.create(b"key").expect("room");
            thread::spawn(move || store.replace_until_broken(table_key(1), (&old, &known), &new, 0))
        };
        let was_here = retiring.join().expect("no panic");
        replacing.join().expect("no panic");
        assert_eq!(matches!(old.phase(), Phase::Retired), was_here);
    };
    shuttle::check_random(run, schedules());
}
