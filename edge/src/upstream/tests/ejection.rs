//! Tests of servers that leave the choice and return: ejection, trials, slow start, full servers and
//! backups.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::telemetry::EffectiveState;
use crate::upstream::criteria::Choice;
use crate::upstream::lease::Grant;
use crate::upstream::retry::Failed;

const SECOND: u64 = 1_000_000;
const FAILED: &[u8] = b"HTTP/1.1 500 Failed\r\ncontent-length: 0\r\n\r\n";

/// Starts an origin that responds with 500 while `is_broken`.
fn breakable(is_broken: &Arc<AtomicBool>) -> Origin {
    let is_broken = is_broken.clone();
    Origin::new(move |_, served| {
        while served.request().is_some() {
            let answer = match is_broken.load(Ordering::SeqCst) {
                true => FAILED,
                false => HELLO,
            };
            if !served.send(answer) {
                return;
            }
        }
    })
}

/// Returns the number of requests that each server got since the counts in `before`.
async fn requests(testing: &Testing, count: usize) -> Vec<u64> {
    let before = testing.status();
    for _ in 0..count {
        testing.fetch(get("/")).await.expect("a response");
    }
    let after = testing.status().into_iter().zip(before);
    after
        .map(|(after, before)| after.requests - before.requests)
        .collect()
}

#[test]
fn a_failing_server_is_ejected_and_returns_by_a_single_trial() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let (bad, good) = (breakable(&is_broken), Origin::always(HELLO));
    run(async {
        let testing = Testing::new(Options::new(vec![bad.server(), good.server()]));
        assert_eq!(requests(&testing, 30).await, [5, 25]);
        testing.clock.advance_us(10 * SECOND);
        assert_eq!(requests(&testing, 10).await, [1, 9]);
        testing.clock.advance_us(19 * SECOND);
        assert_eq!(requests(&testing, 10).await, [0, 10]);
        testing.clock.advance_us(SECOND);
        is_broken.store(false, Ordering::SeqCst);
        assert_eq!(requests(&testing, 11).await[0], 6);
    });
}

#[test]
fn never_more_than_a_share_of_the_servers_is_ejected() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let (a, b) = (breakable(&is_broken), breakable(&is_broken));
    run(async {
        let testing = Testing::new(Options::new(vec![a.server(), b.server()]));
        let counts = requests(&testing, 30).await;
        assert!(counts.contains(&5), "{counts:?}");
        // A single server is never ejected.
        let testing = Testing::new(Options::new(vec![a.server()]));
        assert_eq!(requests(&testing, 30).await, [30]);
        let mut options = Options::new(vec![a.server(), b.server()]);
        options.eject = None;
        assert_eq!(requests(&Testing::new(options), 30).await, [15, 15]);
    });
}

#[test]
fn a_request_that_can_not_be_repeated_does_not_test_a_server_at_first() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let (bad, good) = (breakable(&is_broken), Origin::always(HELLO));
    run(async {
        let testing = Testing::new(Options::new(vec![bad.server(), good.server()]));
        requests(&testing, 10).await;
        let tested = || testing.status()[0].requests;
        let before = tested();
        testing.clock.advance_us(10 * SECOND);
        let post = || request(Method::Post, "/", &[]);
        testing.fetch(post()).await.expect("a response");
        assert_eq!(tested(), before);
        // No other request came, so this one is the test.
        testing.clock.advance_us(10 * SECOND);
        testing.fetch(post()).await.expect("a response");
        assert_eq!(tested(), before + 1);
    });
}

#[test]
fn a_trial_of_a_slow_client_does_not_keep_a_server_out_of_use() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let (bad, good) = (breakable(&is_broken), Origin::always(HELLO));
    run(async {
        let testing = Testing::new(Options::new(vec![bad.server(), good.server()]));
        requests(&testing, 30).await;
        is_broken.store(false, Ordering::SeqCst);
        testing.clock.advance_us(10 * SECOND);
        let _slow = trial(&testing).await;
        assert_eq!(requests(&testing, 10).await, [0, 10]);
        testing.clock.advance_us(10 * SECOND);
        assert_eq!(requests(&testing, 11).await[0], 6);
    });
}

/// Ejects a server, and waits until the time of its ejection is over.
fn eject(testing: &Testing, server: usize) {
    let ejected = testing.state.servers()[server].clone();
    let now_us = testing.clock.monotonic_us();
    let condition = ejected.condition();
    assert!(
        condition
            .eject(Duration::from_secs(1), String::new(), now_us)
            .is_some()
    );
    ejected.note_change();
    testing.clock.advance_us(SECOND);
}

