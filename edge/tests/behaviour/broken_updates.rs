//! Tests of a new version whose body breaks off. The version that it was to replace stays usable
//! for `stale_if_error` (RFC 5861 4), in memory and on volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::verify_version;
use sluice_lab::origin::{Ending, Fault, Latch, Origin, Resource, Seen};

use crate::background_revalidation::SWR;
use crate::caching_rules::{LENGTH, aged, assert_stale, bare, kill};
use crate::disks::{Disks, ENDS, Restartable, again, get, purge, records, settled, start, written};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, origin, serving, wait_for_requests,
};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, asked, check_range, filling, landed, send_range, send_whole,
    version_of, wanted,
};

const SIE: &str = "max-age=60, stale-if-error=600";

/// Number of bytes after which the body of the new version breaks off.
const BROKEN_AT: u64 = 400;

/// Returns the old version, which is stale on arrival.
fn old(length: u64) -> Resource {
    Resource::offset(length)
        .cache_control(SIE)
        .header("Age", "100")
}

/// Returns the new version, which is fresh.
fn new(length: u64) -> Resource {
    Resource::offset(length)
        .version(1)
        .cache_control("max-age=3600, stale-if-error=600")
}

/// Returns the new version with a body that breaks off. Requests for the rest fail.
fn broken(new: Resource) -> Resource {
    Resource::dynamic(move |seen: &Seen| {
        let ending = Ending::Fin;
        match seen.header("range") {
            Some(_) => new.clone().fault(Fault::EndBeforeHead(ending)),
            None => new.clone().fault(Fault::CutBody {
                after: BROKEN_AT,
                ending,
            }),
        }
    })
}

/// Returns the new version with a body that waits at the latch, and then breaks off if `breaks` is
/// set. Requests for the rest fail.
fn held(new: Resource, latch: &Latch, breaks: &Arc<AtomicBool>) -> Resource {
    let (latch, breaks) = (latch.clone(), breaks.clone());
    Resource::dynamic(move |seen: &Seen| {
        let ending = Ending::Fin;
        match (seen.header("range"), breaks.load(Ordering::SeqCst)) {
            (Some(_), true) => new.clone().fault(Fault::EndBeforeHead(ending)),
            (_, true) => new.clone().hold_body(&latch).fault(Fault::CutBody {
                after: BROKEN_AT + 1,
                ending,
            }),
            (_, false) => new.clone().hold_body(&latch),
        }
    })
}

fn verify(reply: &Reply, version: u32, length: u64) {
    let status = cache_status(reply);
    assert_eq!(reply.status, 200, "{status}");
    assert_eq!(reply.body.len() as u64, length, "{status}");
    verify_version(version, 0, &reply.body).expect(status);
}

/// Stores the old version and starts to fetch the new one, whose body the latch holds. Returns the
/// client whose request caused that.
fn replacing(edge: &Edge, origin: &Origin, latch: &Latch, breaks: bool) -> Client {
    origin.serve("/x", old(LENGTH));
    edge.get("/x", &[]);
    let breaks = Arc::new(AtomicBool::new(breaks));
    origin.serve("/x", held(new(LENGTH), latch, &breaks));
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    let head = client.read_head().expect("the new head");
    assert_eq!(head.status, 200);
    assert!(latch.wait_passed(BROKEN_AT, SOON));
    client
}

/// Requests the resource until the response is complete. While a retry receives the new version, clients
/// receive that version, and their responses are cut when its body breaks off.
fn get_uncut(edge: &Edge, fields: &[(&str, &str)]) -> Reply {
    let mut reply = edge.get("/x", fields);
    eventually("a complete response", || {
        if reply.truncated() {
            let control = reply.header("cache-control");
            assert!(control.is_some_and(|control| control.starts_with("max-age=3600")));
            reply = edge.get("/x", fields);
        }
        !reply.truncated()
    });
    reply
}

