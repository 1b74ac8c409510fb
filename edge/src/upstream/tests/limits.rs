//! Tests of timeouts, limits, the queue, and servers that cannot be reached.

use super::*;

/// A timeout that is not reached even if the machine pauses for some seconds, and a longer time.
const TIMEOUT: Duration = Duration::from_secs(7);
const LONGER: Duration = Duration::from_millis(7500);

fn silent() -> Origin {
    Origin::new(|_, served| {
        served.request();
        served.await_close();
    })
}

#[test]
fn a_silent_origin_times_out() {
    let origin = silent();
    let mut options = Options::new(vec![origin.server()]);
    options.read_timeout = Duration::from_millis(20);
    let testing = Testing::new(options);
    assert_eq!(run(testing.fetch(get("/"))), Err(Reason::HeadTimeout));
    assert_eq!(testing.counters.upstream_busy_now.get(), 0);
}

#[test]
fn a_silent_origin_times_out_after_an_upload_with_trailers() {
    let origin = silent();
    let mut options = Options::new(vec![origin.server()]);
    options.read_timeout = Duration::from_millis(20);
    let testing = Testing::new(options);
    let fed = Fed::default();
    fed.data(b"content");
    let mut trailers = crate::http::Fields::new();
    trailers.append("x-digest", "1");
    fed.feed(Some(Ok(Frame::Trailers(trailers))));
    let got = run(testing.fetch(post(Body::stream(fed))));
    assert_eq!(got, Err(Reason::HeadTimeout));
}

#[test]
fn after_an_early_head_a_slow_upload_is_not_the_origins_delay() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        served.read(b"4\r\nslow\r\n0\r\n\r\n".len());
        served.send(b"hello");
    });
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.read_timeout = TIMEOUT;
        let testing = Testing::new(options);
        let fed = Fed::default();
        let feeding = async {
            tokio::time::sleep(LONGER).await;
            fed.data(b"slow");
            tokio::time::sleep(LONGER).await;
            fed.feed(None);
        };
        let asked = testing.fetch(post(Body::stream(fed.clone())));
        let (got, ()) = tokio::join!(asked, feeding);
        assert_eq!(got, Ok((200, b"hello".to_vec())));
    });
}

#[test]
fn a_body_that_stalls_times_out() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        served.await_close();
    });
    let mut options = Options::new(vec![origin.server()]);
    options.read_timeout = TIMEOUT;
    let testing = Testing::new(options);
    assert_eq!(run(testing.fetch(get("/"))), Err(Reason::BodyTimeout));
}

#[test]
fn a_slow_client_is_not_the_origins_delay() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        served.request();
        served.send(b"world");
        served.await_close();
    });
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.read_timeout = TIMEOUT;
        let testing = Testing::new(options);
        let fed = Fed::default();
        let mut response = testing
            .ask(post(Body::stream(fed.clone())))
            .await
            .expect("a response");
        assert!(matches!(response.body.frame().await, Some(Ok(_))));
        // The body is not read for longer than the timeout.
        tokio::time::sleep(LONGER).await;
        fed.data(b"\r\n\r\n");
        fed.feed(None);
        let rest = content(&mut response.body).await;
        assert_eq!(rest.as_deref(), Ok(&b"world"[..]));
    });
}

#[test]
fn a_client_that_uploads_slowly_is_not_the_origins_delay() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.read(b"4\r\nslow\r\n0\r\n\r\n".len());
        served.send(HELLO);
    });
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.read_timeout = TIMEOUT;
        let testing = Testing::new(options);
        let fed = Fed::default();
        let feeding = async {
            tokio::time::sleep(LONGER).await;
            fed.data(b"slow");
            fed.feed(None);
        };
        let asked = testing.fetch(post(Body::stream(fed.clone())));
        let (got, ()) = tokio::join!(asked, feeding);
        assert_eq!(got, Ok((200, b"hello".to_vec())));
    });
}