/// Chooses the server for a request of a client that sticks to the server with this id, if there is
/// one.
fn choose(testing: &Testing, sticky: Option<u64>) -> Option<usize> {
    let criteria = Criteria {
        sticky,
        ..criteria()
    };
    let pool = &testing.upstream.worker.pool;
    match pool.choose(&Failed::new(), &criteria) {
        Choice::Server(server) => Some(server),
        Choice::Full | Choice::Unreachable | Choice::None => None,
    }
}

#[test]
fn a_client_that_sticks_to_a_server_tests_no_other_one() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let testing = Testing::new(Options::new(vec![a.server(), b.server()]));
        let ids = [0, 1].map(|index: usize| testing.state.servers()[index].sticky_id());
        eject(&testing, 0);
        assert_eq!(choose(&testing, Some(ids[1])), Some(1));
        assert_eq!(choose(&testing, Some(ids[0])), Some(0));
        // While that request tests the server, others go elsewhere.
        assert_eq!(choose(&testing, Some(ids[0])), Some(1));
    });
}

#[test]
fn an_ejected_backup_is_tested_only_while_backups_are_used() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let new = || {
            let (mut only, mut backup) = (a.server(), b.server());
            (only.max_connections, backup.backup) = (Some(1), true);
            let testing = Testing::new(Options::new(vec![only, backup]));
            eject(&testing, 1);
            assert_eq!(choose(&testing, None), Some(0));
            testing
        };
        let testing = new();
        let held = testing.upstream.worker.pool.take(0, false);
        assert_eq!(choose(&testing, None), Some(1), "the other one is full");
        drop(held);
        let testing = new();
        let down = testing.state.servers()[0].clone();
        down.order(Some(Order::Down), None, testing.clock.monotonic_us());
        assert_eq!(choose(&testing, None), Some(1));
        let tested = testing.state.servers()[1].clone();
        let now_us = testing.clock.monotonic_us();
        assert!(!tested.condition().begin_trial(now_us), "it is on trial");
    });
}

#[test]
fn an_ejected_server_whose_health_checks_fail_is_not_tested() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let testing = Testing::new(Options::new(vec![a.server(), b.server()]));
        eject(&testing, 0);
        let ejected = testing.state.servers()[0].clone();
        let set_healthy = |result| {
            let now_us = testing.clock.monotonic_us();
            assert!(ejected.condition().set_healthy(result, now_us));
            ejected.note_change();
        };
        set_healthy(Err("status 500".to_owned()));
        assert_eq!(choose(&testing, None), Some(1));
        set_healthy(Ok(()));
        assert_eq!(choose(&testing, None), Some(0));
    });
}

#[test]
fn a_hedge_goes_to_no_backup_and_to_no_server_out_of_use() {
    let origins = [(); 3].map(|()| Origin::always(HELLO));
    run(async {
        let mut servers: Vec<Server> = origins.iter().map(Origin::server).collect();
        servers[2].backup = true;
        servers[1].max_connections = Some(1);
        let testing = Testing::new(Options::new(servers));
        let (pool, other) = (&testing.upstream.worker.pool, &testing.state.servers()[1]);
        let may_hedge = |late| {
            pool.refresh();
            pool.has_equal(late)
        };
        assert!(may_hedge(0) && may_hedge(2));
        let held = pool.take(1, false);
        assert!(!may_hedge(0), "the other server is full");
        drop(held);
        assert!(may_hedge(0));
        let now_us = testing.clock.monotonic_us();
        for order in [Order::Drain, Order::Down] {
            other.order(Some(order), None, now_us);
            assert!(!may_hedge(0));
            other.order(Some(Order::Up), None, now_us);
            assert!(may_hedge(0));
        }
        other.note_connect(Err(Reason::ConnectFailed), now_us, now_us);
        assert!(!may_hedge(0));
        other.note_connect(Ok(()), now_us + 1, now_us + 1);
        assert!(may_hedge(0));
        eject(&testing, 1);
        assert!(!may_hedge(0) && may_hedge(2));
    });
}

/// Begins a request that tests the first server.
async fn trial(testing: &Testing) -> Grant {
    let (failed, criteria) = (Failed::new(), criteria());
    let pool = &testing.upstream.worker.pool;
    let granted = pool.acquire(&failed, &criteria).await;
    granted.unwrap_or_else(|fault| panic!("{fault:?}"))
}

#[test]
fn a_trial_that_began_before_a_reload_keeps_no_server_out_of_use() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let (bad, good) = (breakable(&is_broken), Origin::always(HELLO));
    run(async {
        let mut options = Options::new(vec![bad.server(), good.server()]);
        let testing = Testing::new(options.clone());
        requests(&testing, 30).await;
        is_broken.store(false, Ordering::SeqCst);
        testing.clock.advance_us(10 * SECOND);
        let slow = trial(&testing).await;
        options.via = false;
        let reloaded = Testing::after(options, Some(&testing));
        assert_eq!(requests(&reloaded, 10).await, [0, 10]);
        drop(slow);
        assert_eq!(requests(&reloaded, 11).await[0], 6);
    });
}

