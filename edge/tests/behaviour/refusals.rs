//! Answers that are no file, asked for by ranges: each stays what the origin says.

use sluice_lab::origin::Resource;

use crate::harness::{assert_hit, fresh, serving};
use crate::pieces::{BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, check_range, filling};

const ALL: [&str; 4] = ["whole", "lock", "slice", "auto"];

// What is not there is not there in part, either.
#[test]
fn a_range_of_what_is_not_there() {
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

// Somewhere else is somewhere else.
#[test]
fn a_range_of_what_has_moved() {
    for mode in ALL {
        let moved = Resource::status(302).header("Location", "/y");
        let origin = serving("/x", moved);
        let edge = filling(&origin, mode).start();
        let reply = ask_range(&edge, 5, 9);
        assert_eq!(reply.status, 302, "{mode}");
        assert_eq!(reply.header("location"), Some("/y"));
        // A file in its place is served as one.
        origin.serve("/x", fresh(FILE));
        check_range(&edge, 5, 9);
    }
}

// An error is passed on, and the next answer is taken as it is.
#[test]
fn a_range_of_what_fails() {
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

// An empty file, which no range can be had of: whole, first, …
#[test]
fn an_empty_file() {
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

// … and by a range first.
#[test]
fn an_empty_file_by_a_range() {
    for mode in ALL {
        let origin = serving("/x", fresh(0));
        let edge = filling(&origin, mode).start();
        for range in ["bytes=0-9", "bytes=0-"] {
            let none = edge.get("/x", &[("Range", range)]);
            assert_eq!(none.status, 416, "{mode} {range}");
            assert_eq!(none.header("content-range"), Some("bytes */0"), "{mode}");
        }
        // The last five bytes of nothing are all of it, which no Content-Range can say.
        let last = edge.get("/x", &[("Range", "bytes=-5")]);
        assert!(matches!(last.status, 200 | 416) && last.body.is_empty());
        let all = edge.get("/x", &[]);
        assert_eq!((all.status, all.body.len()), (200, 0), "{mode}");
    }
}

// Beyond the end there is nothing, and the length says so: cold, …
#[test]
fn a_range_beyond_the_end() {
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

// … and from what is known already, without asking.
#[test]
fn a_range_beyond_a_known_end() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let beyond = edge.get("/x", &[("Range", "bytes=2500000-")]);
        assert_eq!(beyond.status, 416, "{mode}");
        let length = format!("bytes */{FILE}");
        assert_eq!(beyond.header("content-range"), Some(&*length));
        // What reaches over it ends there.
        let over = edge.get("/x", &[("Range", "bytes=2499990-9999999")]);
        over.verify_range(FILE - 10, FILE - 1, FILE).expect("ten");
        assert_sent_once(&edge, &origin, BLOCK + FILE % BLOCK);
    }
}

// A file of one byte.
#[test]
fn a_file_of_one_byte() {
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
