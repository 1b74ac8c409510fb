//! Tests of connection reuse, and of connections that the origin has closed.

use super::*;

#[test]
fn connections_are_reused_last_in_first_out() {
    let origin = Origin::always(HELLO);
    run(async {
        let testing = origin.upstream();
        for _ in 0..5 {
            let got = testing.fetch(get("/")).await;
            assert_eq!(got, Ok((200, b"hello".to_vec())));
        }
        let status = testing.status().remove(0);
        assert_eq!((status.connects, status.requests), (1, 5));
        assert_eq!((status.idle, status.busy), (1, 0));
        assert_eq!(testing.counters.upstream_reuses.get(), 4);
        let (a, b) = tokio::join!(testing.fetch(get("/")), testing.fetch(get("/")));
        assert!(a.is_ok() && b.is_ok());
        assert_eq!(testing.status()[0].idle, 2);
    });
}

#[test]
fn a_connection_is_closed_after_its_last_request() {
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive_requests = 2;
        let testing = Testing::new(options);
        for _ in 0..4 {
            testing.fetch(get("/")).await.expect("a response");
        }
        assert_eq!(testing.status()[0].connects, 2);
    });
    let closing = |head: String| head.contains("connection: close");
    let heads: Vec<bool> = (0..4).map(|_| closing(origin.next_request())).collect();
    assert_eq!(heads, [false, true, false, true]);
}

#[test]
fn without_keepalive_each_request_has_its_own_connection() {
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive = 0;
        let testing = Testing::new(options);
        for _ in 0..3 {
            testing.fetch(get("/")).await.expect("a response");
        }
        assert_eq!(testing.status()[0].connects, 3);
        assert!(origin.next_request().contains("connection: close"));
    });
}

#[test]
fn no_more_idle_connections_are_kept_than_allowed() {
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive = 2;
        let testing = Testing::new(options);
        let fetch = || testing.fetch(get("/"));
        let _ = tokio::join!(fetch(), fetch(), fetch(), fetch());
        assert_eq!(testing.idle(), 2);
        assert_eq!(testing.counters.upstream_idle_now.get(), 2);
    });
}

#[test]
fn idle_connections_expire() {
    let origin = Origin::always(HELLO);
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        testing.clock.advance_us(59_000_000);
        testing.fetch(get("/")).await.expect("a response");
        assert_eq!(testing.status()[0].connects, 1);
        testing.clock.advance_us(61_000_000);
        testing.fetch(get("/")).await.expect("a response");
        assert_eq!(testing.status()[0].connects, 2);
        assert_eq!(testing.idle(), 1);
    });
}

#[test]
fn expired_connections_are_closed_without_another_request() {
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive_timeout = Duration::from_millis(20);
        let testing = Testing::new(options);
        testing.fetch(get("/")).await.expect("a response");
        testing.clock.advance_us(21_000);
        while testing.idle() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(testing.counters.upstream_idle_now.get(), 0);
    });
}

#[test]
fn a_connection_that_is_idle_for_long_frees_its_memory_and_is_used_again() {
    let origin = Origin::always(HELLO);
    run(async {
        let testing = origin.upstream();
        let pool = &testing.upstream.worker.pool;
        let is_freed = || testing.is_memory_freed();
        for _ in 0..2 {
            let got = testing.fetch(get("/")).await;
            assert_eq!(got, Ok((200, b"hello".to_vec())));
            testing.clock.advance_us(999_999);
            assert_eq!(pool.sweep(), Duration::from_secs(1));
            assert_eq!((pool.shrunk_connections(0), is_freed()), (0, false));
            testing.clock.advance_us(1);
            assert_eq!(pool.sweep(), Duration::from_secs(59));
            assert_eq!((pool.shrunk_connections(0), testing.idle()), (1, 1));
            assert!(is_freed());
            pool.sweep();
            assert_eq!(pool.shrunk_connections(0), 1, "a look allocates nothing");
            assert!(!is_freed());
        }
        assert_eq!(testing.status()[0].connects, 1);
    });
}

