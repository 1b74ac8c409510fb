//! Tests of the requests to the origin if only the blocks that contain requested bytes are fetched.

use sluice_lab::client::Client;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Latch, Record};

use crate::harness::{SOON, assert_hit, eventually, fresh, serving, wait_for_requests};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, assert_sent_once, block_end, by_range, bytes,
    check_range, filling, good, send_range, send_whole, sent_again, settle,
};

/// Offset of a byte in the middle of the block that begins at 1,048,576.
const DEEP: u64 = 1_200_000;

// The fetch begins at the requested byte, and the first part of the block is fetched afterwards.
#[test]
fn a_range_deep_in_a_block_is_fetched_before_the_rest_of_the_block() {
    for mode in MODES {
        let latch = Latch::at(10);
        let origin = serving("/x", fresh(FILE).hold_body(&latch));
        let edge = filling(&origin, mode).start();
        let mut client = send_range(&edge, DEEP, DEEP + 9);
        // The latch lets only these ten bytes pass.
        let reply = client.read_response().expect("a reply");
        let right = reply.verify_range(DEEP, DEEP + 9, FILE);
        right.expect("the range, with the rest of the block held back");
        latch.release();
        assert_sent_once(&edge, &origin, BLOCK);
        let begin = block_end(DEEP) - BLOCK;
        let expected = [bytes(DEEP, block_end(DEEP) - 1), bytes(begin, DEEP - 1)];
        assert_eq!(asked(&origin), expected, "{mode}");
        // The requested range and the rest of its block are stored now.
        assert_hit(&check_range(&edge, DEEP, DEEP + 9));
        assert_hit(&check_range(&edge, begin, block_end(DEEP) - 1));
        assert_eq!(origin.requests().len(), 2, "{mode}");
    }
}

// The requested range begins near the start of a block. One fetch of the whole block is cheaper
// than two fetches.
#[test]
fn a_range_near_the_start_of_a_block_is_one_fetch() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, BLOCK + 10_000, BLOCK + 10_009);
        assert_sent_once(&edge, &origin, BLOCK);
        assert_eq!(asked(&origin), [bytes(BLOCK, 2 * BLOCK - 1)], "{mode}");
    }
}

// Several clients request ranges of one block before the edge knows anything of the object. No byte
// may be fetched twice.
#[test]
fn concurrent_clients_on_one_cold_block_fetch_it_once() {
    for mode in MODES {
        let latch = Latch::closed();
        let origin = serving("/x", fresh(FILE).hold_head(&latch));
        let edge = filling(&origin, mode).start();
        let firsts = [DEEP, DEEP, DEEP + 50_000, 1_130_000, 1_048_576];
        let mut clients = Vec::from(firsts.map(|first| send_range(&edge, first, first + 9)));
        eventually("all wait", || edge.counter("requests_now") == 5);
        wait_for_requests(&origin, "/x", 1);
        latch.release();
        for (client, first) in clients.iter_mut().zip(firsts) {
            let reply = client.read_response().expect("a reply");
            let right = reply.verify_range(first, first + 9, FILE);
            right.expect("the range");
        }
        assert_sent_once(&edge, &origin, BLOCK);
    }
}

#[test]
fn another_block_does_not_wait_for_the_first() {
    for mode in MODES {
        let latch = Latch::at(10);
        let held = latch.clone();
        let first_is_held = by_range(
            move |seen| match seen.header("range") {
                Some(range) if range.starts_with("bytes=1200000-") => good(seen).hold_body(&held),
                _ => good(seen),
            },
            good,
        );
        let origin = serving("/x", first_is_held);
        let edge = filling(&origin, mode).start();
        check_range(&edge, DEEP, DEEP + 9);
        check_range(&edge, 2_000_000, 2_000_009);
        assert!(latch.wait_held(1, SOON), "{mode}: the first is held still");
        latch.release();
        assert_sent_once(&edge, &origin, 2 * BLOCK);
    }
}

