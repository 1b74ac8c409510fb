//! Parts that an origin sends (206) are stored, combined and completed (RFC 9111 3.3 and 3.4).

use sluice_lab::origin::{Resource, Seen};

use crate::harness::{assert_hit, cache_status, fresh, serving};
use crate::pieces::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, check_range, filling, good,
};

// "a 206 that an origin sends is stored, …, and answers smaller ranges"
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

// "combined": what lies across two parts comes from both.
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

// "completed, and … when complete, full requests": as a 200, with nothing of a part in its head.
#[test]
fn parts_are_completed_to_a_whole() {
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

// "completed": a full request that meets a part asks only for the rest.
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

// "The stored response's header fields are those of the latest" (RFC 9111 3.4).
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

// A part that reaches from the first byte to the last is the whole.
#[test]
fn a_part_that_is_all_of_it_answers_full_requests() {
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

// A part that may not be stored is nobody's but his who asked.
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