#[test]
fn a_new_version_whose_body_breaks_off_leaves_the_old_one_usable() {
    for (how, change) in [
        (
            "joinable",
            (|resource| resource) as fn(Resource) -> Resource,
        ),
        ("unjoinable", bare),
    ] {
        let origin = serving("/x", change(old(LENGTH)));
        let edge = Setup::cached(&origin).start();
        verify(&edge.get("/x", &[]), 0, LENGTH);
        origin.serve("/x", broken(change(new(LENGTH))));
        let first = edge.get("/x", &[]);
        let version = version_of(0, &first.body).expect("one version");
        assert!(first.truncated() && version == 1 || version == 0, "{how}");
        for _ in 0..5 {
            let reply = get_uncut(&edge, &[]);
            verify(&reply, 0, LENGTH);
            assert_stale(&reply, "stale-if-error");
            let range = get_uncut(&edge, &[("Range", "bytes=900-909")]);
            range.verify_range(900, 909, LENGTH).expect("the range");
        }
        origin.serve("/x", change(new(LENGTH)));
        eventually("the new version is served", || {
            edge.get("/x", &[]).header("etag") == edge.get("/x", &[]).header("etag")
                && version_of(0, &edge.get("/x", &[]).body) == Some(1)
        });
        landed(&edge);
        let hit = edge.get("/x", &[]);
        verify(&hit, 1, LENGTH);
        assert_hit(&hit);
    }
}

/// Requests a range while the new version breaks off before its first byte. If the break arrives
/// together with the new head, the client receives the range of the old version; otherwise its
/// response is cut after the head of the new one.
fn get_range_or_cut(edge: &Edge, fields: &[(&str, &str)]) {
    let fields = [fields, &[("Range", "bytes=900-909")]].concat();
    let range = edge.get("/x", &fields);
    if range.status != 206 || !range.truncated() {
        let right = range.verify_range(900, 909, LENGTH);
        right.unwrap_or_else(|wrong| panic!("{wrong} ({})", cache_status(&range)));
    }
}

// The body breaks off before its first byte, so the waiting client has received nothing.
#[test]
fn a_client_that_has_received_nothing_of_the_new_version_receives_the_old_one() {
    for change in [(|resource| resource) as fn(Resource) -> Resource, bare] {
        let origin = serving("/x", change(old(LENGTH)));
        let edge = Setup::cached(&origin).start();
        edge.get("/x", &[]);
        let cut = Fault::CutBody {
            after: 0,
            ending: Ending::Fin,
        };
        origin.serve("/x", change(new(LENGTH)).fault(cut));
        get_range_or_cut(&edge, &[]);
        // The pause after the failed fetch is short, so this request may cause another one.
        let reply = get_uncut(&edge, &[]);
        verify(&reply, 0, LENGTH);
        assert_stale(&reply, "stale-if-error");
    }
}

// Validations don't carry headers of a client, so one failed validation suffices: the old version is
// served to this client.
#[test]
fn a_client_with_headers_of_its_own_receives_the_old_version() {
    let origin = serving("/x", bare(old(LENGTH)));
    let forward = "forward_headers = [\"X-Who\"]";
    let edge = Setup::cached(&origin).cache(forward).start();
    edge.get("/x", &[]);
    origin.serve(
        "/x",
        bare(new(LENGTH)).fault(Fault::CutBody {
            after: 0,
            ending: Ending::Fin,
        }),
    );
    get_range_or_cut(&edge, &[("X-Who", "a")]);
    assert_eq!(origin.requests().len(), 2);
    let reply = get_uncut(&edge, &[("X-Who", "a")]);
    verify(&reply, 0, LENGTH);
    assert_stale(&reply, "stale-if-error");
}

