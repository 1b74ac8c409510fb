//! Tests of 206 responses from an origin, which are stored, combined and completed (RFC 9111 3.3
//! and 3.4).

use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Fault, Latch, Origin, Resource, Seen};

use crate::harness::{SOON, Setup, assert_hit, cache_status, fresh, serving, wait_for_requests};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, check_range, filling, good, landed,
    one_version, send_range, send_whole,
};

#[test]
fn a_part_answers_smaller_ranges() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 600_000, 700_000);
        assert_sent_once(&edge, &origin, BLOCK);
        let requests = origin.requests().len();
        for (first, last) in [(600_000, 600_000), (650_000, 660_000), (700_000, 700_000)] {
            assert_hit(&check_range(&edge, first, last));
        }
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// Two parts are stored, and a requested range spans both.
#[test]
fn neighbouring_parts_are_combined() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, BLOCK, BLOCK + 9);
        check_range(&edge, 2 * BLOCK, 2 * BLOCK + 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        let requests = origin.requests().len();
        assert_hit(&check_range(&edge, BLOCK, 3 * BLOCK - 1));
        assert_hit(&check_range(&edge, 2 * BLOCK - 1, 2 * BLOCK));
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// The object was fetched in parts. The 200 for the complete object has no Content-Range.
#[test]
fn parts_are_completed_to_a_whole_response() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).header("X-Kind", "film"));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 600_000, 700_000);
        check_range(&edge, 0, FILE - 1);
        assert_sent_once(&edge, &origin, FILE);
        let requests = origin.requests().len();
        let whole = edge.get("/x", &[]);
        whole.verify_whole(FILE).expect("all of it");
        assert_hit(&whole);
        assert_eq!(whole.header("content-range"), None);
        assert_eq!(whole.header("x-kind"), Some("film"));
        assert!(whole.header("etag").is_some());
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

#[test]
fn a_full_request_completes_a_part() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 700_000);
        assert_sent_once(&edge, &origin, 3 * BLOCK);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
        assert_sent_once(&edge, &origin, FILE);
        assert!(!asked(&origin).contains(&"-".to_owned()), "{mode}");
    }
}

// RFC 9111 3.4: after parts have been combined, the stored response has the headers of the latest
// part.
#[test]
fn a_combined_response_has_the_latest_head() {
    for mode in MODES {
        let numbered = |seen: &Seen| good(seen).header("X-Number", &seen.id.to_string());
        let origin = serving("/x", Resource::dynamic(numbered));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        check_range(&edge, 2 * BLOCK, 2 * BLOCK + 9);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        let hit = check_range(&edge, 0, 9);
        assert_hit(&hit);
        assert_eq!(hit.header("x-number"), Some("1"), "{mode}");
    }
}

// The 206 contains all bytes of the file, so it answers requests for the whole file.
#[test]
fn a_part_with_all_bytes_answers_full_requests() {
    for mode in MODES {
        let origin = serving("/x", fresh(100_000));
        let edge = filling(&origin, mode).start();
        let reply = ask_range(&edge, 0, 99_999);
        reply.verify_range(0, 99_999, 100_000).expect("all of it");
        assert_sent_once(&edge, &origin, 100_000);
        let requests = origin.requests().len();
        let whole = edge.get("/x", &[]);
        whole.verify_whole(100_000).expect("all of it");
        assert_hit(&whole);
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// The 206 forbids storing, so it goes only to the client whose request was sent to the origin.
#[test]
fn a_part_that_may_not_be_stored_is_not() {
    for mode in MODES {
        let origin = serving("/x", Resource::offset(FILE).cache_control("no-store"));
        let edge = filling(&origin, mode).start();
        for _ in 0..2 {
            let reply = check_range(&edge, 600_000, 700_000);
            assert!(!cache_status(&reply).contains("hit"), "{mode}");
        }
        let own = origin.requests().len();
        assert!(own >= 2, "{mode}: {:?}", asked(&origin));
    }
}

// The origin sends fewer bytes than requested. The edge requests the rest until the range is
// complete.
#[test]
fn short_parts_are_completed() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).fault(Fault::ShortRange(10_000)));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_000_000, 1_300_000);
        assert_hit(&check_range(&edge, 1_000_000, 1_300_000));
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}

