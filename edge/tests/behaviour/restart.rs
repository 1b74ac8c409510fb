//! Tests of a restart, graceful or by SIGKILL. Stored and validated responses are served again;
//! replaced and invalidated ones are not.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Origin, Resource};

use crate::caching_rules::{
    LENGTH, aged, assert_failed, assert_stale, assert_validated, kill, stale, stale_on_arrival,
};
use crate::disks::{
    Disks, ENDS, End, File, MIB, again, ask, end, fill, get, is_hit, loaded, number_of, records,
    settled, shelf, start, store_x, without_origin, written,
};
use crate::harness::{
    Edge, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin, serving, ttl,
    wait_for_requests,
};
use crate::partial_objects::was_slow;

/// Lengths of two bodies in bytes: a small body that is stored in one record with its head, and one
/// that is stored in blocks.
const LENGTHS: [u64; 2] = [5000, 700_000];

/// Runs `check` for each way to end the program, with each of the two lengths.
fn each(mut check: impl FnMut(End, u64)) {
    for how in ENDS {
        for length in LENGTHS {
            check(how, length);
        }
    }
}

// Each run of the program stores further objects. After each restart all objects are served.
#[test]
fn stored_responses_are_served_after_every_restart() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let mut edge = start(&setup);
    let mut kept: Vec<File> = Vec::new();
    for round in 0..6 {
        let new = [
            File::row(100 * round, 10, 3000),
            File::row(100 * round + 50, 2, 300_000),
        ]
        .concat();
        fill(&edge, &new);
        kept.extend(new);
        let expected = kept.iter().map(|file| records(file.length)).sum();
        written(&edge, expected);
        edge = again(edge, ENDS[round as usize % 2], &setup);
        assert_eq!(number_of(&edge, 1, "records"), expected);
        without_origin(&origin, "stored", || {
            kept.iter().for_each(|file| file.assert_stored(&edge));
        });
        assert_eq!(number_of(&edge, 1, "damaged"), 0, "{round}");
    }
}

// A stored response is stale after the restart. The origin confirms it with a 304, and it is
// served.
#[test]
fn stale_responses_are_revalidated_after_a_restart() {
    each(|how, length| {
        let origin = serving("/x", stale_on_arrival(Resource::offset(length), ""));
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        get(&edge, "/x").verify_whole(length).expect("the body");
        written(&edge, records(length));
        // If the machine pauses, bytes may be fetched twice.
        let fetched = origin.read_record(|record| record.sent_for("/x"));
        assert!(fetched == length || was_slow(&edge), "{how:?}: {fetched}");
        let edge = again(edge, how, &setup);
        let body = |origin: &Origin| origin.read_record(|record| record.sent_for("/x"));
        for _ in 0..2 {
            let reply = get(&edge, "/x");
            reply.verify_whole(length).expect("the body");
            assert_validated(&reply);
        }
        assert_eq!(body(&origin), fetched, "{how:?}: the body came once");
    });
}

// A 304 makes a stored response fresh, before or after a restart. The freshness must hold after the
// next restart as well.
#[test]
fn the_result_of_a_validation_survives_a_restart() {
    each(|how, length| {
        let origin = serving("/x", stale_on_arrival(Resource::offset(length), ""));
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let mut edge = start(&setup);
        get(&edge, "/x").verify_whole(length).expect("the body");
        written(&edge, records(length));
        for restarted in [false, true] {
            origin.serve("/x", stale_on_arrival(Resource::offset(length), ""));
            if restarted {
                edge = again(edge, how, &setup);
            }
            let renewed = Resource::offset(length)
                .cache_control("max-age=7200")
                .header("X-Renewed", "yes");
            origin.serve("/x", renewed);
            let before = number_of(&edge, 1, "written_bytes");
            if !restarted {
                assert_validated(&get(&edge, "/x"));
                eventually("the head is written again", || {
                    number_of(&edge, 1, "written_bytes") > before
                });
                settled(&edge);
            }
            edge = again(edge, how, &setup);
            let reply = without_origin(&origin, "renewed", || get(&edge, "/x"));
            reply.verify_whole(length).expect("the body");
            assert_hit(&reply);
            assert!(ttl(&reply) > 7000, "{}", cache_status(&reply));
            assert_eq!(reply.header("x-renewed"), Some("yes"));
        }
    });
}

/// An event that changes the response stored at `/x`, and the response that is expected afterwards.
struct Change<'a> {
    what: &'a str,
    make: &'a dyn Fn(&Edge, &Origin, u64),
}

/// Asserts that no byte of version 0 is served after the event and a restart.
fn assert_survives_restart(change: &Change<'_>) {
    each(|how, length| {
        let origin = origin();
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        store_x(&edge, &origin, length);
        (change.make)(&edge, &origin, length);
        settled(&edge);
        let mut edge = again(edge, how, &setup);
        for round in 0..2 {
            let reply = get(&edge, "/x");
            let right = reply.verify_version(1, 0);
            right.unwrap_or_else(|wrong| panic!("{} {how:?} {round}: {wrong}", change.what));
            assert_eq!(reply.body.len() as u64, length);
            settled(&edge);
            edge = again(edge, how, &setup);
        }
    });
}

