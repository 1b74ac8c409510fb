//! Tests of the load generator with the floor server and the test origin.

mod connections;
mod ends;
mod responses;
mod timing;

use std::time::{Duration, Instant};

use super::*;
use crate::origin::{
    Accept, ConnectionRules, Ending, Fault, Framing, Origin, OriginOptions, Resource,
};
use crate::rivals::{Floor, FloorOptions};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs measurements until one of them is good, because other programs may delay any of them.
fn one_of_many(mut is_good: impl FnMut() -> Result<(), String>) {
    let until = Instant::now() + PATIENCE;
    while let Err(found) = is_good() {
        assert!(Instant::now() < until, "{found}");
    }
}

fn floor(body: u64) -> Floor {
    Floor::start(FloorOptions::new(body)).expect("a free port")
}

fn plan(target: SocketAddr, path: &str, connections: usize, requests: u64) -> LoadPlan {
    LoadPlan {
        connections,
        requests: Some(requests),
        timeout_seconds: 20.0,
        ..LoadPlan::new(target, path)
    }
}

#[test]
fn a_closed_loop_counts_requests_and_bytes() {
    let floor = floor(5000);
    let result = run(LoadPlan {
        expect_length: Some(5000),
        ..plan(floor.addr(), "/", 16, 2000)
    })
    .expect("a result");
    assert_eq!((result.requests, result.bytes), (2000, 10_000_000));
    assert_eq!(result.errors, Errors::default());
    assert_eq!(result.connects, 16);
    assert!(result.latency.p50_us > 0.0 && result.latency.p50_us <= result.latency.max_us);
    assert!(result.per_connection.0 > 0);
}

#[test]
fn large_bodies_are_verified_or_dropped() {
    let floor = floor(1 << 20);
    for verify in [true, false] {
        let result = run(LoadPlan {
            verify,
            expect_length: Some(1 << 20),
            ..plan(floor.addr(), "/", 4, 40)
        })
        .expect("a result");
        assert_eq!((result.requests, result.bytes), (40, 40 << 20));
    }
}

#[test]
fn one_connection_per_request_comes_from_many_addresses() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let result = run(LoadPlan {
        keepalive: false,
        sources: 5,
        ..plan(origin.addr(), "/offset/100", 4, 50)
    })
    .expect("a result");
    assert_eq!((result.requests, result.connects), (50, 50));
    let mut sources: Vec<_> = origin
        .connections()
        .iter()
        .map(|one| one.peer.ip())
        .collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), 5);
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_the_schedule() {
    let floor = floor(100);
    let result = run(LoadPlan {
        rate: Some(2000.0),
        ..plan(floor.addr(), "/", 8, 400)
    })
    .expect("a result");
    assert_eq!(result.requests, 400);
    assert!(result.seconds >= 0.199, "{} s", result.seconds);

    // One connection, 20 ms per response and a request due each millisecond: the last request waits until all others
    // are complete.
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let slow = Resource::bytes("x").delay_head(Duration::from_millis(20));
    origin.serve("/slow", slow);
    let result = run(LoadPlan {
        rate: Some(1000.0),
        ..plan(origin.addr(), "/slow", 1, 10)
    })
    .expect("a result");
    assert!(result.latency.max_us >= 190_000.0, "{:?}", result.latency);
}

#[test]
fn paths_are_used_in_turn() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let result = run(LoadPlan {
        paths: vec!["/offset/1".to_owned(), "/offset/20".to_owned()],
        ..plan(origin.addr(), "/", 1, 10)
    })
    .expect("a result");
    assert_eq!((result.requests, result.bytes), (10, 105));
    assert_eq!(origin.read_record(|record| record.count("/offset/20")), 5);
}

#[test]
fn numbers_are_used_in_turn_and_slow_responses_and_statuses_are_counted() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    // Slower than a response on a machine that pauses.
    let slow = Resource::bytes("x").delay_head(Duration::from_secs(7));
    origin.serve("/8", slow);
    origin.serve("/9", Resource::status(503));
    origin.serve_rest(Resource::bytes("x"));
    let result = run(LoadPlan {
        numbers: Some((7, 3)),
        slow_us: Some(6_500_000),
        ..plan(origin.addr(), "/{n}", 1, 6)
    })
    .expect("a result");
    let requested: Vec<String> = origin
        .requests()
        .iter()
        .map(|seen| seen.path().to_owned())
        .collect();
    assert_eq!(requested, ["/7", "/8", "/9", "/7", "/8", "/9"]);
    assert_eq!(
        (result.requests, result.slow, result.errors.status),
        (4, 2, 2)
    );
    assert_eq!(result.statuses, [(200, 4), (503, 2)].into());
}