#[test]
fn a_drained_server_gets_no_retries() {
    let failed = Origin::always(FAILED);
    run(async {
        let mut options = Options::new(vec![failed.server(), server(refusing())]);
        options.retry.on.statuses.push(500..=500);
        options.sticky = Some(Sticky {
            cookie: "server".to_owned(),
            max_age: None,
        });
        let testing = Testing::new(options);
        let drained = testing.state.servers()[1].clone();
        drained.order(Some(Order::Drain), None, testing.clock.monotonic_us());
        // The server's own response is passed on, since no further try is permitted.
        assert_eq!(testing.fetch(get("/")).await, Ok((500, Vec::new())));
        assert_eq!(testing.counters.upstream_retries.get(), 0);
    });
}

#[test]
fn a_response_is_passed_on_if_the_other_server_is_full_or_unhealthy() {
    let (failed, good) = (Origin::always(FAILED), Origin::always(HELLO));
    run(async {
        let mut servers = vec![failed.server(), good.server()];
        servers[1].max_connections = Some(1);
        let mut options = Options::new(servers);
        options.retry.on.statuses.push(500..=500);
        let testing = Testing::new(options);
        testing.record_choices(&Recorded::default());
        let (own, replaced) = (Ok((500, Vec::new())), Ok((200, b"hello".to_vec())));
        testing.upstream.worker.pool.refresh();
        let held = testing.upstream.worker.pool.take(1, false);
        assert_eq!(testing.fetch(get("/")).await, own);
        drop(held);
        assert_eq!(testing.fetch(get("/")).await, replaced);
        let (other, now_us) = (&testing.state.servers()[1], testing.clock.monotonic_us());
        let unhealthy = Err("status 500".to_owned());
        assert!(other.condition().set_healthy(unhealthy, now_us));
        other.note_change();
        assert_eq!(testing.fetch(get("/")).await, own);
    });
}

/// Has a server close the connection on which it sends a body, `hold_us` after the client took the
/// first part.
fn outcomes_of_a_cut_body(hold_us: u64) -> Vec<Outcome> {
    let (close, closed) = channel::<()>();
    let closed = std::sync::Mutex::new(closed);
    let origin = Origin::new(move |_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        // Receiving fails when the test has dropped the sender.
        let _ = closed.lock().map(|closed| closed.recv());
    });
    let record = Recorded::default();
    run(async {
        let testing = Testing::new(Options::new(vec![origin.server(), server(refusing())]));
        testing.record_choices(&record);
        let mut response = testing.ask(get("/")).await.expect("a response");
        assert!(matches!(response.body.frame().await, Some(Ok(_))));
        testing.clock.advance_us(hold_us);
        drop(close);
        assert_eq!(content(&mut response.body).await, Err(Reason::BodyCut));
    });
    record.outcomes.take()
}

#[test]
fn a_server_that_gives_a_slow_client_up_has_not_failed() {
    assert_eq!(outcomes_of_a_cut_body(SECOND - 1), [Outcome::Broken]);
    let outcomes = outcomes_of_a_cut_body(SECOND);
    assert!(
        matches!(outcomes[..], [Outcome::Answered { status: 200, .. }]),
        "{outcomes:?}"
    );
}

