//! Tests of fetches that break. The received bytes are kept, and the next fetch begins after the
//! last one, as long as each fetch makes progress.

use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Ending, Fault, Latch, Modified, Origin, Resource, Seen, Tag};

use crate::harness::{SOON, assert_hit, eventually, fresh, serving};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, check_range, filling, good, send_whole,
    version_of, wanted,
};

/// Maximum number of requests at the origin. More requests mean that the edge retries without end.
const REQUESTS_MAX: usize = 60;

/// Returns a fault that closes the connection after this many bytes of a response.
fn cut(after: u64) -> Fault {
    let ending = Ending::Fin;
    Fault::CutBody { after, ending }
}

/// The same for the streams of HTTP/2, which share a connection. Without effect in HTTP/1.1.
fn reset(after: u64) -> Fault {
    Fault::ResetStream { after, code: 2 }
}

/// Starts an origin that serves `/x`. `bad` selects the numbers of wrong responses, counted from 0,
/// which come from `how`. All other responses are correct.
fn nth_is(
    bad: impl Fn(usize) -> bool + Send + Sync + 'static,
    how: fn(&Seen) -> Resource,
) -> Origin {
    let count = AtomicUsize::new(0);
    let choose = move |seen: &Seen| match bad(count.fetch_add(1, Ordering::Relaxed)) {
        true => how(seen),
        false => good(seen),
    };
    serving("/x", Resource::dynamic(choose))
}

/// Returns the first requested byte of each request for `/x`, in order.
fn begins(origin: &Origin) -> Vec<u64> {
    origin.read_record(|record| record.of("/x").map(|seen| wanted(seen).0).collect())
}

#[test]
fn a_broken_fetch_resumes_from_its_last_byte() {
    for mode in ["whole", "lock", "slice", "auto"] {
        let origin = nth_is(|n| n == 0, |seen| good(seen).fault(cut(100_000)));
        let edge = filling(&origin, mode).start();
        let whole = edge.get("/x", &[]);
        whole
            .verify_whole(FILE)
            .unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
        let begins = begins(&origin);
        assert!(begins.contains(&100_000), "{mode}: {begins:?}");
        assert_sent_once(&edge, &origin, FILE);
        assert_hit(&edge.get("/x", &[]));
    }
}

// The origin resets the connection in the middle of the body, which may discard bytes in transit.
#[test]
fn a_reset_fetch_resumes() {
    let reset = |seen: &Seen| {
        let ending = Ending::Reset;
        good(seen).fault(Fault::CutBody {
            after: 100_000,
            ending,
        })
    };
    for mode in MODES {
        let origin = nth_is(|n| n == 0, reset);
        let edge = filling(&origin, mode).start();
        let whole = edge.get("/x", &[]);
        whole
            .verify_whole(FILE)
            .unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
        let begins = begins(&origin);
        assert!(
            begins[1..].iter().any(|at| *at <= 100_000),
            "{mode}: {begins:?}"
        );
    }
}

#[test]
fn riders_do_not_notice_a_resumed_fetch() {
    for mode in MODES {
        let latch = Latch::at(50_000);
        let held = latch.clone();
        let choose = move |seen: &Seen| match seen.id {
            0 => good(seen).hold_body(&held).fault(cut(100_000)),
            _ => good(seen),
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        let mut riders: Vec<_> = (0..5).map(|_| send_whole(&edge)).collect();
        assert!(latch.wait_held(1, SOON));
        eventually("all share the fetch", || edge.counter("requests_now") == 5);
        latch.release();
        for rider in &mut riders {
            let reply = rider.read_response().expect("a reply");
            reply.verify_whole(FILE).expect("all of it");
        }
    }
}

// The client's response has begun, and the fetch of its next block fails once with 5xx. The edge
// sends the request for this block again.
#[test]
fn an_error_between_two_blocks_is_retried() {
    for status in [500, 502, 503] {
        for mode in MODES {
            let failed = AtomicUsize::new(0);
            let choose = move |seen: &Seen| {
                let later = wanted(seen).0 >= BLOCK;
                match later && failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    true => Resource::status(status),
                    false => good(seen),
                }
            };
            let origin = serving("/x", Resource::dynamic(choose));
            let edge = filling(&origin, mode).start();
            check_range(&edge, 0, 9);
            assert_sent_once(&edge, &origin, BLOCK);
            let whole = edge.get("/x", &[]);
            whole
                .verify_whole(FILE)
                .unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
            let again = begins(&origin);
            let same = again.iter().filter(|at| **at == BLOCK).count();
            assert!(same >= 1, "{mode}: {again:?}");
            assert!(again.len() <= REQUESTS_MAX, "{mode}: {again:?}");
        }
    }
}

