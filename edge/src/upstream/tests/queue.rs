//! Tests of requests that wait for a connection while servers leave the choice.

use super::*;
use crate::upstream::hedge_budget::HedgeOptions;
use crate::upstream::lease::Grant;
use crate::upstream::retry::Failed;

/// A server that accepts one connection and then refuses all others. Dropping the sender closes the
/// connection.
fn accepting_once() -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (close, closed) = channel();
    std::thread::spawn(move || {
        let accepted = listener.accept().expect("a connection");
        drop(listener);
        // Receiving fails when the test has dropped the sender.
        let _ = closed.recv();
        drop(accepted);
    });
    (address, close)
}

/// Returns two servers with one connection each, both in use.
fn two_full_servers() -> (Testing, Vec<Grant>) {
    // No connection is opened.
    let servers = [1, 2].map(|last| server(([192, 0, 2, last], 80).into()));
    let mut options = Options::new(servers.into());
    options.max_connections = 1;
    let testing = Testing::new(options);
    testing.upstream.worker.pool.refresh();
    let held = [0, 1].map(|server| testing.upstream.worker.pool.take(server, false));
    (testing, held.into())
}

#[test]
fn waiting_requests_share_the_attempts_to_connect_to_a_server_that_went_down() {
    run(async {
        let (address, close) = accepting_once();
        let mut options = Options::new(vec![server(address), server(refusing())]);
        options.max_connections = 1;
        let testing = Testing::new(options);
        let unused = testing.state.servers()[1].clone();
        unused.order(Some(Order::Down), None, testing.clock.monotonic_us());
        let record = Recorded::default();
        testing.record_choices(&record);
        let mut first = testing.start(get("/")).response;
        while testing.status()[0].requests == 0 {
            assert!(is_waiting(&mut first).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let waiting = (0..20).map(|_| tokio::task::spawn_local(testing.start(get("/")).response));
        let waiting: Vec<_> = waiting.collect();
        while testing.upstream.worker.pool.waiting() < 20 {
            tokio::task::yield_now().await;
        }
        drop(close);
        assert!(first.await.is_err());
        let clock = testing.clock.clone();
        let ticking = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                clock.advance_us(1000);
            }
        });
        for waiting in waiting {
            let got = waiting.await.expect("no panic");
            let reason = got.map(|_| ()).map_err(|fault| fault.reason);
            assert_eq!(reason, Err(Reason::ConnectFailed));
        }
        ticking.abort();
        let attempts = record.outcomes.borrow().len();
        assert!(attempts < 10, "{attempts}");
    });
}

#[test]
fn a_server_that_is_ejected_gets_no_waiting_requests() {
    run(async {
        let (testing, mut held) = two_full_servers();
        let pool = &testing.upstream.worker.pool;
        let (failed, criteria) = (Failed::new(), criteria());
        let mut waiting = Box::pin(pool.acquire(&failed, &criteria));
        assert!(is_waiting(&mut waiting).await);
        let second = testing.state.servers()[1].clone();
        let now_us = testing.clock.monotonic_us();
        second
            .condition()
            .eject(Duration::from_secs(60), String::new(), now_us);
        second.note_change();
        drop(held.pop());
        pool.refresh();
        assert!(is_waiting(&mut waiting).await);
        drop(held.pop());
        assert!(matches!(waiting.await, Ok(Grant::Opening(opening)) if opening.server() == 0));
    });
}

#[test]
fn requests_do_not_wait_for_servers_that_an_operator_took_down() {
    run(async {
        let (testing, _held) = two_full_servers();
        let pool = &testing.upstream.worker.pool;
        let (failed, criteria) = (Failed::new(), criteria());
        let mut waiting = Box::pin(pool.acquire(&failed, &criteria));
        assert!(is_waiting(&mut waiting).await);
        for server in testing.state.servers() {
            server.order(Some(Order::Down), None, testing.clock.monotonic_us());
        }
        pool.refresh();
        let reason = waiting.await.map(|_| ()).map_err(|fault| fault.reason);
        assert_eq!(reason, Err(Reason::NoServer));
    });
}

// An unreachable server takes requests of all clients into one room, in which each has a share.
#[test]
fn one_client_does_not_take_all_the_room_for_requests_that_wait_for_a_probe() {
    run(async {
        let mut options = Options::new(vec![server(refusing())]);
        options.queue = 2;
        let testing = Testing::new(options);
        let pool = &testing.upstream.worker.pool;
        pool.refresh();
        let now_us = testing.clock.monotonic_us();
        // The next probe is not due.
        pool.note_connect(0, Err(Reason::ConnectFailed), now_us - 1);
        let failed = Failed::new();
        let [one, other] = [7, 8].map(|last| Criteria {
            client: ClientId::of([192, 0, 2, last].into()),
            ..criteria()
        });
        let mut first = Box::pin(pool.acquire(&failed, &one));
        assert!(is_waiting(&mut first).await);
        let second = pool.acquire(&failed, &one).await;
        assert!(matches!(
            second,
            Ok(Grant::Refused(0, Reason::ConnectFailed))
        ));
        let mut others = Box::pin(pool.acquire(&failed, &other));
        assert!(is_waiting(&mut others).await);
    });
}

// The wait for a connection is no part of the time after which a response is late.
#[test]
fn a_fetch_that_waited_for_a_connection_is_hedged_when_its_server_is_late() {
    run(async {
        let late = Origin::new(|_, served| {
            while served.request().is_some_and(|head| !head.contains("/late")) && served.send(HELLO)
            {
            }
            served.await_close();
        });
        let other = Origin::always(HELLO);
        let mut options = Options::new(vec![late.server(), other.server()]);
        options.max_connections = 1;
        options.hedge = Some(HedgeOptions {
            after: 0.95,
            at_most: 1.0,
            max_size: 1 << 20,
        });
        let testing = Testing::new(options);
        testing.record_choices(&Recorded::default());
        let shared = |target| {
            let mut request = get(target);
            request.peer.shared = true;
            request
        };
        // Only requests for several clients are hedged.
        assert!(testing.fetch(get("/")).await.is_ok());
        // The worker knows which responses are late: nearly all.
        let hedges = testing.upstream.worker.hedges.as_ref();
        (0..40).for_each(|_| hedges.expect("it is configured").note(1));
        let requests = |server: usize| testing.status()[server].requests;
        let (sent, hedged) = (requests(0), testing.counters.upstream_hedges.get());
        let pool = &testing.upstream.worker.pool;
        let [first, second] = [0, 1].map(|server| pool.take(server, false));
        let mut waiting = testing.start(shared("/late")).response;
        assert!(is_waiting(&mut waiting).await);
        // Far longer than the other responses took on this clock, which stands still.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(is_waiting(&mut waiting).await);
        drop(first);
        while requests(0) == sent {
            assert!(is_waiting(&mut waiting).await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(second);
        assert!(waiting.await.is_ok());
        assert_eq!(testing.counters.upstream_hedges.get(), hedged + 1);
        assert_eq!(requests(1), hedged + 1);
    });
}