// While the body of the new version arrives, all clients receive the new version.
#[test]
fn clients_receive_the_new_version_while_its_body_arrives() {
    let latch = Latch::at(BROKEN_AT);
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let mut first = replacing(&edge, &origin, &latch, false);
    let mut others: Vec<_> = (0..4)
        .map(|_| {
            let mut client = edge.client();
            client.send("GET", "/x", &[], b"").expect("sent");
            let head = client.read_head().expect("the new head");
            assert_eq!(head.header("etag"), Some("\"v1-1000\""));
            client
        })
        .collect();
    latch.release();
    for client in others.iter_mut().chain([&mut first]) {
        let body = client.read_some(LENGTH as usize).expect("a body");
        assert_eq!(body.len() as u64, LENGTH);
        verify_version(1, 0, &body).expect("the new version");
    }
    landed(&edge);
    let hit = edge.get("/x", &[]);
    verify(&hit, 1, LENGTH);
    assert_hit(&hit);
    assert_eq!(origin.requests().len(), 2);
    // The old version is gone: it is not served in place of a failing origin.
    assert_eq!(edge.objects("/x").len(), 1);
}

/// Asserts that neither version is left if `remove` removes the resource during the body of the new
/// version, whether the body then breaks off or not.
fn assert_both_removed(how: &str, remove: impl Fn(&Edge, &Origin)) {
    for breaks in [true, false] {
        let latch = Latch::at(BROKEN_AT);
        let origin = origin();
        let edge = Setup::cached(&origin).start();
        let mut client = replacing(&edge, &origin, &latch, breaks);
        remove(&edge, &origin);
        latch.release();
        client.read_to_end_of(LENGTH, breaks);
        landed(&edge);
        kill(&origin);
        let reply = edge.get("/x", &[]);
        assert!((500..=504).contains(&reply.status), "{how}: {reply:?}");
    }
}

#[test]
fn a_purge_during_the_body_removes_both_versions() {
    for how in ["url", "all", "prefix"] {
        assert_both_removed(how, |edge, _| {
            let order = match how {
                "url" => json!({"url": edge.url("/x")}),
                "all" => json!({"all": true}),
                _ => json!({"prefix": "/"}),
            };
            purge(edge, &order);
        });
    }
}

// An unsafe request invalidates both versions (RFC 9111 4.4).
#[test]
fn an_unsafe_request_during_the_body_removes_both_versions() {
    assert_both_removed("POST", |edge, origin| {
        let held = origin.requests().len();
        origin.serve("/x", Resource::status(200));
        edge.ask("POST", "/x", &[], b"x");
        assert_eq!(origin.requests().len(), held + 1);
    });
}

// Each new version breaks off. The old version stays, and after each failure it is served at once.
#[test]
fn the_old_version_survives_several_broken_ones() {
    let origin = serving("/x", old(LENGTH));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    for version in 1..6 {
        origin.serve("/x", broken(new(LENGTH).version(version)));
        let before = origin.requests().len();
        eventually("the new version is tried", || {
            let reply = edge.get("/x", &[]);
            assert!(reply.truncated() || version_of(0, &reply.body) == Some(0));
            origin.requests().len() > before
        });
        landed(&edge);
        let reply = edge.get("/x", &[]);
        if !reply.truncated() {
            verify(&reply, 0, LENGTH);
        }
    }
    // The old version alone is left.
    eventually("one object", || edge.objects("/x").len() == 1);
}

// The revalidation runs in the background while the stale response is served (RFC 5861 3).
#[test]
fn a_new_version_that_breaks_off_in_the_background_leaves_the_old_one() {
    let origin = serving("/x", aged(&format!("{SIE}{SWR}"), 100));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    origin.serve("/x", broken(new(LENGTH)));
    verify(&edge.get("/x", &[]), 0, LENGTH);
    wait_for_requests(&origin, "/x", 2);
    landed(&edge);
    verify(&edge.get("/x", &[]), 0, LENGTH);
}

/// Length of a file that is several times as large as the client budget of these tests.
const LARGE: u64 = 8 << 20;

/// Asserts that the new version whose body the latch holds is stored in part when its fetch ends
/// without a reader, and that the next request completes it.
fn assert_completed_later(edge: &Edge, origin: &Origin, latch: &Latch, fields: &[(&str, &str)]) {
    latch.release();
    landed(edge);
    let before = origin.requests().len();
    let start = edge.get("/x", fields);
    let body = (start.status, start.body.len(), version_of(0, &start.body));
    assert_eq!(body, (206, 1024, Some(1)), "{}", cache_status(&start));
    assert_hit(&start);
    assert_eq!(origin.requests().len(), before);
    verify(&edge.get("/x", &[]), 1, LARGE);
    landed(edge);
    verify(&edge.get("/x", &[]), 1, LARGE);
    assert_eq!(edge.objects("/x").len(), 1);
}