// The client's response has not begun when the fetch of its range fails, so the client may receive
// the error. Any bytes that it receives are right, and the stored bytes are kept.
#[test]
fn an_error_on_a_gap_fetch_does_no_harm() {
    for mode in MODES {
        let origin = nth_is(|n| n == 1, |_| Resource::status(503));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let gap = ask_range(&edge, 2_000_000, 2_000_009);
        match gap.status {
            503 => {}
            _ => gap.verify_range(2_000_000, 2_000_009, FILE).expect("it"),
        }
        assert_hit(&check_range(&edge, 100_000, 100_009));
        check_range(&edge, 2_000_000, 2_000_009);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}

// The origin breaks off each response after some bytes. The edge continues with further requests
// until the object is complete.
#[test]
fn resuming_continues_while_there_is_progress() {
    for mode in MODES {
        let origin = nth_is(
            |_| true,
            |seen| good(seen).fault(reset(200_000)).fault(cut(200_000)),
        );
        let edge = filling(&origin, mode).start();
        let whole = edge.get("/x", &[]);
        whole
            .verify_whole(FILE)
            .unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
        assert_sent_once(&edge, &origin, FILE);
    }
}

// The origin breaks off each response without new bytes. The edge gives up after some attempts.
#[test]
fn resuming_ends_without_progress() {
    let ways: [fn(&Seen) -> Resource; 3] = [
        |seen| good(seen).fault(cut(0)),
        |seen| good(seen).fault(Fault::EndBeforeHead(Ending::Fin)),
        |_| Resource::status(503),
    ];
    for mode in MODES {
        for way in ways {
            let origin = nth_is(|n| n > 0, way);
            let edge = filling(&origin, mode).start();
            // The origin sends only the first block, which contains this range.
            check_range(&edge, 0, 9);
            let gap = ask_range(&edge, 2_000_000, 2_000_009);
            assert!(
                (500..=504).contains(&gap.status) || gap.body.is_empty(),
                "{gap:?}"
            );
            let whole = edge.get("/x", &[]);
            // The response has either the first block and is then cut off, or is an error.
            match whole.status {
                200 => assert!(whole.truncated() && whole.body.len() as u64 == BLOCK),
                status => assert!((500..=504).contains(&status), "{status}"),
            }
            if whole.status == 200 {
                verify_offset(0, &whole.body).expect("the right bytes");
            }
            eventually("no more requests arrive", || {
                edge.counter("flights_now") == 0 && edge.counter("requests_now") == 0
            });
            let asked = asked(&origin);
            assert!(asked.len() <= REQUESTS_MAX, "{mode}: {} times", asked.len());
            // The first block is still stored and served.
            check_range(&edge, 100, 109);
        }
    }
}

// The object has no strong validator, so it has one flight. If this flight breaks, the rest is not
// fetched.
#[test]
fn without_a_strong_validator_a_broken_fetch_is_cut_off() {
    for mode in ["whole", "lock", "slice", "auto"] {
        for tag in [Tag::None, Tag::Fixed("W/\"weak\"".to_owned())] {
            let file = fresh(FILE).tag(tag).modified(Modified::None);
            // The origin does not support ranges, so with every fill policy one response has all
            // bytes.
            let broken = file.ranges(false).fault(cut(300_000));
            let origin = serving("/x", broken);
            let edge = filling(&origin, mode).start();
            let whole = edge.get("/x", &[]);
            assert!(whole.truncated(), "{mode}");
            assert_eq!(whole.body.len(), 300_000, "{mode}");
            verify_offset(0, &whole.body).expect("the right bytes");
            assert_eq!(origin.requests().len(), 1, "{mode}: {:?}", asked(&origin));
        }
    }
}

// The origin supports ranges, but the object has no strong validator. A later response may be of
// another version, so its bytes are not added.
#[test]
fn without_a_strong_validator_nothing_is_joined_after_a_break() {
    for mode in MODES {
        let choose = |seen: &Seen| {
            let file = fresh(FILE).version(seen.id as u32 % 4);
            let file = file.tag(Tag::None).modified(Modified::None);
            file.fault(cut(150_000))
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        for _ in 0..3 {
            let whole = edge.get("/x", &[]);
            assert_ne!(whole.body.len() as u64, FILE, "{mode}: it is never whole");
            if whole.status == 200 {
                assert!(version_of(0, &whole.body).is_some(), "{mode}: mixed");
            }
        }
        assert!(
            origin.requests().len() <= REQUESTS_MAX,
            "{:?}",
            asked(&origin)
        );
    }
}

// A server stops in the middle of its response. The rest is fetched from another server of the same
// upstream.
#[test]
fn another_server_continues_a_broken_fetch() {
    for mode in MODES {
        let latch = Latch::at(100_000);
        let one = serving("/x", fresh(FILE).hold_body(&latch));
        let other = serving("/x", fresh(FILE).hold_body(&latch));
        let edge = filling(&one, mode)
            .cache("parallel = 1")
            .also(&other)
            .start();
        let mut client = send_whole(&edge);
        assert!(latch.wait_held(1, SOON));
        let (dying, living) = match one.requests().is_empty() {
            true => (&other, &one),
            false => (&one, &other),
        };
        client.read_head().expect("a head");
        let first = client.read_some(100_000).expect("what was sent");
        verify_offset(0, &first).expect("the right bytes");
        dying.refuse().expect("it stops listening");
        dying.drop_connections();
        latch.release();
        let rest = client.read_some(FILE as usize - 100_000).expect("the rest");
        assert_eq!(rest.len() as u64, FILE - 100_000, "{mode}");
        verify_offset(100_000, &rest).expect("the right bytes");
        assert_eq!(begins(living).first(), Some(&100_000), "{mode}");
    }
}

// The fetch of a block breaks off after the requested bytes, when no client waits for it. The next
// client that needs the block causes another request.
#[test]
fn a_fetch_that_broke_without_waiting_clients_is_retried_by_the_next_one() {
    for mode in MODES {
        // The first response ends after the ten bytes that the client has requested.
        let origin = nth_is(|n| n == 0, |seen| good(seen).fault(cut(10)));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        check_range(&edge, 1_200_000, 1_200_999);
        check_range(&edge, 1_060_000, 1_300_000);
        assert_eq!(crate::partial_objects::sent_again(&origin), 0, "{mode}");
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}
