//! Tests of content in both directions: complete, cut, of the wrong length, endless.

use super::*;

#[test]
fn a_body_that_ends_early_or_breaks_its_framing_is_a_fault() {
    let table: &[(&str, Result<&str, Reason>)] = &[
        ("Content-Length: 5\r\n\r\nhello", Ok("hello")),
        ("Content-Length: 10\r\n\r\nhello", Err(Reason::BodyCut)),
        ("Content-Length: 10\r\n\r\n", Err(Reason::BodyCut)),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Err(Reason::BodyCut),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            Err(Reason::BodyCut),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
            Err(Reason::BodyCut),
        ),
        ("Transfer-Encoding: chunked\r\n\r\n", Err(Reason::BodyCut)),
        (
            "Transfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff0\r\nhello",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nno colon\r\n\r\n",
            Err(Reason::BadBody),
        ),
        // Some origins pad chunk sizes with spaces, as here.
        (
            "Transfer-Encoding: chunked\r\n\r\n5 \t \r\nhello\r\n0  ;x=y\r\n\r\n",
            Ok("hello"),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n1 5\r\nhello\r\n0\r\n\r\n",
            Err(Reason::BadBody),
        ),
        ("\r\nhello", Ok("hello")),
    ];
    for &(rest, expected) in table {
        let origin = Origin::once(format!("HTTP/1.1 200 OK\r\n{rest}"));
        let testing = origin.upstream();
        let got = run(testing.fetch(get("/")));
        let expected = expected.map(|text| (200, text.as_bytes().to_vec()));
        assert_eq!(got, expected, "{rest:?}");
        let failures = u64::from(expected.is_err());
        assert_eq!(
            testing.counters.upstream_failures.get(),
            failures,
            "{rest:?}"
        );
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
    }
}

#[test]
fn a_reset_connection_cuts_even_a_body_without_length() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.0 200 OK\r\n\r\nhello");
        // The test sends these four bytes once the response's content has arrived; the reset
        // follows it.
        served.read(4);
        served.reset();
    });
    run(async {
        let fed = Fed::default();
        let testing = origin.upstream();
        let mut response = testing
            .ask(post(Body::stream(fed.clone())))
            .await
            .expect("a response");
        let mut got = Vec::new();
        while got.len() < 5 {
            match response.body.frame().await {
                Some(Ok(Frame::Data(bytes))) => got.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        fed.data(b"seen");
        fed.feed(None);
        assert_eq!(content(&mut response.body).await, Err(Reason::BodyCut));
    });
}

#[test]
fn bytes_after_the_declared_length_are_never_a_response() {
    let origin = Origin::new(|number, served| {
        served.request();
        match number {
            0 => {
                let mut answer = HELLO.to_vec();
                answer.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
                served.send(&answer);
                served.await_close();
            }
            _ => assert!(served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")),
        }
    });
    run(async {
        let testing = origin.upstream();
        assert_eq!(testing.fetch(get("/")).await, Ok((200, b"hello".to_vec())));
        assert_eq!(testing.idle(), 0);
        assert_eq!(testing.fetch(get("/")).await, Ok((200, b"good".to_vec())));
    });
}

#[test]
fn trailers_are_forwarded_without_forbidden_fields() {
    let origin = Origin::once(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\nSet-Cookie: a=b\r\n\r\n",
    );
    run(async {
        let testing = origin.upstream();
        let asked = request(Method::Get, "/", &[("TE", "trailers")]);
        let mut response = testing.ask(asked).await.expect("a response");
        assert_eq!(response.fields.get("trailer"), Some(&b"X-Sum"[..]));
        let first = response.body.frame().await;
        assert!(matches!(first, Some(Ok(Frame::Data(bytes))) if bytes == "hello"));
        let last = response.body.frame().await;
        assert!(matches!(last, Some(Ok(Frame::Trailers(t))) if t.text() == b"x-sum: 1\r\n"));
        assert!(response.body.frame().await.is_none());
    });
    let head = origin.next_request().to_ascii_lowercase();
    assert!(head.contains("\r\nte: trailers\r\n") && head.contains("\r\nconnection: te\r\n"));
}

#[test]
fn a_large_body_is_complete_and_its_length_counts_down() {
    const SIZE: usize = 5_000_000;
    let origin = Origin::new(|_, served| {
        while served.request().is_some() {
            served.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").as_bytes());
            let content: Vec<u8> = (0..SIZE).map(|i| (i / 7) as u8).collect();
            served.send(&content);
        }
    });
    run(async {
        let testing = origin.upstream();
        for _ in 0..2 {
            let mut body = testing.ask(get("/")).await.expect("a response").body;
            let mut at = 0;
            while let Some(frame) = body.frame().await {
                let Ok(Frame::Data(bytes)) = frame else {
                    panic!("{frame:?}");
                };
                let right = bytes.iter().zip(at..).all(|(&b, i)| b == (i / 7) as u8);
                assert!(right, "wrong bytes after {at}");
                at += bytes.len();
                assert_eq!(body.length(), Some((SIZE - at) as u64));
            }
            assert_eq!(at, SIZE);
        }
        assert_eq!(testing.status()[0].connects, 1);
        assert_eq!(testing.counters.upstream_bytes_in.get(), 2 * SIZE as u64);
    });
}

#[test]
fn an_origin_is_held_back_while_the_client_does_not_read() {
    let (tell, sent) = channel();
    let origin = Origin::new(move |_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\n\r\n");
        served
            .stream
            .set_write_timeout(Some(Duration::from_millis(200)))
            .expect("a socket option");
        let mut total = 0_u64;
        // The write blocks once the client stops reading, and then fails with a timeout, which ends
        // the loop.
        while let Ok(n) = served.stream.write(&[b'x'; 65536]) {
            total += n as u64;
            if total >= 1 << 30 {
                break;
            }
        }
        tell.send(total).expect("the test listens");
    });
    run(async {
        let testing = origin.upstream();
        let mut response = testing.ask(get("/")).await.expect("a response");
        assert!(matches!(response.body.frame().await, Some(Ok(_))));
        let total = tokio::task::spawn_blocking(move || sent.recv()).await;
        let total = total.expect("no panic").expect("a total");
        // Only the kernel's two socket buffers fill up, far less than the endless body.
        assert!(total < 64 << 20, "{total} bytes were taken");
    });
}

#[test]
fn an_upload_is_held_back_while_the_origin_does_not_read() {
    struct Endless(u64);
    impl BodyStream for Endless {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
            self.0 += 65536;
            assert!(self.0 < 64 << 20, "{} bytes were taken", self.0);
            Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(&[b'x'; 65536])))))
        }
        fn length(&self) -> Option<u64> {
            None
        }
    }
    let (let_go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::new(move |_, served| {
        served.request();
        let _ = wait.lock().map(|wait| wait.recv());
    });
    let mut options = Options::new(vec![origin.server()]);
    options.send_timeout = Duration::from_millis(100);
    let testing = Testing::new(options);
    let got = run(testing.fetch(post(Body::stream(Endless(0)))));
    assert_eq!(got, Err(Reason::SendFailed));
    drop(let_go);
}