/// Starts an origin that closes each connection after three responses, without announcing it.
fn closing_after_three() -> Origin {
    let rules = ConnectionRules {
        max_requests_silent: Some(3),
        ..ConnectionRules::default()
    };
    Origin::start(OriginOptions {
        rules,
        ..OriginOptions::default()
    })
    .expect("a free port")
}

#[test]
fn a_closed_idle_connection_is_not_an_error() {
    let origin = closing_after_three();
    let result = run(plan(origin.addr(), "/offset/10", 1, 30)).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (30, 0));
    assert!(result.connects >= 10);
}

#[test]
fn errors_are_counted_by_cause() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let cut = Fault::CutBody {
        after: 50,
        ending: Ending::Fin,
    };
    origin.serve("/x", Resource::offset(1000).fault_times(2, cut));
    let result = run(plan(origin.addr(), "/x", 1, 5)).expect("a result");
    assert_eq!((result.requests, result.errors.closed), (3, 2));

    let errors = |change: fn(&mut LoadPlan)| {
        let mut plan = plan(origin.addr(), "/x", 1, 5);
        change(&mut plan);
        run(plan).expect("a result").errors
    };
    assert_eq!(errors(|plan| plan.expect_status = Some(404)).status, 5);
    assert_eq!(errors(|plan| plan.expect_length = Some(7)).length, 5);
    origin.serve("/x", Resource::offset(1000).version(1));
    assert_eq!(errors(|plan| plan.verify = true).content, 5);
    origin.serve("/x", Resource::offset(9).fault(Fault::NeverAnswer));
    let timeouts = errors(|plan| {
        plan.requests = Some(1);
        plan.timeout_seconds = 0.05;
    });
    assert_eq!(timeouts.timeout, 1);
}

#[test]
fn a_load_with_only_errors_is_aborted() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.set_rules(|rules| rules.accept = Accept::End(Ending::Reset));
    let error = run(plan(origin.addr(), "/x", 4, 1_000_000)).expect_err("nothing but resets");
    assert!(error.to_string().contains("consecutive errors"));
    let plan = LoadPlan {
        consecutive_errors_max: None,
        ..plan(origin.addr(), "/x", 4, 1500)
    };
    let result = run(plan).expect("errors are only counted");
    assert_eq!((result.requests, result.errors.total()), (0, 1500));
}

#[test]
fn chunked_bodies_are_read_and_verified() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let resource = Resource::offset(20_000).framing(Framing::Chunked(3000));
    origin.serve("/chunked", resource);
    for verify in [true, false] {
        let result = run(LoadPlan {
            verify,
            expect_length: Some(20_000),
            ..plan(origin.addr(), "/chunked", 4, 100)
        })
        .expect("a result");
        assert_eq!((result.requests, result.bytes), (100, 2_000_000));
        assert_eq!((result.errors.total(), result.connects), (0, 4));
    }
    let result = run(LoadPlan {
        expect_length: Some(19_999),
        ..plan(origin.addr(), "/chunked", 1, 5)
    })
    .expect("a result");
    assert_eq!((result.requests, result.errors.length), (0, 5));
}

#[test]
fn a_rising_load_ends_when_the_server_is_saturated() {
    let floor = floor(100);
    let rising = LoadPlan {
        rate: Some(100.0),
        rising_to: Some(900.0),
        seconds: Some(1.0),
        window_seconds: Some(0.25),
        ..LoadPlan::new(floor.addr(), "/")
    };
    let result = run(LoadPlan {
        connections: 8,
        ..rising.clone()
    })
    .expect("a result");
    assert_eq!((result.requests, result.errors.total()), (500, 0));
    let offered: Vec<u64> = result.windows.iter().map(|one| one.offered).collect();
    assert_eq!(offered, [50, 100, 150, 200]);
    assert!(result.windows.iter().all(|one| one.answered == one.offered));

    // One connection and 20 ms per response: half of the requests due in the first window are late.
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let slow = Resource::offset(100).delay_head(Duration::from_millis(20));
    origin.serve_rest(slow);
    let result = run(LoadPlan {
        target: origin.addr(),
        seconds: Some(20.0),
        saturated_us: Some(10_000.0),
        ..rising
    })
    .expect("a result");
    assert!(result.windows.len() < 80, "it ended early: {result:?}");
    assert!(result.windows.len() >= 2, "{result:?}");
}