// The origin sends one byte with each 206. The response must be right, and the origin must not
// receive thousands of requests.
#[test]
fn parts_of_one_byte_each_do_not_cause_endless_requests() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE).fault(Fault::ShortRange(1)));
        let edge = filling(&origin, mode).start();
        let reply = ask_range(&edge, 1_000_000, 1_100_000);
        match reply.status {
            206 => verify_offset(1_000_000, &reply.body).expect("the right bytes"),
            status => assert!((500..=504).contains(&status), "{mode}: {status}"),
        }
        landed(&edge);
        let asked = asked(&origin).len();
        assert!(asked <= 300, "{mode}: {asked} times for 100,001 bytes");
    }
}

/// Starts an origin whose first response may be stored. The latch holds this response. Later
/// responses are of the same version, and have the headers `later`.
fn later_says(later: &'static str, latch: &Latch) -> Origin {
    let held = latch.clone();
    let choose = move |seen: &Seen| match seen.id {
        0 => good(seen).hold_body(&held),
        _ => Resource::offset(FILE).cache_control(later),
    };
    serving("/x", Resource::dynamic(choose))
}

/// Configures one fetch at a time, so that a block is fetched only when a reader needs it.
fn one_by_one(origin: &Origin) -> Setup {
    filling(origin, "slice").cache("parallel = 1")
}

// A later part of the same version forbids storing. Its bytes go to the reader that needs them, and
// to no other client.
#[test]
fn a_reader_receives_later_parts_that_may_not_be_stored() {
    for later in ["max-age=0", "max-age=60, no-cache"] {
        let latch = Latch::at(100_000);
        let origin = later_says(later, &latch);
        let edge = one_by_one(&origin).start();
        let mut clients: Vec<_> = (0..3).map(|_| send_whole(&edge)).collect();
        for client in &mut clients {
            assert_eq!(client.read_head().expect("a head").status, 200);
        }
        assert!(latch.wait_held(1, SOON));
        latch.release();
        for client in &mut clients {
            let body = client.read_some(FILE as usize).expect("a body");
            assert_eq!(body.len() as u64, FILE, "{later}: all of it");
            verify_offset(0, &body).expect("the right bytes");
        }
        landed(&edge);
        for _ in 0..2 {
            let before = asked(&origin).len();
            let reply = check_range(&edge, 2_000_000, 2_000_009);
            let status = cache_status(&reply);
            assert!(!status.contains("hit"), "{later}: {status}");
            assert!(asked(&origin).len() > before, "{later}: requested again");
        }
    }
}

// A later part forbids storing, so only the client whose request was sent receives its bytes.
#[test]
fn a_later_part_that_may_not_be_stored_is_not_shared() {
    for mode in MODES {
        let latch = Latch::closed();
        let held = latch.clone();
        // The origin sends other bytes to each request, with the same strong entity tag. No client
        // may receive the bytes of another client's response.
        let choose = move |seen: &Seen| match seen.id {
            0 => good(seen),
            _ => {
                let own = seen
                    .header("cookie")
                    .map_or(0, |cookie| cookie.len() as u32);
                let tag = sluice_lab::origin::Tag::Fixed(format!("\"v0-{FILE}\""));
                let file = Resource::offset(FILE).version(own).tag(tag);
                file.cache_control("no-store").hold_head(&held)
            }
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        landed(&edge);
        let mut clients: Vec<_> = (1..=3)
            .map(|own: usize| {
                let mut client = edge.client();
                let cookie = "c".repeat(own);
                let fields = [("Range", "bytes=2000000-2000009"), ("Cookie", &*cookie)];
                client.send("GET", "/x", &fields, b"").expect("sent");
                (own, client)
            })
            .collect();
        wait_for_requests(&origin, "/x", 2);
        latch.release();
        for (own, client) in &mut clients {
            let reply = client.read_response().expect("a reply");
            let got = one_version(&reply, 2_000_000, 2_000_009);
            assert_eq!(got as usize, *own, "{mode}: {}", cache_status(&reply));
        }
        let before = asked(&origin).len();
        let later = send_range(&edge, 2_000_000, 2_000_009).read_response();
        let later = later.expect("a reply");
        assert_eq!(one_version(&later, 2_000_000, 2_000_009), 0, "{mode}");
        assert!(asked(&origin).len() > before, "{mode}");
    }
}
