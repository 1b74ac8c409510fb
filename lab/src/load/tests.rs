//! Tests of the load generator with the floor server and the test origin.

use super::*;
use crate::origin::{
    Accept, ConnectionRules, Ending, Fault, Framing, Origin, OriginOptions, Resource,
};
use crate::rivals::{Floor, FloorOptions};

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
    let slow = Resource::bytes("x").delay_head(std::time::Duration::from_millis(20));
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
    let slow = Resource::bytes("x").delay_head(std::time::Duration::from_secs(7));
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

#[test]
fn a_closed_idle_connection_is_not_an_error() {
    let rules = ConnectionRules {
        max_requests_silent: Some(3),
        ..ConnectionRules::default()
    };
    let origin = Origin::start(OriginOptions {
        rules,
        ..OriginOptions::default()
    })
    .expect("a free port");
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
    assert_eq!(errors(|plan| plan.expect_status = 404).status, 5);
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
    let slow = Resource::offset(100).delay_head(std::time::Duration::from_millis(20));
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