#[test]
fn a_range_over_several_blocks_fetches_only_missing_blocks() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 300_000, 300_009);
        assert_sent_once(&edge, &origin, BLOCK);
        check_range(&edge, 800_000, 800_009);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        // Blocks 1 and 3 are stored. This range spans the blocks 0 to 4.
        check_range(&edge, 100, 4 * BLOCK + 10);
        assert_sent_once(&edge, &origin, 5 * BLOCK);
        let requests = origin.requests().len();
        assert_hit(&check_range(&edge, 0, 5 * BLOCK - 1));
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// Two ranges are stored. A request for the whole object fetches only the other bytes. After that,
// the object is a hit.
#[test]
fn a_request_for_the_whole_after_ranges_fetches_the_rest() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, DEEP, DEEP + 9);
        check_range(&edge, FILE - 10, FILE - 1);
        let whole = edge.get("/x", &[]);
        whole.verify_whole(FILE).expect("all of it");
        assert_sent_once(&edge, &origin, FILE);
        let requests = origin.requests().len();
        let again = edge.get("/x", &[]);
        again.verify_whole(FILE).expect("all of it");
        assert_hit(&again);
        assert_eq!(again.header("content-range"), None);
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// Clients request one block after another until the object is complete. The origin never receives a
// request without Range.
#[test]
fn ranges_of_all_blocks_complete_an_object() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        for first in (0..FILE).step_by(BLOCK as usize) {
            check_range(&edge, first + 5, first + 14);
        }
        assert_sent_once(&edge, &origin, FILE);
        assert_eq!(origin.requests().len(), 10, "{mode}: one for each block");
        let whole = edge.get("/x", &[]);
        whole.verify_whole(FILE).expect("all of it");
        assert_hit(&whole);
        let length = FILE.to_string();
        assert_eq!(whole.header("content-length"), Some(&*length));
        assert_eq!(whole.header("content-range"), None);
        assert_eq!(origin.requests().len(), 10, "{mode}");
    }
}

// An object that is not stored is fetched in blocks. No byte is fetched twice, and the object is
// complete afterwards.
#[test]
fn a_cold_object_is_fetched_once() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let whole = edge.get("/x", &[]);
        whole.verify_whole(FILE).expect("all of it");
        match mode {
            "slice" => assert_sent_once(&edge, &origin, FILE),
            // With `auto` the first fetch has no Range, and may be cut short in favour of range
            // requests. Its bytes in transit are then sent again.
            _ => settle(&edge, &origin, FILE),
        }
        assert_hit(&edge.get("/x", &[]));
    }
}

/// Reads the head of a response and its first block. Only then the response goes on to the other blocks, if the client's
/// window is small.
fn read_first_block(client: &mut Client) {
    assert_eq!(client.read_head().expect("a head").status, 200);
    let first = client.read_some(BLOCK as usize).expect("a block");
    verify_offset(0, &first).expect("the first block");
    assert_eq!(first.len() as u64, BLOCK);
}

fn read_other_blocks(client: &mut Client) {
    let rest = client.read_some((FILE - BLOCK) as usize).expect("the rest");
    verify_offset(BLOCK, &rest).expect("the rest");
    assert_eq!(rest.len() as u64, FILE - BLOCK);
}

// One client that requests a large range causes four concurrent flights.
#[test]
fn a_large_request_keeps_several_flights_ahead() {
    let latch = Latch::closed();
    let held = latch.clone();
    let first_is_free = move |seen: &sluice_lab::origin::Seen| match seen.header("range") {
        Some(range) if !range.starts_with("bytes=0-") => good(seen).hold_head(&held),
        _ => good(seen),
    };
    let origin = serving("/x", by_range(first_is_free, good));
    let edge = filling(&origin, "slice").start();
    let mut client = send_whole(&edge);
    read_first_block(&mut client);
    assert!(latch.wait_held(4, SOON), "four at once");
    latch.release();
    read_other_blocks(&mut client);
    assert_sent_once(&edge, &origin, FILE);
}

// The setting `parallel` limits the number of concurrent flights for one client.
#[test]
fn flights_ahead_are_limited() {
    let latch = Latch::closed();
    let held = latch.clone();
    let first_is_free = move |seen: &sluice_lab::origin::Seen| match seen.header("range") {
        Some(range) if !range.starts_with("bytes=0-") => good(seen).hold_head(&held),
        _ => good(seen),
    };
    let origin = serving("/x", by_range(first_is_free, good));
    let edge = filling(&origin, "slice").cache("parallel = 2").start();
    let mut client = send_whole(&edge);
    read_first_block(&mut client);
    assert!(latch.wait_held(2, SOON), "two at once");
    let now = edge.counter("flights_now");
    assert!(now <= 3, "{now} at once");
    latch.release();
    read_other_blocks(&mut client);
    assert_sent_once(&edge, &origin, FILE);
}