#[test]
fn a_shrunk_connection_leaves_the_pool_when_the_origin_closes_it() {
    let origin = Origin::once(HELLO);
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        testing.clock.advance_us(1_000_000);
        testing.upstream.worker.pool.sweep();
        while testing.idle() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(testing.status()[0].idle, 0);
    });
}

#[test]
fn an_idle_connection_leaves_the_pool_when_the_origin_closes_it() {
    let origin = Origin::once(HELLO);
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        while testing.idle() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(testing.status()[0].idle, 0);
    });
}

#[test]
fn an_origin_of_http_1_0_is_not_trusted_with_keepalive() {
    let answer = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello";
    let origin = Origin::always(answer);
    run(async {
        let testing = origin.upstream();
        for _ in 0..2 {
            testing.fetch(get("/")).await.expect("a response");
        }
        assert_eq!(testing.status()[0].connects, 2);
    });
}

/// Starts an origin that answers the first request of each connection. On its first connection, the
/// origin closes after the second request without a response.
fn closing_on_reuse() -> Origin {
    Origin::new(|number, served| {
        served.request();
        served.send(HELLO);
        if served.request().is_some() && number > 0 {
            served.send(HELLO);
        }
    })
}

#[test]
fn a_request_on_a_closed_connection_is_repeated_only_if_that_is_safe() {
    let get_it = || get("/");
    let put_it = || {
        let mut put = request(Method::Put, "/", &[]);
        put.body = Body::Bytes(Bytes::from_static(b"x"));
        put
    };
    let table: [(fn() -> Request, bool); 3] = [
        (get_it, true),
        (|| post(Body::Empty), false),
        (put_it, false),
    ];
    for (asked, repeated) in table {
        let origin = closing_on_reuse();
        run(async {
            let testing = origin.upstream();
            testing.fetch(get("/")).await.expect("a response");
            match testing.start(asked()).response.await {
                Ok(response) => assert!(repeated && response.status == 200),
                Err(fault) => {
                    assert!(!repeated && fault.reason == Reason::StaleConnection);
                    // The origin may have processed the request, so the fault says that no caller
                    // may repeat it.
                    assert!(!fault.retryable);
                }
            }
            assert_eq!(testing.counters.upstream_retries.get(), u64::from(repeated));
            assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        });
    }
}

#[test]
fn a_request_is_repeated_only_once() {
    let origin = Origin::new(|number, served| {
        served.request();
        if number == 0 {
            served.send(HELLO);
            served.request();
        }
    });
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        let got = testing.fetch(get("/")).await;
        assert_eq!(got, Err(Reason::ClosedBeforeHead));
        assert_eq!(testing.status()[0].connects, 2);
    });
}

#[test]
fn a_request_is_not_repeated_once_a_byte_of_the_response_came() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(HELLO);
        served.request();
        served.send(b"HTTP/1.1 200");
    });
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        let got = testing.fetch(get("/")).await;
        assert_eq!(got, Err(Reason::ClosedBeforeHead));
        assert_eq!(testing.counters.upstream_retries.get(), 0);
    });
}

#[test]
fn a_post_is_not_sent_on_a_connection_that_the_kernel_knows_to_be_closed() {
    let (tell, closed) = channel();
    let origin = Origin::new(move |number, served| {
        served.request();
        served.send(HELLO);
        if number == 0 {
            served
                .stream
                .shutdown(Shutdown::Both)
                .expect("an open socket");
            tell.send(()).expect("the test listens");
        }
    });
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        // Blocking this thread blocks the runtime, so that the runtime does not learn of the close.
        closed.recv().expect("the origin closes");
        let got = testing
            .fetch(post(Body::Bytes(Bytes::from_static(b"x"))))
            .await;
        assert_eq!(got, Ok((200, b"hello".to_vec())));
    });
}