#[test]
fn an_upload_is_chunked_unless_its_length_is_known() {
    let origin = Origin::new(|_, served| {
        while let Some(head) = served.request() {
            let content = match head.contains("transfer-encoding: chunked") {
                true => served.read(b"3\r\nabc\r\n3\r\ndef\r\n0\r\nx-sum: 1\r\n\r\n".len()),
                false if head.contains("content-length: 6") => served.read(6),
                false => Vec::new(),
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            served.send(&[head.into_bytes(), content].concat());
        }
    });
    run(async {
        let testing = origin.upstream();
        for method in [Method::Post, Method::Get, Method::Delete] {
            let mut known = request(method.clone(), "/", &[("Content-Length", "99")]);
            known.body = Body::Bytes(Bytes::from_static(b"abcdef"));
            let echoed = testing.fetch(known).await;
            assert_eq!(echoed, Ok((200, b"abcdef".to_vec())));
            let fed = Fed::default();
            fed.data(b"abc");
            fed.data(b"def");
            let mut trailers = crate::http::Fields::new();
            trailers.append("X-Sum", "1");
            trailers.append("Host", "evil");
            fed.feed(Some(Ok(Frame::Trailers(trailers))));
            let mut unknown = request(method, "/", &[("Trailer", "X-Sum, Host")]);
            unknown.body = Body::stream(fed);
            let echoed = testing.fetch(unknown).await.expect("a response").1;
            assert_eq!(echoed, b"3\r\nabc\r\n3\r\ndef\r\n0\r\nx-sum: 1\r\n\r\n");
        }
        // A connection is not used again after GET or DELETE with content.
        assert_eq!(testing.status()[0].connects, 4);
        testing.fetch(post(Body::Empty)).await.expect("a response");
    });
    let heads: Vec<String> = (0..7).map(|_| origin.next_request()).collect();
    assert!(heads[6].contains("\r\ncontent-length: 0\r\n"));
    assert!(heads[..6].iter().all(|h| !h.contains("content-length: 99")));
}

#[test]
fn an_early_response_is_delivered_and_the_connection_closed() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
        served.await_close();
    });
    run(async {
        let testing = origin.upstream();
        let fed = Fed::default();
        fed.data(b"begin");
        let got = testing.fetch(post(Body::stream(fed))).await;
        assert_eq!(got, Ok((413, b"no".to_vec())));
        assert_eq!(testing.idle(), 0);
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
    });
}

