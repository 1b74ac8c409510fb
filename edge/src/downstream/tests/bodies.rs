//! Tests of bodies in both directions: uploads, 100-continue, trailers, interim heads, truncation,
//! upgrades.

use std::cell::{Cell, RefCell};

use super::*;
use crate::handler::Pending;
use crate::http::Fields;
use crate::reason::Reason;

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

#[test]
fn uploads_stream_with_back_pressure_and_the_connection_goes_on() {
    on_worker(async {
        let bench = Bench::new(echo);
        let mut client = bench.client();
        let body = "0123456789".repeat(20_000);
        client
            .send(format!(
                "{POST}Content-Length: {}\r\n\r\n{body}{GET}",
                body.len()
            ))
            .await;
        client.until("\r\n\r\nPOST / 0123").await;
        client.until("GET / ").await;
        let mut chunked = format!("{POST}Transfer-Encoding: chunked\r\n\r\n");
        for piece in body.as_bytes().chunks(777) {
            chunked.push_str(&format!(
                "{:x}\r\n{}\r\n",
                piece.len(),
                String::from_utf8_lossy(piece)
            ));
        }
        client.send(chunked + "0\r\nX-Sum: 1\r\n\r\n" + GET).await;
        assert!(
            client
                .until("+X-Sum: 1\r\n")
                .await
                .ends_with(&(body + "+X-Sum: 1\r\n"))
        );
        client.until("GET / ").await;
    });
}

#[test]
fn an_upload_is_read_only_as_the_handler_reads_it() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = RefCell::new(Some(wait));
        let bench = Bench::new(move |request| {
            let wait = wait.borrow_mut().take();
            Answer::later(async move {
                if let Some(wait) = wait {
                    let _ = wait.await;
                }
                echo(request).wait().await
            })
        });
        let mut client = bench.client_with_room(1000);
        client
            .send(format!("{POST}Content-Length: 100000\r\n\r\n"))
            .await;
        let mut sent = 0;
        for _ in 0..1000 {
            let mut write =
                |cx: &mut Context<'_>| client.socket.poll_write(cx, &[IoSlice::new(b"xx")], false);
            if let Poll::Ready(Ok(n)) = poll_fn(|cx| Poll::Ready(write(cx))).await {
                sent += n;
            }
            tokio::task::yield_now().await;
        }
        assert!(
            sent < 20_000,
            "{sent} bytes were taken before any was wanted"
        );
        go.send(()).expect("the handler waits");
        client.send("x".repeat(100_000 - sent)).await;
        client.until(&"x".repeat(100_000)).await;
    });
}

#[test]
fn continue_is_sent_only_when_the_handler_reads_the_body() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/refused" => ok("no;"),
            _ => echo(request),
        });
        let mut client = bench.client();
        client
            .send(format!(
                "{POST}Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n"
            ))
            .await;
        assert_eq!(
            client.until("\r\n\r\n").await,
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        client.send("hello").await;
        client.until("POST / hello").await;
        // The client sends the body without waiting for 100, so Sluice must not send it.
        client
            .send(format!(
                "{POST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"
            ))
            .await;
        assert!(client.until("\r\n").await.starts_with("HTTP/1.1 200"));
        client.until("POST / hello").await;
        // The handler responds without 100, so the client may or may not send the body, and Sluice
        // must close the connection.
        client.send("POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
        let answer = client.rest().await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"),
            "{answer}"
        );
    });
}

#[test]
fn an_unread_body_is_skipped_if_short_and_ends_the_connection_if_long() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        let mut client = bench.client();
        client
            .send(format!("{POST}Content-Length: 50000\r\n\r\n"))
            .await;
        client.until("x;").await;
        client.send("y".repeat(50_000) + GET).await;
        client.until("x;").await;
        client
            .send(format!("{POST}Content-Length: 1000000\r\n\r\n"))
            .await;
        let answer = client.rest().await;
        assert!(
            answer.contains("connection: close") && answer.ends_with("x;"),
            "{answer}"
        );
    });
}