// Sluice itself ends the fetch of the new version, since the client wants no more of its bytes.
#[test]
fn a_new_version_that_no_client_reads_to_its_end_is_completed_by_later_requests() {
    let start = [("Range", "bytes=0-1023")];
    let leave: fn(&Edge) = |edge| {
        let mut client = send_whole(edge);
        client.read_head().expect("the new head");
        drop(client);
        eventually("the client has left", || edge.counter("requests_now") == 0);
    };
    let get_stale: fn(&Edge) = |edge| assert_stale(&edge.get("/x", &[]), "stale-while-revalidate");
    for (control, cause) in [(SIE, leave), (&format!("{SIE}{SWR}"), get_stale)] {
        let latch = Latch::at(4096);
        let origin = serving("/x", old(LARGE).cache_control(control));
        let edge = Setup::cached(&origin)
            .cache("client_budget = \"2MiB\"")
            .start();
        verify(&edge.get("/x", &[]), 0, LARGE);
        origin.serve("/x", new(LARGE).hold_body(&latch));
        cause(&edge);
        assert!(latch.wait_passed(4096, SOON));
        assert_eq!(asked(&origin).last().map(String::as_str), Some("-"));
        origin.serve("/x", new(LARGE));
        assert_completed_later(&edge, &origin, &latch, &start);
    }
}

/// Returns a version of a large file, of which blocks are stored.
fn blocks(version: u32) -> Resource {
    Resource::offset(FILE)
        .version(version)
        .cache_control("max-age=3600, stale-if-error=600")
}

/// The fault of a body that breaks off.
const CUT: Fault = Fault::CutBody {
    after: BROKEN_AT,
    ending: Ending::Fin,
};

/// Stores the first block of the file, with a cache that fetches only wanted blocks.
fn first_block(origin: &Origin, mode: &str) -> Edge {
    with_first_block(filling(origin, mode))
}

/// Starts an edge with this setup, and stores the first block of the file. The cache fetches only
/// wanted blocks.
fn with_first_block(setup: Setup) -> Edge {
    let edge = setup.cache("read_ahead = 0").start();
    check_range(&edge, 1000, 1009);
    landed(&edge);
    edge
}

// The fetch of a missing block finds the new version, with or without Range.
#[test]
fn a_broken_new_version_of_one_block_leaves_the_stored_blocks_usable() {
    for mode in MODES {
        for ranged in [true, false] {
            let origin = serving("/x", blocks(0));
            let edge = first_block(&origin, mode);
            origin.serve("/x", blocks(1).ranges(ranged).fault(CUT));
            ask_range(&edge, 5 * BLOCK + 1000, 5 * BLOCK + 1009);
            landed(&edge);
            let stored = check_range(&edge, 1000, 1009);
            assert_stale(&stored, "stale-if-error");
            origin.serve("/x", blocks(0));
            eventually("the old version is confirmed", || {
                !cache_status(&check_range(&edge, 1000, 1009)).contains("stale")
            });
            check_range(&edge, 5 * BLOCK + 1000, 5 * BLOCK + 1009);
            assert_hit(&check_range(&edge, 1000, 1009));
        }
    }
}