#[test]
fn a_response_is_read_even_if_the_origin_refuses_the_rest_of_the_upload() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
        // Closing a socket with unread content resets the connection.
    });
    run(async {
        let testing = origin.upstream();
        let content = Bytes::from(vec![b'x'; 8 << 20]);
        let got = testing.fetch(post(Body::Bytes(content))).await;
        // The reset may arrive before the response is read. The result is then a fault, and not a
        // hang.
        let fault = matches!(
            got,
            Err(Reason::ClosedBeforeHead | Reason::SendFailed | Reason::BodyCut)
        );
        assert!(fault || got == Ok((413, b"no".to_vec())), "{got:?}");
    });
}

#[test]
fn an_upload_that_fails_is_the_clients_fault() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.await_close();
    });
    run(async {
        let testing = origin.upstream();
        let fed = Fed::default();
        fed.data(b"begin");
        fed.feed(Some(Err(Reason::ClientGone.into())));
        let got = testing.fetch(post(Body::stream(fed))).await;
        assert_eq!(got, Err(Reason::ClientGone));
    });
}

#[test]
fn the_padding_of_a_chunk_size_is_bounded() {
    for (blanks, expected) in [
        (256, Ok((200, b"hello".to_vec()))),
        (257, Err(Reason::BadBody)),
    ] {
        let pad = " ".repeat(blanks);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let origin = Origin::once(format!("{head}5{pad}\r\nhello\r\n0{pad}\r\n\r\n"));
        assert_eq!(run(origin.upstream().fetch(get("/"))), expected);
    }
}

/// Starts an origin that answers early, with half of its content, and then sends the test
/// everything that it read up to the close.
fn answering_early() -> Origin {
    Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        let mut rest = Vec::new();
        // A reset ends the read with an error, which is ignored.
        let _ = served.stream.read_to_end(&mut rest);
        let _ = served
            .tell
            .send(String::from_utf8_lossy(&rest).into_owned());
    })
}

#[test]
fn an_upload_that_fails_after_an_early_head_never_looks_whole() {
    let origin = answering_early();
    run(async {
        let testing = origin.upstream();
        let fed = Fed::default();
        fed.data(b"begin");
        let asked = testing.ask(post(Body::stream(fed.clone()))).await;
        let mut response = asked.expect("a response");
        assert!(matches!(response.body.frame().await, Some(Ok(_))));
        fed.feed(Some(Err(Reason::ClientGone.into())));
        fed.feed(None);
        let cut = response.body.frame().await;
        assert!(matches!(cut, Some(Err(fault)) if fault.reason == Reason::ClientGone));
        for _ in 0..2 {
            assert!(!matches!(response.body.frame().await, Some(Ok(_))));
        }
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
    });
    origin.next_request();
    assert_eq!(origin.next_request(), "5\r\nbegin\r\n");
}

#[test]
fn a_failed_upload_keeps_its_fault() {
    let fed = Fed::default();
    fed.feed(Some(Err(Reason::ClientGone.into())));
    fed.feed(None);
    let upload = Upload::new(Body::stream(fed), &Rc::default());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for _ in 0..3 {
        let polled = upload.poll_frame(&mut cx);
        assert!(matches!(polled, Poll::Ready(Some(Err(_)))));
    }
}

#[test]
fn abandoning_a_request_or_its_response_closes_the_connection() {
    let (tell, closed) = channel();
    let origin = Origin::new(move |number, served| {
        served.request();
        if number == 1 {
            served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin");
        }
        served.await_close();
        tell.send(number).expect("the test listens");
    });
    run(async {
        let testing = origin.upstream();
        let pending = testing.start(get("/"));
        let asked = async {
            tokio::task::yield_now().await;
            while origin.seen.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        };
        let mut response = pending.response;
        tokio::select! {
            _ = &mut response => panic!("there is no answer"),
            () = asked => {}
        }
        drop(response);
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        assert_eq!(closed.recv(), Ok(0));
        let response = testing.ask(get("/")).await.expect("a response");
        drop(response);
        assert_eq!(closed.recv(), Ok(1));
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
        assert_eq!(testing.idle(), 0);
    });
}