#[test]
fn interim_heads_go_before_the_final_one_to_http_1_1_only() {
    on_worker(async {
        let bench = Bench::new(|mut request| {
            let interim = request.interim();
            let (go, wait) = tokio::sync::oneshot::channel::<()>();
            let queue = interim.clone();
            tokio::task::spawn_local(async move {
                if let Some(queue) = queue {
                    queue.push(
                        103,
                        [("link", "</a.css>; rel=preload")].into_iter().collect(),
                    );
                }
                tokio::task::yield_now().await;
                let _ = go.send(());
            });
            Answer::Later(Pending {
                response: Box::pin(async move {
                    let _ = wait.await;
                    Ok(Response::text(200, "x;"))
                }),
                interim,
                upstream: None,
            })
        });
        let mut client = bench.client();
        client.send(GET).await;
        let early = client.until("\r\n\r\n").await;
        assert_eq!(
            early,
            "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n"
        );
        assert!(client.until("x;").await.starts_with("HTTP/1.1 200"));
        let mut old = bench.client();
        old.send("GET / HTTP/1.0\r\n\r\n").await;
        assert!(old.rest().await.starts_with("HTTP/1.1 200"));
    });
}

// The client has not read the first interim head when the second one arrives. Both are sent before
// the final head, which arrives only after the client has received them.
#[test]
fn interim_heads_that_arrive_while_the_client_does_not_read_go_before_the_final_one() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = std::cell::RefCell::new(Some(wait));
        let queue = Rc::new(std::cell::RefCell::new(None));
        let shared = queue.clone();
        let bench = Bench::new(move |mut request| {
            let wait = wait.borrow_mut().take().expect("one request");
            let interim = request.interim();
            *shared.borrow_mut() = interim.clone();
            Answer::Later(Pending {
                response: Box::pin(async move {
                    let _ = wait.await;
                    Ok(Response::text(200, "x;"))
                }),
                interim,
                upstream: None,
            })
        });
        let mut client = bench.client_with_room(64);
        client.send(GET).await;
        bench.until(|_| queue.borrow().is_some()).await;
        let queue = queue.take().expect("HTTP/1.1 has interim heads");
        let push = |status, name| {
            let value = "v".repeat(200);
            queue.push(status, [(name, &*value)].into_iter().collect());
        };
        for (status, name) in [(102, "first"), (103, "second")] {
            push(status, name);
            // The connection has written as much of the first head as there is room for.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        for (status, name) in [("102", "first"), ("103", "second")] {
            let head = client.until("\r\n\r\n").await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            assert!(head.contains(&format!("{name}: v")), "{head}");
        }
        go.send(()).expect("the request waits");
        assert!(client.until("x;").await.starts_with("HTTP/1.1 200"));
    });
}

/// A handler that responds before it has read the body, and ends the response when the body has
/// failed or ended.
fn early(mut request: Request) -> Answer {
    let (go, mut wait) = tokio::sync::oneshot::channel::<()>();
    tokio::task::spawn_local(async move {
        while let Some(Ok(_)) = request.body.frame().await {}
        let _ = go.send(());
    });
    let mut first = Some(data("early;"));
    let mut response = Response::new(200);
    response.body = Body::stream(Frames(move |cx: &mut Context<'_>| match first.take() {
        Some(frame) => Poll::Ready(Some(frame)),
        None => std::pin::Pin::new(&mut wait).poll(cx).map(|_| None),
    }));
    Answer::Ready(Ok(response))
}