// Meanwhile another client downloads the old version.
#[test]
fn a_broken_new_version_of_one_block_does_not_cut_a_download() {
    for mode in MODES {
        for ranged in [true, false] {
            let (latch, breaks) = (Latch::closed(), Arc::new(AtomicBool::new(true)));
            let origin = serving("/x", blocks(0));
            // With one fetch at a time, the download does not fetch further blocks while it waits,
            // and so does not meet the broken version itself.
            let edge = with_first_block(filling(&origin, mode).cache("parallel = 1"));
            let (held, is_broken) = (latch.clone(), breaks.clone());
            let next = Resource::dynamic(move |seen: &Seen| match wanted(seen).0 {
                BLOCK => blocks(0).hold_head(&held),
                _ if is_broken.load(Ordering::SeqCst) => blocks(1).ranges(ranged).fault(CUT),
                _ => blocks(0),
            });
            origin.serve("/x", next);
            let mut download = send_whole(&edge);
            assert!(latch.wait_held(1, SOON));
            ask_range(&edge, 9 * BLOCK + 1000, 9 * BLOCK + 1009);
            eventually("the new version broke off", || {
                edge.counter("flights_now") == 1
            });
            breaks.store(false, Ordering::SeqCst);
            latch.release();
            let reply = download.read_response().expect("a reply");
            let right = reply.verify_whole(FILE);
            right.unwrap_or_else(|wrong| panic!("{mode}, {ranged}: {wrong}"));
        }
    }
}

// The fetch of another block has found the new version, whose body is still arriving.
#[test]
fn a_download_of_the_old_version_tries_once_to_get_a_missing_block() {
    for mode in MODES {
        let (held, arriving) = (Latch::closed(), Latch::at(BROKEN_AT));
        let origin = serving("/x", blocks(0));
        let edge = first_block(&origin, mode);
        let (head, body) = (held.clone(), arriving.clone());
        let next = Resource::dynamic(move |seen: &Seen| match wanted(seen).0 {
            BLOCK => blocks(0).hold_head(&head),
            place if place >= 9 * BLOCK => blocks(1).hold_body(&body),
            _ => blocks(1).hold_head(&head),
        });
        origin.serve("/x", next);
        let mut download = send_whole(&edge);
        assert!(held.wait_held(1, SOON));
        let mut other = send_range(&edge, 9 * BLOCK, FILE - 1);
        other.read_head().expect("the new head");
        assert!(arriving.wait_passed(BROKEN_AT, SOON));
        held.release();
        let reply = download.read_response().expect("a reply");
        assert!(reply.truncated(), "{mode}");
        verify_version(0, 0, &reply.body).expect(mode);
        let missing = format!("bytes={}-", reply.body.len());
        let asked = asked(&origin);
        let tries = asked.iter().filter(|range| range.starts_with(&missing));
        // Besides, the block is fetched ahead when the download begins, and at the beginning of each of its two blocks.
        assert!(tries.count() <= 4, "{mode}: {asked:?}");
        arriving.release();
        landed(&edge);
    }
}

// The new version that the fetch of a block has found is being received.
#[test]
fn a_purge_removes_stored_blocks_and_the_new_version_of_one_block() {
    for breaks in [true, false] {
        let latch = Latch::at(BROKEN_AT);
        let origin = serving("/x", blocks(0));
        let edge = first_block(&origin, "slice");
        origin.serve("/x", blocks(1).ranges(false).hold_body(&latch));
        let mut client = send_range(&edge, 5 * BLOCK, 5 * BLOCK + 9);
        client.read_head().expect("the new head");
        assert!(latch.wait_passed(BROKEN_AT, SOON));
        purge(&edge, &json!({"url": edge.url("/x")}));
        if breaks {
            kill(&origin);
        }
        latch.release();
        client.read_to_end_of(10, breaks);
        landed(&edge);
        kill(&origin);
        let reply = ask_range(&edge, 1000, 1009);
        assert!((500..=504).contains(&reply.status), "{reply:?}");
    }
}

// While the body of the new version arrives, the origin says that the resource may not be stored.
#[test]
fn no_version_stays_when_a_resource_may_not_be_stored_any_more() {
    let latch = Latch::at(BROKEN_AT);
    let origin = serving("/x", old(LENGTH));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    let stale = old(LENGTH).version(1);
    origin.serve("/x", stale.hold_body(&latch));
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.read_head().expect("the new head");
    assert!(latch.wait_passed(BROKEN_AT, SOON));
    origin.serve("/x", new(LENGTH).version(2).cache_control("no-store"));
    let reply = edge.get("/x", &[]);
    verify(&reply, 2, LENGTH);
    latch.release();
    client.read_to_end_of(LENGTH, false);
    landed(&edge);
    // The object that remains says that the response may not be stored.
    let objects = edge.objects("/x");
    assert_eq!(objects.len(), 1, "{objects:?}");
}