#[test]
fn after_a_refused_connection_the_next_server_is_tried() {
    let origin = Origin::always(HELLO);
    run(async {
        let options = Options::new(vec![server(refusing()), origin.server()]);
        let testing = Testing::new(options);
        for _ in 0..6 {
            assert!(testing.fetch(get("/")).await.is_ok());
        }
        let status = testing.status();
        // The server that failed is avoided while the other server accepts connections.
        assert_eq!((status[0].failures, status[1].requests), (1, 6));
        assert_eq!(testing.counters.upstream_retries.get(), 1);
        testing.clock.advance_us(6_000_000);
        for _ in 0..2 {
            assert!(testing.fetch(get("/")).await.is_ok());
        }
        while testing.status()[0].failures < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(testing.status()[0].failures, 2);
    });
}

#[test]
fn tries_are_limited_and_the_last_reason_is_returned() {
    run(async {
        let mut options = Options::new((0..4).map(|_| server(refusing())).collect());
        options.retry.tries = 3;
        let testing = Testing::new(options);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ConnectFailed));
        assert_eq!(testing.counters.upstream_failures.get(), 3);
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        let one = Testing::new(Options::new(vec![server(refusing())]));
        for _ in 0..2 {
            assert_eq!(one.fetch(get("/")).await, Err(Reason::ConnectFailed));
        }
        let none = Testing::new(Options::new(Vec::new()));
        assert_eq!(none.fetch(get("/")).await, Err(Reason::NoServer));
    });
}

#[test]
fn a_name_without_address_has_its_own_cause() {
    let unknown = Server {
        host: "no-such-name.invalid".into(),
        ..server(refusing())
    };
    let testing = Testing::new(Options::new(vec![unknown]));
    assert_eq!(run(testing.fetch(get("/"))), Err(Reason::Unresolved));
}

#[test]
fn backups_are_used_last() {
    let (main, spare) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let mut backup = spare.server();
        backup.backup = true;
        let testing = Testing::new(Options::new(vec![backup.clone(), main.server()]));
        for _ in 0..3 {
            assert!(testing.fetch(get("/")).await.is_ok());
        }
        assert_eq!(testing.status()[0].requests, 0);
        let testing = Testing::new(Options::new(vec![server(refusing()), backup]));
        assert!(testing.fetch(get("/")).await.is_ok());
        assert_eq!(testing.status()[1].requests, 1);
    });
}

#[test]
fn requests_for_a_full_server_wait_in_turn_and_the_queue_is_bounded() {
    let (answer, answers) = channel::<()>();
    let answers = std::sync::Mutex::new(answers);
    let origin = Origin::new(move |_, served| {
        while served.request().is_some() {
            if answers.lock().is_ok_and(|a| a.recv().is_err()) || !served.send(HELLO) {
                return;
            }
        }
    });
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        // One client gets half of the queue.
        (options.max_connections, options.queue) = (1, 4);
        let testing = Testing::new(options);
        let start = || testing.start(get("/")).response;
        let (mut first, mut second, mut third) = (start(), start(), start());
        assert!(is_waiting(&mut first).await);
        assert!(is_waiting(&mut second).await);
        assert!(is_waiting(&mut third).await);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ServersBusy));
        drop(second);
        let mut fourth = start();
        assert!(is_waiting(&mut fourth).await);
        for waiting in [first, third, fourth] {
            answer.send(()).expect("the origin listens");
            assert_eq!(waiting.await.expect("a response").status, 200);
        }
        let status = testing.status().remove(0);
        assert_eq!((status.connects, status.requests), (1, 3));
        assert_eq!((status.idle, status.busy), (1, 0));
    });
}

#[test]
fn a_released_permit_goes_to_the_next_request_in_the_queue() {
    let origin = Origin::new(|number, served| {
        served.request();
        match number {
            0 => served.await_close(),
            _ => assert!(served.send(HELLO)),
        }
    });
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.max_connections = 1;
        let testing = Testing::new(options);
        let mut first = testing.start(get("/")).response;
        assert!(is_waiting(&mut first).await);
        let mut granted_and_dropped = testing.start(get("/")).response;
        assert!(is_waiting(&mut granted_and_dropped).await);
        let mut last = testing.start(get("/")).response;
        assert!(is_waiting(&mut last).await);
        drop(first);
        drop(granted_and_dropped);
        assert_eq!(last.await.expect("a response").status, 200);
    });
}