fn http2_plan(target: SocketAddr, path: &str, connections: usize, requests: u64) -> LoadPlan {
    LoadPlan {
        streams: Some(4),
        ..plan(target, path, connections, requests)
    }
}

#[test]
fn http2_counts_requests_and_bytes_and_verifies_bodies() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let result = run(LoadPlan {
        verify: true,
        expect_length: Some(100_000),
        ..http2_plan(origin.addr(), "/offset/100000", 3, 300)
    })
    .expect("a result");
    assert_eq!((result.requests, result.bytes), (300, 30_000_000));
    assert_eq!((result.errors.total(), result.connects), (0, 3));
    assert!(origin.requests().iter().all(|one| one.stream.is_some()));
    let ranges = run(LoadPlan {
        choice: Choice::Ranges { size: 1000 },
        verify: true,
        headers: vec![("Accept".to_owned(), "x/y".to_owned())],
        ..http2_plan(origin.addr(), "/offset/100000", 1, 200)
    })
    .expect("a result");
    assert_eq!(ranges.statuses, [(206, 200)].into(), "{ranges:?}");
    let begins: std::collections::BTreeSet<_> = origin
        .requests()
        .iter()
        .filter(|one| one.header("accept") == Some("x/y"))
        .filter_map(|one| one.header("range").map(str::to_owned))
        .collect();
    assert!(begins.len() > 50, "{begins:?}");
}

#[test]
fn http2_streams_are_concurrent_up_to_the_servers_limit() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let slow = Resource::bytes("x").delay_head(Duration::from_millis(500));
    origin.serve("/slow", slow);
    // One after the other they take 10 s, four at a time 2.5 s.
    let result = run(http2_plan(origin.addr(), "/slow", 1, 20)).expect("a result");
    assert_eq!((result.requests, result.connects), (20, 1));
    assert!((2.5..9.5).contains(&result.seconds), "{} s", result.seconds);

    origin.set_rules(|rules| rules.max_streams = 1);
    let result = run(http2_plan(origin.addr(), "/slow", 1, 4)).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (4, 0));
    assert!(result.seconds >= 2.0, "{} s", result.seconds);
}

#[test]
fn http2_errors_are_counted_by_cause() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let cut = Fault::CutBody {
        after: 50,
        ending: Ending::Fin,
    };
    origin.serve("/cut", Resource::offset(1000).fault_times(2, cut));
    let errors = |change: fn(&mut LoadPlan)| {
        let mut plan = http2_plan(origin.addr(), "/x", 1, 6);
        change(&mut plan);
        run(plan).expect("a result").errors
    };
    origin.serve("/x", Resource::offset(1000).version(1));
    assert_eq!(errors(|plan| plan.expect_status = Some(404)).status, 6);
    assert_eq!(errors(|plan| plan.expect_length = Some(7)).length, 6);
    assert_eq!(errors(|plan| plan.verify = true).content, 6);
    let closed = errors(|plan| {
        plan.paths = vec!["/cut".to_owned()];
        plan.streams = Some(1);
    });
    assert_eq!(closed.closed, 2, "{closed:?}");
    origin.serve("/x", Resource::offset(9).fault(Fault::NeverAnswer));
    let timeouts = errors(|plan| {
        plan.requests = Some(4);
        plan.timeout_seconds = 0.1;
    });
    assert_eq!(timeouts.timeout, 4);
    let floor = floor(100);
    let malformed = run(http2_plan(floor.addr(), "/", 1, 4)).expect("a result");
    let errors = malformed.errors;
    assert_eq!((malformed.requests, errors.total()), (0, 4), "{errors:?}");
}

#[test]
fn http2_may_use_a_connection_for_each_request() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let result = run(LoadPlan {
        keepalive: false,
        streams: Some(1),
        sources: 5,
        ..plan(origin.addr(), "/offset/100", 4, 50)
    })
    .expect("a result");
    assert_eq!((result.requests, result.connects), (50, 50));
}

