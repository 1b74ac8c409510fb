//! Tests of range requests for missing, moved, failing, empty and tiny files. The client receives
//! the status of the origin's response.

use sluice_lab::origin::Resource;

use crate::harness::{assert_hit, fresh, serving};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, check_range, filling,
};

const ALL: [&str; 4] = ["whole", "lock", "slice", "auto"];

#[test]
fn a_range_of_a_missing_file_is_404() {
    for mode in ALL {
        let missing = Resource::status(404).cache_control("max-age=3600");
        let origin = serving("/x", missing);
        let edge = filling(&origin, mode).start();
        for _ in 0..2 {
            let reply = ask_range(&edge, 1_200_000, 1_200_009);
            assert_eq!(
                (reply.status, &*reply.text()),
                (404, "status 404\n"),
                "{mode}"
            );
            assert_eq!(reply.header("content-range"), None);
        }
        let plain = edge.get("/x", &[]);
        assert_eq!(
            (plain.status, &*plain.text()),
            (404, "status 404\n"),
            "{mode}"
        );
        assert!(origin.requests().len() <= 3, "{mode}: {:?}", asked(&origin));
    }
}

#[test]
fn a_range_of_a_moved_file_is_a_redirect() {
    for mode in ALL {
        let moved = Resource::status(302).header("Location", "/y");
        let origin = serving("/x", moved);
        let edge = filling(&origin, mode).start();
        let reply = ask_range(&edge, 5, 9);
        assert_eq!(reply.status, 302, "{mode}");
        assert_eq!(reply.header("location"), Some("/y"));
        // The origin replaces the redirect with a file, which is served from then on.
        origin.serve("/x", fresh(FILE));
        check_range(&edge, 5, 9);
    }
}

// The origin's error is passed on and not stored. The next request receives the file.
#[test]
fn a_range_of_a_failing_file_is_the_error() {
    for mode in ALL {
        let origin = serving("/x", Resource::status(503));
        let edge = filling(&origin, mode).start();
        assert_eq!(ask_range(&edge, 5, 9).status, 503, "{mode}");
        assert_eq!(edge.get("/x", &[]).status, 503, "{mode}");
        assert!(origin.requests().len() <= 8, "{mode}: {:?}", asked(&origin));
        origin.serve("/x", fresh(FILE));
        check_range(&edge, 5, 9);
    }
}

// An empty file has no satisfiable range. The first request is for the whole file.
#[test]
fn an_empty_file_is_served() {
    for mode in ALL {
        let origin = serving("/x", fresh(0));
        let edge = filling(&origin, mode).start();
        for _ in 0..2 {
            let all = edge.get("/x", &[]);
            assert_eq!((all.status, all.body.len()), (200, 0), "{mode}");
            assert_eq!(all.header("content-length"), Some("0"), "{mode}");
            let none = edge.get("/x", &[("Range", "bytes=0-")]);
            assert_eq!(none.status, 416, "{mode}");
            assert_eq!(none.header("content-range"), Some("bytes */0"));
        }
        assert!(origin.requests().len() <= 4, "{mode}: {:?}", asked(&origin));
    }
}

// An empty file has no satisfiable range. The first request is for a range.
#[test]
fn a_range_of_an_empty_file_is_refused() {
    for mode in ALL {
        let origin = serving("/x", fresh(0));
        let edge = filling(&origin, mode).start();
        for range in ["bytes=0-9", "bytes=0-"] {
            let none = edge.get("/x", &[("Range", range)]);
            assert_eq!(none.status, 416, "{mode} {range}");
            assert_eq!(none.header("content-range"), Some("bytes */0"), "{mode}");
        }
        // The suffix range `-5` means the whole empty file, which Content-Range can't express.
        // Therefore 200 and 416 are both correct.
        let last = edge.get("/x", &[("Range", "bytes=-5")]);
        assert!(matches!(last.status, 200 | 416) && last.body.is_empty());
        let all = edge.get("/x", &[]);
        assert_eq!((all.status, all.body.len()), (200, 0), "{mode}");
    }
}

// The response to a range beyond the end of the file is 416 with the file's length. It has no
// content of the file.
#[test]
fn a_range_beyond_the_end_is_416() {
    for mode in ALL {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let length = format!("bytes */{FILE}");
        for range in ["bytes=2500000-", "bytes=3000000-3000009"] {
            let beyond = edge.get("/x", &[("Range", range)]);
            assert_eq!(beyond.status, 416, "{mode} {range}");
            assert_eq!(beyond.header("content-range"), Some(&*length), "{mode}");
        }
        check_range(&edge, 1_200_000, 1_200_009);
        edge.get("/x", &[]).verify_whole(FILE).expect("all of it");
    }
}

// The length of the file is known from an earlier response, so a range beyond its end needs no
// request to the origin.
#[test]
fn a_range_beyond_a_known_end_is_416() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let beyond = edge.get("/x", &[("Range", "bytes=2500000-")]);
        assert_eq!(beyond.status, 416, "{mode}");
        let length = format!("bytes */{FILE}");
        assert_eq!(beyond.header("content-range"), Some(&*length));
        // A range that begins in the file and ends beyond it is shortened to the end of the file.
        let over = edge.get("/x", &[("Range", "bytes=2499990-9999999")]);
        over.verify_range(FILE - 10, FILE - 1, FILE).expect("ten");
        assert_sent_once(&edge, &origin, BLOCK + FILE % BLOCK);
    }
}

#[test]
fn a_file_of_one_byte_is_served() {
    for mode in ALL {
        let origin = serving("/x", fresh(1));
        let edge = filling(&origin, mode).start();
        for range in ["bytes=0-0", "bytes=0-9", "bytes=-1", "bytes=0-"] {
            let reply = edge.get("/x", &[("Range", range)]);
            reply.verify_range(0, 0, 1).expect(range);
        }
        let whole = edge.get("/x", &[]);
        whole.verify_whole(1).expect("all of it");
        assert_hit(&whole);
        assert!(origin.requests().len() <= 2, "{mode}: {:?}", asked(&origin));
    }
}