#[test]
fn after_a_request_body_fails_no_further_request_is_read() {
    const SMUGGLED: &str = "\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let too_long = [
        format!("400\r\n{}\r\n", "x".repeat(1024)),
        format!("{:x}\r\n", SMUGGLED.len()),
        SMUGGLED.to_owned(),
    ];
    let bad_trailers = [
        "0\r\n".to_owned(),
        "Content-Length: 3\r\n\r\n".to_owned(),
        "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
    ];
    on_worker(async {
        for body in [too_long, bad_trailers] {
            let asked = Rc::new(Cell::new(0));
            let count = asked.clone();
            let options = Options {
                body: 1024,
                ..Options::default()
            };
            let bench = Bench::with(options, move |request| {
                count.set(count.get() + 1);
                early(request)
            });
            let mut client = bench.client();
            client
                .send(format!("{POST}Transfer-Encoding: chunked\r\n\r\n"))
                .await;
            client.until("early;").await;
            for part in body {
                client.send(part).await;
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
            }
            client.socket.shutdown_write();
            client.rest().await;
            assert_eq!(asked.get(), 1, "one request was sent");
        }
    });
}

#[test]
fn trailers_are_sent_only_to_clients_that_accept_them() {
    on_worker(async {
        let bench = Bench::new(|_| {
            let mut fields = Fields::new();
            fields.append("x-sum", "9");
            let mut response = Response::new(200);
            response.body = frames(vec![data("abc"), Ok(Frame::Trailers(fields))]);
            Answer::Ready(Ok(response))
        });
        let mut client = bench.client();
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
            .await;
        client.until("3\r\nabc\r\n0\r\nx-sum: 9\r\n\r\n").await;
        client.send(GET).await;
        client.until("3\r\nabc\r\n0\r\n\r\n").await;
    });
}

#[test]
fn a_truncated_body_looks_truncated() {
    on_worker(async {
        let bench = Bench::new(|request| {
            let mut response = Response::new(200);
            response.length = (request.head.path() == "/length").then_some(10);
            response.body = match request.head.path() {
                "/short" | "/length" => frames(vec![data("abc")]),
                "/long" => {
                    response.length = Some(2);
                    frames(vec![data("a"), data("bc")])
                }
                _ => frames(vec![data("abc"), Err(Reason::BodyCut.into())]),
            };
            Answer::Ready(Ok(response))
        });
        let get =
            |path: &str, version: &str| format!("GET {path} HTTP/{version}\r\nHost: a\r\n\r\n");
        let mut chunked = bench.client();
        chunked.send(get("/", "1.1")).await;
        assert!(
            chunked.rest().await.ends_with("3\r\nabc\r\n"),
            "no last chunk"
        );
        let mut short = bench.client();
        short.send(get("/length", "1.1")).await;
        let answer = short.rest().await;
        assert!(answer.contains("content-length: 10") && answer.ends_with("\r\n\r\nabc"));
        let mut long = bench.client();
        long.send(get("/long", "1.1")).await;
        assert!(
            long.rest().await.ends_with("\r\n\r\na"),
            "nothing beyond the length"
        );
        let mut old = bench.client();
        old.send(get("/", "1.0")).await;
        let reset = loop {
            match old.read().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert!(reset.is_err(), "an end would look whole");
        assert_eq!(bench.counters.responses_cut.get(), 4);
    });
}

#[test]
fn a_fault_gets_its_status_and_names_its_cause() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/later" => Answer::later(async { Err(Reason::HeadTimeout.into()) }),
            _ => Answer::Ready(Err(Reason::NoServer.into())),
        });
        let mut client = bench.client();
        client.send(GET).await;
        let answer = client.until("503 no-server\n").await;
        assert!(!answer.contains("cache-status"), "{answer}");
        client.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(
            client
                .until("504 head-timeout\n")
                .await
                .starts_with("HTTP/1.1 504 Gateway Timeout")
        );
    });
}

#[test]
fn a_panic_is_a_500_before_the_head_and_a_truncation_after_it() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/later" => Answer::later(async { panic!("in a future") }),
            "/body" => {
                let calls = Cell::new(0);
                let mut response = Response::new(200);
                response.body = Body::stream(Frames(move |_: &mut Context<'_>| {
                    assert_eq!(calls.replace(1), 0, "in a body");
                    Poll::Ready(Some(data("abc")))
                }));
                Answer::Ready(Ok(response))
            }
            _ => panic!("at once"),
        });
        let mut client = bench.client();
        client.send(GET).await;
        client.until("500 panic\n").await;
        client.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n").await;
        client.until("500 panic\n").await;
        client.send("GET /body HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(client.rest().await.ends_with("3\r\nabc\r\n"));
        assert_eq!(bench.counters.panics.get(), 3);
        assert_eq!(bench.counters.requests_now.get(), 0);
    });
}