#[test]
fn http2_open_loops_count_from_the_schedule_and_end_with_rules_of_the_server() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let slow = Resource::bytes("x").delay_head(Duration::from_millis(20));
    origin.serve("/slow", slow);
    let result = run(LoadPlan {
        rate: Some(1000.0),
        streams: Some(1),
        ..plan(origin.addr(), "/slow", 1, 10)
    })
    .expect("a result");
    assert!(result.latency.max_us >= 190_000.0, "{:?}", result.latency);

    origin.set_rules(|rules| rules.max_requests = Some(7));
    let result = run(http2_plan(origin.addr(), "/offset/9", 2, 100)).expect("a result");
    assert_eq!((result.requests, result.errors.total()), (100, 0));
    assert!(result.connects >= 10, "{}", result.connects);
}

#[test]
fn refused_connections_are_tried_ten_times_per_second() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.refuse().expect("the listener stops");
    for streams in [None, Some(1)] {
        let result = run(LoadPlan {
            streams,
            seconds: Some(0.55),
            requests: None,
            consecutive_errors_max: None,
            ..plan(origin.addr(), "/", 2, 1)
        })
        .expect("a result");
        let tries = result.errors.connect;
        assert!((2..=14).contains(&tries), "{tries} of {:?}", result.errors);
        assert_eq!(tries, result.errors.total());
    }
    // Of the requests of an open loop, those for which no connection is free in time count as late.
    let result = run(LoadPlan {
        rate: Some(1000.0),
        timeout_seconds: 0.2,
        consecutive_errors_max: None,
        ..plan(origin.addr(), "/", 2, 500)
    })
    .expect("a result");
    let errors = result.errors;
    assert_eq!(errors.connect + errors.timeout, 500, "{errors:?}");
    assert!(errors.timeout > 400, "{errors:?}");
}

/// Answers one connection after another with these bytes, and closes the connection then.
fn answers(bytes: &'static [u8], count: usize) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().take(count).flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

#[test]
fn bodies_may_end_with_the_connection_and_follow_interim_heads() {
    let old = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nbody";
    let result = run(plan(answers(old, 5), "/", 1, 5)).expect("a result");
    assert_eq!((result.requests, result.bytes), (5, 20), "{result:?}");
    let result = run(LoadPlan {
        expect_length: Some(5),
        ..plan(answers(old, 2), "/", 1, 2)
    })
    .expect("a result");
    assert_eq!(result.errors.length, 2);
}

#[test]
fn failed_handshakes_are_counted() {
    use crate::certificates::Authority;
    use crate::front::{self, TlsFront};
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let pair = Authority::new("one").server(&["127.0.0.1"]);
    let config = front::config(&pair, None);
    let front = TlsFront::start(origin.addr(), config.clone()).expect("a free port");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), Authority::new("two").pem()).expect("a temporary file");
    let tls = |authority: &std::path::Path| LoadTls {
        authority: authority.to_owned(),
        name: "127.0.0.1".to_owned(),
        group: None,
        resumed: false,
    };
    let load = |streams, authority: &std::path::Path, front: &TlsFront| {
        run(LoadPlan {
            streams,
            tls: Some(tls(authority)),
            ..plan(front.address(), "/offset/5", 1, 3)
        })
        .expect("a result")
    };
    let anything = std::path::Path::new("");
    // Another authority, and a server without HTTP/2.
    for (streams, authority) in [
        (None, file.path()),
        (Some(1), file.path()),
        (Some(1), anything),
    ] {
        let result = load(streams, authority, &front);
        let errors = result.errors;
        assert_eq!((result.requests, errors.tls, errors.total()), (0, 3, 3));
    }
    assert_eq!(load(None, anything, &front).requests, 3);
    let front = TlsFront::start(origin.addr(), front::with_http2(&config)).expect("a free port");
    assert_eq!(load(Some(2), anything, &front).requests, 3);
    assert!(
        origin
            .requests()
            .last()
            .is_some_and(|one| one.stream.is_some())
    );
}

#[test]
fn errors_are_listed_by_kind() {
    let mut errors = Errors::default();
    assert_eq!((errors.to_string(), errors.total()), ("none".to_owned(), 0));
    (errors.timeout, errors.closed) = (1, 20);
    let listed = "closed: 20, timeout: 1".to_owned();
    assert_eq!((errors.to_string(), errors.total()), (listed, 21));
}