#[test]
fn when_a_worker_ends_its_gauges_return_to_0() {
    let origin = Origin::always(HELLO);
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        let mut response = testing.ask(get("/")).await.expect("a response");
        let (counters, state) = (testing.counters.clone(), testing.state.clone());
        drop(testing);
        assert_eq!(
            content(&mut response.body).await.as_deref(),
            Ok(&b"hello"[..])
        );
        drop(response);
        while counters.upstream_idle_now.get() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(counters.upstream_busy_now.get(), 0);
        let numbers = state.servers()[0].numbers();
        assert_eq!(numbers.busy + numbers.idle, 0);
    });
}

#[test]
fn an_unrequested_response_on_an_idle_connection_is_never_used() {
    let origin = Origin::new(move |number, served| {
        served.request();
        served.send(HELLO);
        if number == 0 {
            served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            served.await_close();
        }
    });
    run(async {
        let testing = origin.upstream();
        let first = testing.fetch(get("/")).await;
        assert_eq!(first, Ok((200, b"hello".to_vec())));
        // The runtime learns of the bytes while this task yields, and the connection then leaves
        // the pool.
        while testing.idle() > 0 {
            tokio::task::yield_now().await;
        }
        let second = testing.fetch(get("/")).await;
        assert_eq!(second, Ok((200, b"hello".to_vec())));
        assert_eq!(testing.status()[0].connects, 2);
    });
}

#[test]
fn an_unrequested_response_that_only_the_kernel_knows_is_never_used() {
    let (go, gone) = channel();
    let (tell, told) = channel();
    let gone = std::sync::Mutex::new(gone);
    let origin = Origin::new(move |number, served| {
        served.request();
        served.send(HELLO);
        if number == 0 {
            let () = gone
                .lock()
                .expect("one at a time")
                .recv()
                .expect("a signal");
            served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            tell.send(()).expect("the test listens");
            served.await_close();
        }
    });
    run(async {
        let testing = origin.upstream();
        testing.fetch(get("/")).await.expect("a response");
        assert_eq!(testing.idle(), 1);
        // Blocking this thread blocks the runtime, so that the runtime does not learn of the bytes.
        go.send(()).expect("the origin listens");
        told.recv().expect("the origin sends");
        let second = testing.fetch(get("/")).await;
        assert_eq!(second, Ok((200, b"hello".to_vec())));
        let status = testing.status().remove(0);
        assert_eq!((status.connects, status.busy), (2, 0));
    });
}

/// Starts an origin that answers one request, and closes connection and listener at the second one.
fn leaving() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let mut served = ServedConnection {
            stream,
            tell: channel().0,
        };
        served.request();
        served.send(HELLO);
        served.request();
    });
    address
}

#[test]
fn a_repeated_request_goes_to_another_server_when_its_own_is_gone() {
    for (tries, expected) in [
        (2, Ok((200, b"hello".to_vec()))),
        (1, Err(Reason::ConnectFailed)),
    ] {
        let spare = Origin::always(HELLO);
        let mut backup = spare.server();
        backup.backup = true;
        let mut options = Options::new(vec![server(leaving()), backup]);
        options.retry.tries = tries;
        run(async {
            let testing = Testing::new(options);
            testing.fetch(get("/")).await.expect("a response");
            let response = testing.ask(get("/")).await;
            if let Ok(response) = &response {
                let record = response.upstream.as_ref().expect("a record");
                assert_eq!(record.server.get(), Some(spare.address.into()));
            }
            let got = match response {
                Ok(mut response) => Ok((200, content(&mut response.body).await.expect("all"))),
                Err(reason) => Err(reason),
            };
            assert_eq!(got, expected);
            let status = testing.status();
            assert_eq!(status[1].requests, u64::from(tries - 1));
            assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        });
    }
}