/// Has a server close the connection on which it gets a body, `hold_us` after the first part.
fn outcomes_of_a_cut_upload(hold_us: u64) -> Vec<Outcome> {
    let (close, closed) = channel::<()>();
    let closed = std::sync::Mutex::new(closed);
    let origin = Origin::new(move |_, served| {
        served.request();
        served.read(b"4\r\npart\r\n".len());
        // Receiving fails when the test has dropped the sender.
        let _ = closed.lock().map(|closed| closed.recv());
    });
    let record = Recorded::default();
    run(async {
        let testing = Testing::new(Options::new(vec![origin.server(), server(refusing())]));
        testing.record_choices(&record);
        let fed = Fed::default();
        fed.data(b"part");
        let mut asked = Box::pin(testing.ask(post(Body::stream(fed.clone()))));
        while testing.status()[0].requests == 0 {
            assert!(is_waiting(&mut asked).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        testing.clock.advance_us(hold_us);
        drop(close);
        assert_eq!(asked.await.map(|_| ()), Err(Reason::SendFailed));
    });
    record.outcomes.take()
}

#[test]
fn a_server_that_gives_a_slow_upload_up_has_not_failed() {
    assert_eq!(outcomes_of_a_cut_upload(SECOND - 1), [Outcome::Broken]);
    assert_eq!(outcomes_of_a_cut_upload(SECOND), [Outcome::Cancelled]);
}

#[test]
fn a_server_that_continues_a_body_is_not_charged_with_the_time_before() {
    const TAG: &str = "ETag: \"a\"\r\n";
    let (close, closed) = channel::<()>();
    let closed = std::sync::Mutex::new(closed);
    let slow = Origin::new(move |_, served| {
        served.request();
        let head = format!("HTTP/1.1 200 OK\r\n{TAG}Content-Length: 10\r\n\r\nhello");
        served.send(head.as_bytes());
        // Receiving fails when the test has dropped the sender.
        let _ = closed.lock().map(|closed| closed.recv());
    });
    let fast = Origin::once(format!(
        "HTTP/1.1 206 Part\r\n{TAG}Content-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\nworld"
    ));
    let record = Recorded::default();
    run(async {
        let mut options = Options::new(vec![slow.server(), fast.server()]);
        options.retry.total = Duration::from_secs(3600);
        let testing = Testing::new(options);
        testing.record_choices(&record);
        let mut response = testing.ask(get("/")).await.expect("a response");
        assert!(matches!(response.body.frame().await, Some(Ok(_))));
        let mut rest = Box::pin(content(&mut response.body));
        assert!(is_waiting(&mut rest).await);
        testing.clock.advance_us(30 * SECOND);
        drop(close);
        assert_eq!(rest.await.as_deref(), Ok(&b"world"[..]));
    });
    let outcomes = record.outcomes.take();
    let end = |outcome: &Outcome| match outcome {
        Outcome::Answered { total_us, .. } => *total_us,
        _ => None,
    };
    assert_eq!(outcomes[0], Outcome::Broken);
    assert_eq!(
        outcomes.iter().map(end).collect::<Vec<_>>(),
        [None, Some(0)]
    );
}

#[test]
fn a_server_that_was_ejected_returns_after_ejection_is_turned_off() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let mut options = Options::new(vec![a.server(), b.server()]);
        let testing = Testing::new(options.clone());
        options.eject = None;
        let reloaded = Testing::after(options, Some(&testing));
        // An exchange that began before the reload fails.
        let first = testing.state.servers()[0].clone();
        let now_us = testing.clock.monotonic_us();
        first
            .condition()
            .eject(Duration::from_secs(1), String::new(), now_us);
        first.note_change();
        assert_eq!(requests(&reloaded, 10).await, [0, 10]);
        testing.clock.advance_us(SECOND);
        assert_eq!(requests(&reloaded, 11).await[0], 6);
    });
}

#[test]
fn a_backup_is_used_while_the_other_servers_are_full() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let (mut only, mut backup) = (a.server(), b.server());
        (only.max_connections, backup.backup) = (Some(1), true);
        let testing = Testing::new(Options::new(vec![only, backup]));
        assert_eq!(requests(&testing, 4).await, [4, 0]);
        let held = testing.upstream.worker.pool.take(0, false);
        assert_eq!(requests(&testing, 4).await, [0, 4]);
        drop(held);
        assert_eq!(requests(&testing, 4).await, [4, 0]);
    });
}

#[test]
fn the_share_of_a_server_that_returns_grows() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let mut options = Options::new(vec![a.server(), b.server()]);
        options.slow_start = Duration::from_secs(20);
        let testing = Testing::new(options);
        assert_eq!(requests(&testing, 10).await, [5, 5]);
        let first = testing.state.servers()[0].clone();
        let set_healthy = |result| {
            let now_us = testing.clock.monotonic_us();
            assert!(first.condition().set_healthy(result, now_us));
            first.note_change();
        };
        set_healthy(Err("status 500".to_owned()));
        assert_eq!(requests(&testing, 10).await, [0, 10]);
        set_healthy(Ok(()));
        assert_eq!(requests(&testing, 110).await, [10, 100]);
        testing.clock.advance_us(10 * SECOND);
        assert_eq!(requests(&testing, 150).await, [50, 100]);
        testing.clock.advance_us(10 * SECOND);
        assert_eq!(requests(&testing, 10).await, [5, 5]);
    });
}

// A missing port or address of this machine says nothing about the servers.
#[test]
fn servers_do_not_get_the_blame_for_a_missing_local_address() {
    run(async {
        let origins = [Origin::always(HELLO), Origin::always(HELLO)];
        let mut options = Options::new(origins.iter().map(Origin::server).collect());
        options.tcp.bind = Some([192, 0, 2, 1].into());
        let testing = Testing::new(options);
        for _ in 0..20 {
            assert_eq!(testing.fetch(get("/")).await, Err(Reason::NoLocalPort));
        }
        // Another server was tried each time: it may have ports left.
        assert_eq!(testing.counters.upstream_failures.get(), 40);
        for server in testing.state.servers() {
            assert_eq!(
                (server.numbers().failures, server.effective_state()),
                (0, EffectiveState::Up)
            );
        }
    });
}
