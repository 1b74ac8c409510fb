//! The object under every schedule that shuttle tries: `cargo test -p sluice --features shuttle explored`.

use std::future::poll_fn;

use shuttle::future::block_on;
use shuttle::thread;

use super::tests::{begin, content, store};
use super::*;

const SCHEDULES: usize = 300;

/// Reads to the end, waiting as it must.
fn read_all(mut reader: Reader) -> Result<Vec<u8>, Failure> {
    block_on(async move {
        let mut got = Vec::new();
        while let Some(bytes) = poll_fn(|cx| reader.poll_next(cx)).await {
            got.extend_from_slice(&bytes?);
        }
        Ok(got)
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
                    landing.write(&bytes).await.expect("room");
                    landing.announce();
                }
            });
            landing.land();
            for rider in riders {
                let (start, got) = rider.join().expect("no panic");
                assert_eq!(got.expect("no failure"), content(start, 160_000));
            }
        },
        SCHEDULES,
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
            block_on(landing.write(&content(0, 70_000))).expect("room");
            drop(landing);
            assert!(rider.join().expect("no panic").is_err());
        },
        SCHEDULES,
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
        SCHEDULES,
    );
}

#[test]
fn a_windowed_flight_never_waits_for_readers_that_left() {
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
                landing.write(&all).await.expect("somebody reads");
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