#[test]
fn a_server_that_leaves_and_returns_loses_its_requests_and_connections_meanwhile() {
    let (go, rest) = std::sync::mpsc::channel();
    let rest = std::sync::Mutex::new(rest);
    let a = Origin::new(move |_, served| {
        while let Some(head) = served.request() {
            let slow = head.starts_with("GET /slow");
            let (first, last) = HELLO.split_at(if slow { HELLO.len() - 2 } else { 0 });
            served.send(first);
            if slow {
                let _ = rest.lock().map(|rest| rest.recv());
            }
            served.send(last);
        }
    });
    let b = Origin::always(HELLO);
    run(async {
        let testing = Testing::new(Options::new(vec![a.server(), b.server()]));
        for _ in 0..2 {
            testing.fetch(get("/")).await.expect("a response");
        }
        let slot = testing.state.servers()[0].clone();
        assert_eq!((slot.pins(), testing.idle()), (1, 1));
        let mut response = testing.ask(get("/slow")).await.expect("a response");
        slot.set_present(false);
        for _ in 0..4 {
            testing.fetch(get("/")).await.expect("a response");
        }
        assert_eq!(slot.numbers().requests, 2);
        // The exchange in progress goes on, and its connection is closed at its end.
        assert_eq!((slot.pins(), slot.numbers().busy), (1, 1));
        go.send(()).expect("a waiting origin");
        let whole = content(&mut response.body).await;
        assert_eq!(whole.as_deref(), Ok(&b"hello"[..]));
        drop(response);
        assert_eq!((slot.pins(), testing.idle()), (0, 0));
        slot.set_present(true);
        for _ in 0..2 {
            testing.fetch(get("/")).await.expect("a response");
        }
        assert_eq!((slot.pins(), slot.numbers().requests), (1, 3));
        drop(testing);
        let gone = || slot.pins() == 0 && slot.numbers().idle == 0;
        while !gone() {
            tokio::task::yield_now().await;
        }
        assert_eq!(slot.numbers().requests, 3);
    });
}

#[test]
fn a_connection_is_kept_for_a_second_less_than_the_server_announces() {
    let answer = |seconds: u64| {
        format!(
            "HTTP/1.1 200 OK\r\nKeep-Alive: timeout={seconds}, max=9\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let origin = Origin::new(move |_, served| {
        while let Some(head) = served.request() {
            let seconds = if head.starts_with("GET /short") { 1 } else { 5 };
            served.send(answer(seconds).as_bytes());
        }
    });
    run(async {
        let testing = origin.upstream();
        let connects = || testing.status()[0].connects;
        for _ in 0..3 {
            testing.fetch(get("/")).await.expect("a response");
            testing.clock.advance_us(3_900_000);
        }
        assert_eq!(connects(), 1);
        testing.clock.advance_us(200_000);
        testing.fetch(get("/")).await.expect("a response");
        assert_eq!(connects(), 2);
        testing.fetch(get("/short")).await.expect("a response");
        assert_eq!((connects(), testing.idle()), (2, 0));
    });
}

#[test]
fn requests_in_http_1_0_have_connections_of_their_own_and_no_chunks() {
    let origin = Origin::always(HELLO);
    run(async {
        let mut options = Options::new(vec![origin.server()]);
        options.http = crate::http::Version::Http10;
        let testing = Testing::new(options);
        for _ in 0..2 {
            let fetched = testing.fetch(get("/")).await;
            assert_eq!(fetched, Ok((200, b"hello".to_vec())));
            let head = origin.next_request();
            assert!(head.starts_with("GET / HTTP/1.0\r\n"), "{head}");
        }
        assert_eq!(testing.status()[0].connects, 2);
        let body = Fed::default();
        body.data(b"a");
        body.feed(None);
        let unknown = testing.fetch(post(Body::stream(body))).await;
        assert_eq!(unknown, Err(Reason::LengthRequired));
    });
}