// RFC 9111 4.4: an unsafe request invalidates the stored response. The program is then restarted
// before another request arrives.
#[test]
fn invalidated_responses_stay_invalidated() {
    for method in ["POST", "DELETE", "PUT"] {
        let make = |edge: &Edge, origin: &Origin, length: u64| {
            origin.serve("/x", fresh(length).version(1));
            let before = number_of(edge, 1, "written_bytes");
            assert_eq!(ask(edge, method, "/x", &[]).status, 200);
            // SIGKILL would lose an invalidation that has not been written, so the test waits until
            // the volume has written it.
            eventually("it is written that it is gone", || {
                number_of(edge, 1, "written_bytes") > before
            });
        };
        let what = method;
        assert_survives_restart(&Change { what, make: &make });
    }
}

// A new version replaces the stored one, and after a restart only the new version is served.
#[test]
fn a_new_version_replaces_the_old_one() {
    let no_cache = |edge: &Edge, origin: &Origin, length: u64| {
        origin.serve("/x", fresh(length).version(1));
        let before = number_of(edge, 1, "written_bytes");
        let reply = ask(edge, "GET", "/x", &[("Cache-Control", "no-cache")]);
        if reply.verify_version(1, 0).is_err() {
            // By default `no-cache` in a request is ignored, so the test invalidates the response
            // with a POST to cause the fetch.
            ask(edge, "POST", "/x", &[]);
            let reply = get(edge, "/x");
            reply.verify_version(1, 0).expect("the new one");
        }
        eventually("the new one is written", || {
            number_of(edge, 1, "written_bytes") > before
        });
        settled(edge);
    };
    assert_survives_restart(&Change {
        what: "no-cache",
        make: &no_cache,
    });
    let after_post = |edge: &Edge, origin: &Origin, length: u64| {
        origin.serve("/x", fresh(length).version(1));
        ask(edge, "POST", "/x", &[]);
        let before = number_of(edge, 1, "written_bytes");
        let reply = get(edge, "/x");
        reply.verify_version(1, 0).expect("the new one");
        eventually("the new one is written", || {
            number_of(edge, 1, "written_bytes") >= before + length
        });
        settled(edge);
    };
    assert_survives_restart(&Change {
        what: "POST and GET",
        make: &after_post,
    });
}

// The revalidation of a stale response finds a new version, several times. The versions are small
// and large in turn.
#[test]
fn versions_of_different_sizes_replace_one_another() {
    for how in ENDS {
        let origin = origin();
        let mut edge = Disks::new(1).start(&origin);
        for (version, length) in [(0, 700_000), (1, 900), (2, 700_000), (3, 300_000), (4, 0)] {
            origin.serve(
                "/x",
                stale_on_arrival(Resource::offset(length), "").version(version),
            );
            let before = number_of(&edge, 1, "written_bytes");
            let reply = get(&edge, "/x");
            assert_eq!((reply.status, reply.body.len() as u64), (200, length));
            reply.verify_version(version, 0).expect("this version");
            eventually("it is written", || {
                number_of(&edge, 1, "written_bytes") >= before + length.max(1)
            });
            settled(&edge);
            edge.restart(how);
            let reply = get(&edge, "/x");
            assert_eq!((reply.status, reply.body.len() as u64), (200, length));
            reply.verify_version(version, 0).expect("this version");
            assert_validated(&reply);
        }
    }
}

// The origin forbids storing a response that is stored already. After a restart the stored response
// must not be served, not even stale.
#[test]
fn a_response_that_may_no_longer_be_stored_does_not_reappear() {
    each(|how, length| {
        let origin = serving(
            "/x",
            stale_on_arrival(Resource::offset(length), ", stale-if-error=600"),
        );
        let mut edge = Disks::new(1).start(&origin);
        get(&edge, "/x").verify_whole(length).expect("the body");
        written(&edge, records(length));
        let secret = Resource::offset(length).version(1);
        origin.serve("/x", secret.cache_control("no-store"));
        let before = number_of(&edge, 1, "written_bytes");
        let reply = get(&edge, "/x");
        reply.verify_version(1, 0).expect("the new one");
        eventually("it is written that it is gone", || {
            number_of(&edge, 1, "written_bytes") > before
        });
        edge.restart(how);
        kill(&origin);
        assert_failed(&get(&edge, "/x"));
    });
}

// The origin is down after the restart. The stored response is served stale, as it would have been
// before.
#[test]
fn grace_survives_a_restart() {
    each(|how, length| {
        let origin = serving(
            "/x",
            stale_on_arrival(Resource::offset(length), ", stale-if-error=600"),
        );
        let disks = Disks::new(1);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        get(&edge, "/x").verify_whole(length).expect("the body");
        written(&edge, records(length));
        kill(&origin);
        let edge = again(edge, how, &setup);
        let reply = get(&edge, "/x");
        reply.verify_whole(length).expect("the old one");
        assert_stale(&reply, "stale-if-error");
    });
}