// Without `read_ahead`, only the blocks that contain requested bytes are fetched.
#[test]
fn nothing_is_read_ahead_by_default() {
    let origin = serving("/x", fresh(FILE));
    let edge = filling(&origin, "slice").start();
    check_range(&edge, 0, 9);
    assert_sent_once(&edge, &origin, BLOCK);
    check_range(&edge, 2_400_000, 2_400_009);
    assert_sent_once(&edge, &origin, BLOCK + FILE % BLOCK);
}

#[test]
fn a_read_ahead_window_is_fetched() {
    let origin = serving("/x", fresh(FILE));
    let edge = filling(&origin, "slice")
        .cache("read_ahead = \"512KiB\"")
        .start();
    check_range(&edge, 0, 9);
    let window = |record: &Record| record.sent_total >= BLOCK + (512 << 10);
    assert!(origin.wait_for(window, SOON), "{:?}", asked(&origin));
    assert_sent_once(&edge, &origin, BLOCK + (512 << 10));
    assert_hit(&check_range(&edge, BLOCK, 3 * BLOCK - 1));
}

#[test]
fn the_rest_of_the_file_is_read_ahead() {
    let origin = serving("/x", fresh(FILE));
    let edge = filling(&origin, "slice")
        .cache("read_ahead = \"whole\"")
        .start();
    check_range(&edge, DEEP, DEEP + 9);
    assert_sent_once(&edge, &origin, FILE);
    let requests = origin.requests().len();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(FILE).expect("all of it");
    assert_hit(&whole);
    assert_eq!(origin.requests().len(), requests);
}

// Ranges whose position depends on the length of the object are requested before the length is
// known, and afterwards.
#[test]
fn suffix_and_open_ranges_are_served() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let cases = [
            ("bytes=-10", FILE - 10),
            ("bytes=2000000-", 2_000_000),
            ("bytes=-600000", 1_900_000),
        ];
        for (range, first) in cases {
            let reply = edge.get("/x", &[("Range", range)]);
            let right = reply.verify_range(first, FILE - 1, FILE);
            right.unwrap_or_else(|wrong| panic!("{mode} {range}: {wrong}"));
        }
        let requests = origin.requests().len();
        for (range, first) in cases {
            let reply = edge.get("/x", &[("Range", range)]);
            reply.verify_range(first, FILE - 1, FILE).expect(range);
            assert_hit(&reply);
        }
        assert_eq!(origin.requests().len(), requests, "{mode}");
    }
}

// The client requests the last bytes of a large file of which nothing is stored. The edge must not
// fetch the whole file.
#[test]
fn a_cold_suffix_does_not_fetch_the_whole_file() {
    let origin = serving("/x", fresh(FILE));
    let edge = filling(&origin, "slice").start();
    let reply = edge.get("/x", &[("Range", "bytes=-10")]);
    let right = reply.verify_range(FILE - 10, FILE - 1, FILE);
    right.expect("the last ten bytes");
    settle(&edge, &origin, 10);
    let sent = origin.read_record(|record| record.sent_total);
    assert!(sent <= 3 * BLOCK, "{sent} bytes: {:?}", asked(&origin));
}

// The client requests several ranges of an object of which some blocks are stored. Only the missing
// blocks are fetched.
#[test]
fn several_ranges_of_a_partially_stored_object_are_served() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let ranges = [(0, 9), (DEEP, DEEP + 9), (FILE - 10, FILE - 1)];
        let field = [("Range", "bytes=0-9,1200000-1200009,-10")];
        let cold = edge.get("/x", &field);
        cold.verify_parts(&ranges, FILE).expect("three parts");
        let field = [("Range", "bytes=500000-500009,1200000-1200009")];
        let half = edge.get("/x", &field);
        let ranges = [(500_000, 500_009), (DEEP, DEEP + 9)];
        half.verify_parts(&ranges, FILE).expect("two parts");
        let warm = edge.get("/x", &field);
        warm.verify_parts(&ranges, FILE).expect("two parts");
        assert_hit(&warm);
        settle(&edge, &origin, 10);
        let again = sent_again(&origin);
        // With `auto` the first fetch may be cut short, and its bytes in transit are then sent
        // again.
        assert!(
            again == 0 || mode == "auto",
            "{again}: {:?}",
            asked(&origin)
        );
    }
}

