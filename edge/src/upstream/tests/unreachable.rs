//! Tests of servers that accept no connections.

use super::*;
use crate::upstream::lease::Grant;
use crate::upstream::retry::Failed;

// An attempt that began before a server came back may time out long after another one succeeded.
#[test]
fn a_late_failure_to_connect_does_not_undo_a_newer_success() {
    let testing = Testing::new(Options::new(vec![server(refusing())]));
    let server = testing.state.servers()[0].clone();
    server.note_connect(Err(Reason::ConnectTimeout), 10, 10);
    assert!(server.is_unreachable());
    server.note_connect(Ok(()), 20, 20);
    let started = server.summary().starting_since_us;
    for began_us in [11, 19] {
        server.note_connect(Err(Reason::ConnectTimeout), began_us, began_us);
        assert!(!server.is_unreachable());
        assert_eq!(server.connect_attempts().failed_since(11), None);
    }
    server.note_connect(Ok(()), 18, 18);
    server.note_connect(Err(Reason::ConnectTimeout), 19, 19);
    assert!(!server.is_unreachable());
    assert_eq!(server.summary().starting_since_us, started);
    server.note_connect(Err(Reason::ConnectFailed), 20, 20);
    assert!(server.is_unreachable());
}

// No failure precedes the success.
#[test]
fn a_slow_failure_to_connect_does_not_make_a_server_unreachable_that_accepts_connections() {
    let testing = Testing::new(Options::new(vec![server(refusing())]));
    let server = testing.state.servers()[0].clone();
    server.note_connect(Ok(()), 20, 20);
    server.note_connect(Err(Reason::ConnectTimeout), 19, 19);
    assert!(!server.is_unreachable());
}

/// Returns an upstream whose only server has an idle connection and accepts no others.
async fn with_idle_connection(origin: &Origin) -> Testing {
    let testing = origin.upstream();
    assert!(testing.fetch(get("/")).await.is_ok());
    let now_us = testing.clock.monotonic_us();
    // The next probe is not due.
    let pool = &testing.upstream.worker.pool;
    pool.note_connect(0, Err(Reason::ConnectFailed), now_us);
    testing.clock.advance_us(1);
    assert_eq!(
        (testing.idle(), testing.state.servers()[0].is_unreachable()),
        (1, true)
    );
    testing
}

// The queue of a busy server may be full, which says nothing about the connections that it has.
#[test]
fn a_server_that_accepts_no_connections_is_used_over_its_open_ones() {
    run(async {
        let origin = Origin::always(HELLO);
        let testing = with_idle_connection(&origin).await;
        for _ in 0..3 {
            let got = testing.fetch(get("/")).await;
            assert_eq!(got, Ok((200, b"hello".to_vec())));
        }
        assert!(testing.state.servers()[0].is_unreachable());
    });
}

#[test]
fn a_request_that_waits_for_a_probe_gets_a_connection_that_becomes_idle() {
    run(async {
        let origin = Origin::always(HELLO);
        let testing = with_idle_connection(&origin).await;
        let pool = &testing.upstream.worker.pool;
        let (failed, criteria) = (Failed::new(), criteria());
        let Grant::Lease(lease) = pool.take(0, false) else {
            panic!("the connection is idle");
        };
        let mut waiting = Box::pin(pool.acquire(&failed, &criteria));
        assert!(is_waiting(&mut waiting).await);
        pool.give_back(lease, testing.clock.monotonic_us());
        assert!(matches!(waiting.await, Ok(Grant::Lease(_))));
    });
}

// Without a queue, no request waits for an attempt to connect, but each of them begins one.
#[test]
fn a_server_returns_although_no_request_may_wait() {
    run(async {
        let origin = Origin::always(HELLO);
        let mut options = Options::new(vec![origin.server()]);
        options.queue = 0;
        let testing = Testing::new(options);
        let server = testing.state.servers()[0].clone();
        let now_us = testing.clock.monotonic_us();
        server.note_connect(Err(Reason::ConnectFailed), now_us, now_us);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ConnectFailed));
        assert_eq!(testing.counters.upstream_probes.get(), 0);
        testing.clock.advance_us(125_000);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ConnectFailed));
        assert_eq!(testing.counters.upstream_probes.get(), 1);
        while server.is_unreachable() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let got = testing.fetch(get("/")).await;
        assert_eq!(got, Ok((200, b"hello".to_vec())));
    });
}