// Without `stale-if-error` the old version is replaced as soon as the new head has arrived.
#[test]
fn an_old_version_without_stale_if_error_is_not_kept() {
    let origin = serving("/x", aged("max-age=60", 100));
    let edge = Setup::cached(&origin)
        .cache("stale_if_error = \"0s\"")
        .start();
    edge.get("/x", &[]);
    origin.serve("/x", broken(new(LENGTH)));
    edge.get("/x", &[]);
    landed(&edge);
    kill(&origin);
    let reply = edge.get("/x", &[]);
    assert_ne!(version_of(0, &reply.body), Some(0));
}

// The program ends while the body of the new version arrives. Afterwards the old version is still
// on the volume.
#[test]
fn a_restart_during_the_body_brings_the_old_version_back() {
    for how in ENDS {
        for length in [5000, 700_000] {
            let latch = Latch::at(BROKEN_AT);
            let origin = serving("/x", old(length));
            let disks = Disks::new(1);
            let setup = disks.setup(&origin).limits("shutdown_timeout = \"100ms\"");
            let setup = match how {
                crate::disks::End::Stopped => setup,
                crate::disks::End::Killed => disks.setup(&origin),
            };
            let edge = start(&setup);
            verify(&get(&edge, "/x"), 0, length);
            written(&edge, records(length));
            // More than one block of the new version has arrived.
            latch.advance_to(length * 9 / 10);
            origin.serve("/x", new(length).hold_body(&latch));
            let mut client = edge.client();
            let fields = [("Host", crate::disks::HOST)];
            client.send("GET", "/x", &fields, b"").expect("sent");
            client.read_head().expect("the new head");
            assert!(latch.wait_passed(length * 9 / 10, SOON));
            client
                .read_some(length as usize * 9 / 10)
                .expect("the bytes so far");
            let edge = again(edge, how, &setup);
            kill(&origin);
            let reply = get(&edge, "/x");
            verify(&reply, 0, length);
            assert_stale(&reply, "stale-if-error");
        }
    }
}

/// Returns an edge that has stored the old version on a volume, and its origin.
fn old_on_a_volume(length: u64) -> (Origin, Restartable) {
    let origin = serving("/x", old(length));
    let edge = Disks::new(1).start(&origin);
    get(&edge, "/x");
    written(&edge, records(length));
    (origin, edge)
}

// The body breaks off, and then the program ends. The old version is served from the volume.
#[test]
fn the_old_version_is_still_on_the_volume_after_the_new_one_broke_off() {
    for length in [5000, 700_000] {
        let (origin, mut edge) = old_on_a_volume(length);
        origin.serve("/x", broken(new(length)));
        get(&edge, "/x");
        landed(&edge);
        settled(&edge);
        kill(&origin);
        edge.restart(ENDS[1]);
        let reply = get(&edge, "/x");
        verify(&reply, 0, length);
        assert_stale(&reply, "stale-if-error");
    }
}

// A complete new version replaces the old one on the volume, too.
#[test]
fn a_complete_new_version_replaces_the_old_one_on_the_volume() {
    for how in ENDS {
        for length in [5000, 700_000] {
            let (origin, mut edge) = old_on_a_volume(length);
            origin.serve("/x", new(length));
            verify(&get(&edge, "/x"), 1, length);
            landed(&edge);
            settled(&edge);
            kill(&origin);
            edge.restart(how);
            let reply = get(&edge, "/x");
            verify(&reply, 1, length);
            assert_hit(&reply);
        }
    }
}

trait ReadBody {
    fn read_to_end_of(&mut self, length: u64, breaks: bool);
}

impl ReadBody for Client {
    /// Reads the rest of a body, which breaks off or has `length` bytes.
    fn read_to_end_of(&mut self, length: u64, breaks: bool) {
        let body = self.read_some(length as usize).expect("a body");
        assert_eq!((body.len() as u64) < length, breaks);
    }
}