// The client requests several ranges in descending order. The response has them in this order.
#[test]
fn several_ranges_in_descending_order_are_served() {
    let places: Vec<u64> = (0..9).rev().map(|n| 10_000 + n * 270_000).collect();
    let ranges: Vec<(u64, u64)> = places.iter().map(|at| (*at, at + 9)).collect();
    let list: Vec<String> = ranges
        .iter()
        .map(|(first, last)| format!("{first}-{last}"))
        .collect();
    let field = format!("bytes={}", list.join(","));
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        for _ in 0..2 {
            let reply = edge.get("/x", &[("Range", &field)]);
            let right = reply.verify_parts(&ranges, FILE);
            right.unwrap_or_else(|wrong| panic!("{mode}: {wrong}"));
        }
    }
}

// The length of the object is known. The request for its last bytes fetches only the last block.
#[test]
fn a_suffix_of_a_partially_stored_object_fetches_its_last_block() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 4 * BLOCK, 4 * BLOCK + 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let reply = edge.get("/x", &[("Range", "bytes=-10")]);
        let right = reply.verify_range(FILE - 10, FILE - 1, FILE);
        right.expect("the last ten bytes");
        let last = FILE - FILE / BLOCK * BLOCK;
        assert_sent_once(&edge, &origin, BLOCK + last);
        let asked = asked(&origin);
        assert!(asked.len() <= 3, "{mode}: {asked:?}");
        let again = edge.get("/x", &[("Range", "bytes=-10")]);
        assert_hit(&again);
    }
}

// The head of the object is stored, and most of its bytes are not. If-Range and other conditions
// are evaluated with the stored head.
#[test]
fn conditions_on_a_partially_stored_object_are_evaluated() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        let tag = check_range(&edge, DEEP, DEEP + 9)
            .header("etag")
            .expect("a tag")
            .to_owned();
        assert_sent_once(&edge, &origin, BLOCK);
        let requests = origin.requests().len();
        let range = ("Range", "bytes=1200000-1200009");
        let same = edge.get("/x", &[range, ("If-Range", &tag)]);
        let right = same.verify_range(DEEP, DEEP + 9, FILE);
        right.expect("the range of the same version");
        assert_hit(&same);
        assert_eq!(edge.get("/x", &[("If-None-Match", &tag)]).status, 304);
        let modified = [("If-Modified-Since", "Thu, 01 Jan 2026 00:00:00 GMT")];
        assert_eq!(edge.get("/x", &modified).status, 304);
        let unmet = [range, ("If-Match", "\"other\"")];
        assert_eq!(edge.get("/x", &unmet).status, 412);
        let differs = edge.get("/x", &[range, ("If-None-Match", "\"other\"")]);
        let right = differs.verify_range(DEEP, DEEP + 9, FILE);
        right.expect("the range, since it differs");
        assert_eq!(origin.requests().len(), requests, "{mode}");
        let other = edge.get("/x", &[range, ("If-Range", "\"other\"")]);
        other.verify_whole(FILE).expect("all of the other version");
        assert_sent_once(&edge, &origin, FILE);
    }
}

// HEAD is answered with the headers of the whole object, without a fetch of its bytes.
#[test]
fn head_of_a_partially_stored_object_fetches_nothing() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, DEEP, DEEP + 9);
        assert_sent_once(&edge, &origin, BLOCK);
        for fields in [&[][..], &[("Range", "bytes=0-9")]] {
            let head = edge.ask("HEAD", "/x", fields, b"");
            assert_eq!((head.status, head.body.len()), (200, 0), "{mode}");
            let length = FILE.to_string();
            assert_eq!(head.header("content-length"), Some(&*length), "{mode}");
            assert_eq!(head.header("content-range"), None, "{mode}");
        }
        assert_sent_once(&edge, &origin, BLOCK);
    }
}

// A file that is not larger than a block is fetched completely with the first request, whichever
// byte the client wants.
#[test]
fn a_small_file_is_fetched_at_once() {
    for mode in MODES {
        let origin = serving("/x", fresh(100_000));
        let edge = filling(&origin, mode).start();
        let reply = ask_range(&edge, 90_000, 90_009);
        reply.verify_range(90_000, 90_009, 100_000).expect("right");
        assert_sent_once(&edge, &origin, 100_000);
        assert!(origin.requests().len() <= 2, "{:?}", asked(&origin));
        let whole = edge.get("/x", &[]);
        whole.verify_whole(100_000).expect("all of it");
        assert_hit(&whole);
    }
}