#[test]
fn an_upgrade_becomes_a_tunnel_that_forwards_half_closes() {
    on_worker(async {
        let bench = Bench::new(|request| {
            let status = match request.head.path() {
                "/200" => 200,
                "/102" => 102,
                _ => 101,
            };
            let mut response = Response::new(status);
            response.fields.append("upgrade", "echo");
            let (near, far) = tokio::io::duplex(64);
            response.tunnel = (request.head.path() != "/").then(|| Box::new(near) as _);
            tokio::task::spawn_local(async move {
                let (mut read, mut write) = tokio::io::split(far);
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = tokio::io::AsyncWriteExt::write_all(&mut write, b"bye").await;
            });
            Answer::Ready(Ok(response))
        });
        let ask = |path| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
            )
        };
        let mut client = bench.client();
        client.send(ask("/up") + "early ").await;
        let head = client.until("\r\n\r\n").await;
        assert_eq!(
            head.lines().next(),
            Some("HTTP/1.1 101 Switching Protocols")
        );
        assert!(head.contains("upgrade: echo\r\n") && head.contains("connection: upgrade\r\n"));
        client.until("early ").await;
        let long = "z".repeat(5000);
        client.send(&long).await;
        client.until(&long).await;
        client.socket.shutdown_write();
        assert_eq!(client.rest().await, "bye");
        let mut nowhere = bench.client();
        for path in ["/", "/200", "/102"] {
            nowhere.send(ask(path)).await;
            nowhere.until("502 unexpected-status\n").await;
        }
        nowhere.send("GET /up HTTP/1.1\r\nHost: a\r\n\r\n").await;
        nowhere.until("502 unexpected-status\n").await;
    });
}

#[test]
fn parts_of_files_are_read_into_memory_if_the_transport_cannot_send_them() {
    on_worker(async {
        let content: Vec<u8> = (0..300_000).map(|i| b'a' + (i % 26) as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &content).expect("written");
        let file = Arc::new(std::os::fd::OwnedFd::from(file));
        let bench = Bench::new(move |request| {
            let ranges = match request.head.path() {
                "/short" => vec![0..10, 299_990..300_001],
                _ => vec![1..200_000, 200_000..299_999],
            };
            let parts = ranges.into_iter().map(|range| {
                let file = file.clone();
                Ok(Frame::File(crate::handler::FileRange { file, range }))
            });
            let mut response = Response::new(200);
            response.body = frames(parts.collect());
            Answer::Ready(Ok(response))
        });
        // The client has little room for unread bytes, so the file is sent in many small writes.
        let mut client = bench.client_with_room(1000);
        client.send(GET).await;
        client.until("\r\n\r\n").await;
        let got = client.until("0\r\n\r\n").await;
        let mut expected = String::new();
        let (mut rest, left) = (&content[1..299_999], [199_999, 99_999]);
        for mut part in left {
            while part > 0 {
                let n = part.min(64 << 10);
                let (piece, after) = rest.split_at(n);
                expected += &format!("{n:x}\r\n{}\r\n", String::from_utf8_lossy(piece));
                (rest, part) = (after, part - n);
            }
        }
        assert!(
            got == expected + "0\r\n\r\n",
            "the bytes of the file, in chunks"
        );
        // The file is shorter than the declared length, so the response is truncated.
        client.send("GET /short HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let got = client.rest().await;
        assert!(
            got.contains("a\r\nabcdefghij\r\n") && !got.ends_with("0\r\n\r\n"),
            "{got}"
        );
    });
}