#[test]
fn waiting_in_the_queue_is_limited() {
    let origin = silent();
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.max_connections = 1;
        options.connect_timeout = Duration::from_millis(200);
        let testing = Testing::new(options);
        let mut first = testing.start(get("/")).response;
        assert!(is_waiting(&mut first).await);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ServersBusy));
    });
}

#[test]
fn waiting_in_the_queue_may_have_a_limit_of_its_own() {
    let origin = silent();
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.max_connections = 1;
        options.connect_timeout = Duration::from_secs(3600);
        options.queue_timeout = Some(Duration::from_millis(50));
        let testing = Testing::new(options);
        let mut first = testing.start(get("/")).response;
        assert!(is_waiting(&mut first).await);
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::ServersBusy));
    });
}

#[test]
fn a_panic_in_the_clients_body_leaks_no_permit() {
    struct Panics;
    impl BodyStream for Panics {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
            panic!("as a test");
        }
        fn length(&self) -> Option<u64> {
            None
        }
    }
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.max_connections = 1;
        let testing = Testing::new(options);
        let asked = testing.start(post(Body::stream(Panics))).response;
        let task = tokio::task::spawn_local(asked);
        assert!(task.await.is_err_and(|e| e.is_panic()));
        assert_eq!(testing.fetch(get("/")).await, Ok((200, b"hello".to_vec())));
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
    });
}

#[test]
fn requests_are_spread_over_servers_by_weight() {
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let mut heavy = b.server();
        heavy.weight = 3;
        let testing = Testing::new(Options::new(vec![a.server(), heavy]));
        for _ in 0..8 {
            testing.fetch(get("/")).await.expect("a response");
        }
        let status = testing.status();
        assert_eq!((status[0].requests, status[1].requests), (2, 6));
    });
}

#[test]
fn the_permit_of_a_dead_connection_is_not_given_twice() {
    use crate::upstream::lease::Grant;
    use crate::upstream::retry::Failed;
    let (a, b) = (Origin::always(HELLO), Origin::always(HELLO));
    run(async {
        let mut options = Options::new(vec![a.server(), b.server()]);
        options.max_connections = 1;
        let testing = Testing::new(options);
        for _ in 0..2 {
            testing.fetch(get("/")).await.expect("a response");
        }
        testing.clock.advance_us(61_000_000);
        let pool = &testing.upstream.worker.pool;
        // One server is full and the other was avoided when the request came, which waits for either.
        let _held = pool.take(0, false);
        let second = testing.state.servers()[1].clone();
        let now_us = testing.clock.monotonic_us();
        assert!(
            second
                .condition()
                .set_healthy(Err("status 500".to_owned()), now_us)
        );
        second.note_change();
        let failed = Failed::new();
        let criteria = criteria();
        let mut waiting = std::pin::pin!(pool.acquire(&failed, &criteria));
        assert!(is_waiting(&mut waiting).await);
        let granted = pool.take(1, false);
        assert!(matches!(granted, Grant::Opening(_)));
        assert!(second.condition().set_healthy(Ok(()), now_us));
        second.note_change();
        pool.refresh();
        assert!(is_waiting(&mut waiting).await);
        assert_eq!(testing.counters.upstream_busy_now.get(), 2);
        drop(granted);
        assert!(matches!(waiting.await, Ok(Grant::Opening(opening)) if opening.server() == 1));
    });
}

#[test]
fn a_balancer_gets_the_key_and_the_outcome_of_each_exchange() {
    let origin = Origin::always(HELLO);
    let record = Recorded::default();
    let unreachable = server(refusing());
    run(async {
        let testing = Testing::new(Options::new(vec![unreachable, origin.server()]));
        testing.record_choices(&record);
        for target in ["/a", "/b", "/a"] {
            testing.fetch(get(target)).await.expect("a response");
        }
    });
    let keys = record.keys.borrow();
    // The first server is tried once, and then avoided.
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[0] == keys[3] && keys[0] != keys[2]);
    let outcomes = record.outcomes.borrow();
    assert_eq!(outcomes[0], Outcome::ConnectFailed);
    let answered = |outcome: &Outcome| matches!(outcome, Outcome::Answered { status: 200, .. });
    assert!(
        outcomes[1..].iter().all(answered) && outcomes.len() == 4,
        "{outcomes:?}"
    );
}
