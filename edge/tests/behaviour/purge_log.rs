//! Tests of the purge logs on volumes: when a purge is acknowledged, and how long its rule is kept.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_lab::origin::Origin;

use crate::disks::{
    Disks, ENDS, End, File, ask, ask_purge, end, fill, get, is_hit, loaded, number_of, purge,
    settled, shelf, start, url, volume, without_origin,
};
use crate::durable_purge::*;
use crate::harness::{Edge, Setup, assert_hit, eventually};

// None of the cache's volumes can log the purge. The response is 503, and says that a restart may
// undo the purge.
#[test]
fn a_purge_that_can_not_be_logged_is_answered_503() {
    let origin = four();
    let disks = Disks::in_memory(1).each("retry = \"1h\"");
    let missing = disks.setup(&origin).text().replace("/1.vol", "/sub/1.vol");
    let edge = Setup::of_text(missing).start();
    eventually("it is shown to be out", || {
        volume(&edge, 1)["state"] == "out"
    });
    PATHS.iter().for_each(|path| drop(get(&edge, path)));
    PATHS.iter().for_each(|path| assert_hit(&get(&edge, path)));
    let reply = ask_purge(&edge, &json!({"tag": "two"}));
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("restart"), "{}", reply.text());
    // Although the purge was not logged, it takes effect in the running program.
    for path in PATHS {
        assert_eq!(is_hit(&get(&edge, path)), !path.starts_with("/a"), "{path}");
    }
}

/// Stores four objects on two mirrored volumes, then starts the edge without the first one. Returns
/// the configuration with both volumes, and the edge.
fn with_the_first_away(disks: &Disks, origin: &Origin) -> (Setup, Edge) {
    let both = disks.setup(origin).cache("placement = \"mirror\"");
    let one = Setup::of_text(both.text().replace("/1.vol", "/sub/1.vol"));
    let edge = start(&both);
    store_four_twice(&edge);
    end(edge, End::Stopped);
    let edge = one.start();
    eventually("one is out, one knows all that it has", || {
        volume(&edge, 1)["state"] == "out" && volume(&edge, 2)["state"] == "up"
    });
    (both, edge)
}

// One of two volumes is missing. The purge is logged on the other one and acknowledged. It holds
// after a restart with both volumes, too.
#[test]
fn one_of_two_volumes_is_enough_to_log_a_purge() {
    let origin = four();
    let disks = Disks::in_memory(2).each("retry = \"1h\"");
    let (both, edge) = with_the_first_away(&disks, &origin);
    purge(&edge, &json!({"tag": "two"}));
    end(edge, End::Killed);
    let edge = start(&both);
    for path in PATHS {
        let hit = is_hit(&get(&edge, path));
        if path.starts_with("/a") {
            assert!(!hit, "{path}");
        }
    }
    without_origin(&origin, "not purged", || assert_hit(&get(&edge, "/b")));
}

// RFC 9111 4.4: an unsafe request invalidates a response while a volume is missing. The response on
// this volume must not be served when the volume comes back.
#[test]
fn an_invalidation_holds_for_a_volume_that_was_missing() {
    let origin = four();
    let disks = Disks::in_memory(2).each("retry = \"1h\"");
    let (both, edge) = with_the_first_away(&disks, &origin);
    assert_eq!(ask(&edge, "POST", "/c", &[]).status, 200);
    end(edge, End::Stopped);
    let edge = start(&both);
    loaded(&edge);
    assert!(!is_hit(&get(&edge, "/c")));
    without_origin(&origin, "on the other one", || {
        assert_hit(&get(&edge, "/b"))
    });
}

// The log of a volume has room for a limited number of purges. Each purge is either acknowledged
// and holds after a restart, or is refused.
#[test]
fn more_purges_than_the_log_holds_are_durable_or_refused() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    let files = File::row(0, 100, 2000);
    let witness = File::new(5000, 2000);
    fill(&edge, &[witness]);
    let mut acknowledged = 0;
    for round in 0..2 {
        fill(&edge, &files);
        let mut client = sluice_lab::client::Client::connect(edge.admin).expect("connected");
        // Purges with long URLs fill the log. Each file is also purged by its own URL.
        for n in 0..900 {
            let order = json!({"url": url(&format!("/none/{n}/{}", "x".repeat(200)))});
            let fields = [("x-sluice", "1")];
            let body = order.to_string();
            let reply = client.request("POST", "/purge", &fields, body.as_bytes());
            let reply = reply.expect("an answer");
            assert!([200, 503].contains(&reply.status), "{}", reply.text());
            acknowledged += u64::from(reply.status == 200);
        }
        let mut purged = Vec::new();
        for file in files.iter().step_by(3) {
            let order = json!({"url": url(&file.path())});
            let reply = ask_purge(&edge, &order);
            match reply.status {
                200 => purged.push(*file),
                status => assert_eq!(status, 503, "{}", reply.text()),
            }
        }
        for file in files.iter().step_by(6) {
            assert!(!is_hit(&file.get(&edge)), "{round} {file:?}: at once");
        }
        purged.retain(|file| file.number % 6 == 3);
        edge.restart(ENDS[round % 2]);
        for file in &purged {
            assert!(!is_hit(&file.get(&edge)), "{round} {file:?}");
        }
    }
    assert!(acknowledged > 1000, "{acknowledged}");
}

// A purge rule is dropped once no object or record older than the rule is left.
#[test]
fn rules_are_dropped_when_nothing_older_is_left() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    fill(&edge, &File::row(0, 50, 20_000));
    for n in 0..20 {
        purge(&edge, &json!({"tag": format!("t{n}")}));
    }
    for round in 0..3_u64 {
        fill(&edge, &File::row(1000 * (round + 1), 100, 150_000));
        edge.restart(ENDS[round as usize % 2]);
    }
    // The program checks whether rules can be dropped when another purge arrives.
    purge(&edge, &json!({"tag": "none"}));
    eventually("they are gone", || edge.cache_state("purges") <= 1);
}

// A purge rule must be kept as long as a segment has an older record, because a restart reads this
// record into the index again.
#[test]
fn a_rule_is_kept_while_a_restart_would_find_what_it_covers() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    // These files fill only a part of the first segment. All other records are newer than the
    // purge.
    let old = File::row(0, 10, 60_000);
    fill(&edge, &old);
    purge(&edge, &json!({"prefix": "/shelf/"}));
    fill(&edge, &File::row(100, 190, 65_000));
    let mut records = number_of(&edge, 1, "records");
    for number in 1000.. {
        File::new(number, 65_000).get(&edge);
        settled(&edge);
        let now = number_of(&edge, 1, "records");
        if now < records {
            break;
        }
        records = now;
    }
    // The oldest segment has been reclaimed. Another purge makes the program check whether rules
    // can be dropped, which shows in `purges`.
    purge(&edge, &json!({"url": url("/none")}));
    let gone = within(Duration::from_secs(3), || edge.cache_state("purges") < 2);
    edge.restart(End::Killed);
    for file in &old {
        let hit = is_hit(&file.get(&edge));
        assert!(!hit, "{file:?} is back, the rule is gone: {gone}");
    }
}

/// Whether the condition becomes true within this time.
fn within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}