// After the restart the stored response is stale. It is served while a background fetch revalidates
// it.
#[test]
fn a_stale_response_is_served_while_it_is_revalidated_after_a_restart() {
    let origin = serving("/x", stale(", stale-while-revalidate=600"));
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    get(&edge, "/x").verify_whole(LENGTH).expect("the body");
    written(&edge, 1);
    let edge = again(edge, End::Killed, &setup);
    origin.serve("/x", fresh(LENGTH).version(1));
    let reply = get(&edge, "/x");
    reply.verify_whole(LENGTH).expect("the old one");
    assert_stale(&reply, "stale-while-revalidate");
    wait_for_requests(&origin, "/x", 2);
    eventually("the new one is there", || {
        get(&edge, "/x").verify_version(1, 0).is_ok()
    });
}

// The stored response has no validator and is stale. It can't be revalidated, and its bytes can't
// be combined with newly fetched ones.
#[test]
fn a_stale_response_without_a_validator_is_fetched_again() {
    each(|how, length| {
        let bare = |version| {
            crate::caching_rules::bare(
                stale_on_arrival(Resource::offset(length), "").version(version),
            )
        };
        let origin = serving("/x", bare(0));
        let mut edge = Disks::new(1).start_with(&origin, "stale_if_error = \"1h\"");
        get(&edge, "/x").verify_version(0, 0).expect("the first");
        settled(&edge);
        origin.serve("/x", bare(1));
        edge.restart(how);
        let reply = get(&edge, "/x");
        assert_eq!(reply.body.len() as u64, length);
        reply.verify_version(1, 0).expect("the second");
    });
}

// The program ends during a fetch. After the restart the missing bytes are fetched, and the stored
// parts cause no wrong response.
#[test]
fn an_interrupted_fetch_is_repeated_after_a_restart() {
    for length in [60_000, 2_000_000] {
        let latch = sluice_lab::origin::Latch::at(length - 10);
        let origin = serving("/x", fresh(length).hold_body(&latch));
        let disks = Disks::new(1);
        // No other fetch takes over the end, however slow the first one is.
        let setup = disks.setup(&origin).cache("fill = \"whole\"");
        let edge = start(&setup);
        let mut client = edge.client();
        let fields = [("Host", crate::disks::HOST)];
        client.send("GET", "/x", &fields, b"").expect("sent");
        assert!(latch.wait_passed(length - 10, crate::harness::SOON));
        end(edge, End::Killed);
        origin.serve("/x", fresh(length).version(1));
        let edge = start(&setup);
        // Some blocks of the old version may be stored. A client that begins with them is cut off
        // where the new version begins, and then sends the request again.
        let mut reply = get(&edge, "/x");
        if reply.truncated() {
            let version = sluice_lab::offset::version_of(reply.body[0]);
            let version = version.expect("a byte of a version");
            let right = sluice_lab::offset::verify_version(version, 0, &reply.body);
            right.expect("one version, not two");
            reply = get(&edge, "/x");
        }
        reply.verify_version(1, 0).expect("the new one");
        assert_eq!(reply.body.len() as u64, length);
    }
}

#[test]
fn requests_are_served_while_the_index_loads() {
    let origin = shelf();
    let disks = Disks::new(1).sized(64 * MIB);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = File::row(0, 800, 4000);
    fill(&edge, &files);
    end(edge, End::Killed);
    let edge = setup.start();
    let reply = files[799].get(&edge);
    let state = crate::disks::volume(&edge, 1)["state"].clone();
    assert!(state == "loading" || state == "up", "{state}");
    assert!(is_hit(&reply) || cache_status(&reply).contains("fwd="));
    loaded(&edge);
    files.iter().for_each(|file| drop(file.get(&edge)));
    let asked = origin.read_record(|record| record.requests_total);
    assert!(asked <= 802, "{asked}");
}

// SIGTERM makes the program write all queued records before it ends, so every stored response is
// served after the restart.
#[test]
fn a_graceful_shutdown_writes_the_queue() {
    let origin = shelf();
    let mut edge = Disks::new(1).start(&origin);
    let files = File::row(0, 30, 40_000);
    files.iter().for_each(|file| drop(file.get(&edge)));
    eventually("nothing is fetched", || edge.counter("flights_now") == 0);
    edge.restart(End::Stopped);
    without_origin(&origin, "stored", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
}

// The age of a stored response continues to grow while the program is stopped.
#[test]
fn freshness_expires_during_a_restart() {
    let origin = serving("/x", aged("max-age=200", 100));
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    get(&edge, "/x");
    written(&edge, 1);
    let edge = again(edge, End::Killed, &setup);
    let reply: Reply = get(&edge, "/x");
    assert_hit(&reply);
    assert!((1..=100).contains(&ttl(&reply)), "{}", ttl(&reply));
    assert_has_parameter(&reply, &format!("ttl={}", ttl(&reply)));
}
