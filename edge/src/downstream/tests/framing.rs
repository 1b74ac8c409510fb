//! Tests of which requests are refused, and of where one request ends and the next begins.

use super::*;

#[test]
fn malformed_requests_get_their_status_and_a_closed_connection() {
    on_worker(async {
        assert!(malformed::all().len() >= 100);
        for (name, bytes, status) in malformed::all() {
            let bench = Bench::new(echo);
            let mut client = bench.client();
            client.send(&bytes).await;
            client
                .send("\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
                .await;
            let answer = client.rest().await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{name}: {answer}"
            );
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
            assert!(answer.contains("connection: close\r\n"), "{name}");
        }
    });
}

#[test]
fn unusual_but_correct_requests_are_served() {
    let p = "POST / HTTP/1.1\r\nHost: a\r\n";
    let accepted = [
        (
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_string(),
            "GET / ",
        ),
        (
            "GET /a/../b?c=\"|{ HTTP/1.1\r\nhost:a\r\n\r\n".to_string(),
            "GET /b?c=\"|{ ",
        ),
        (
            "GET http://A:80/x HTTP/1.1\r\nHost: a:80\r\n\r\n".to_string(),
            "GET /x ",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_string(),
            "OPTIONS * ",
        ),
        (
            "BREW / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t \r\n\r\n".to_string(),
            "BREW / ",
        ),
        (
            format!("{p}Content-Length: 05\r\n\r\nhello"),
            "POST / hello",
        ),
        (
            format!(
                "{p}TRANSFER-ENCODING: Chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n000\r\nX: y\r\n\r\n"
            ),
            "POST / hello+X: y\r\n",
        ),
    ];
    on_worker(async {
        let bench = Bench::new(echo);
        for (request, want) in accepted {
            for step in [1, request.len()] {
                let mut client = bench.client();
                for piece in request.as_bytes().chunks(step) {
                    client.send(piece).await;
                    tokio::task::yield_now().await;
                }
                let head = client.until("\r\n\r\n").await;
                assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{request}: {head}");
                assert_eq!(client.until(want).await, want, "{request}");
            }
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_and_turns_are_bounded() {
    on_worker(async {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = order.clone();
        let bench = Bench::new(move |request| {
            seen.borrow_mut().push(request.head.target.clone());
            ok(request.head.target.clone() + ";")
        });
        let (mut many, mut one) = (bench.client(), bench.client());
        let requests: String = (0..500)
            .map(|i| format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .collect();
        many.send(&requests).await;
        one.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n").await;
        for i in 0..500 {
            let answer = many.until(";").await;
            assert!(answer.ends_with(&format!("\r\n\r\n/{i};")), "{i}: {answer}");
        }
        one.until("/one;").await;
        let turn = order.borrow().iter().position(|target| target == "/one");
        assert!(turn.is_some_and(|at| at <= 64), "answered at {turn:?}");
    });
}

#[test]
fn connections_persist_as_each_version_specifies() {
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\n", true),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n",
            false,
        ),
        ("GET / HTTP/1.0\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", true),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n", false),
    ];
    on_worker(async {
        let bench = Bench::new(|_| ok("x;"));
        for (head, persists) in cases {
            let mut client = bench.client();
            client.send(format!("{head}\r\n")).await;
            let answer = client.until(";").await;
            assert_eq!(answer.contains("connection: close"), !persists, "{head}");
            match persists {
                true => {
                    client.send(GET).await;
                    client.until(";").await;
                }
                false => assert_eq!(client.rest().await, ""),
            }
        }
    });
}

#[test]
fn keep_alive_is_announced_if_configured_and_requests_are_limited() {
    on_worker(async {
        let options = Options {
            keepalive_header: true,
            keepalive_requests: 2,
            ..Options::default()
        };
        let bench = Bench::with(options, |_| ok("x;"));
        let mut client = bench.client();
        client.send([GET, GET, GET].concat()).await;
        let first = client.until(";").await;
        assert!(first.contains("connection: keep-alive\r\nkeep-alive: timeout=15\r\n"));
        assert!(client.until(";").await.contains("connection: close\r\n"));
        assert_eq!(client.rest().await, "", "the third goes unanswered");
    });
}

#[test]
fn head_gets_a_head_and_http_1_0_an_unframed_body() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/s" => {
                let mut response = Response::new(200);
                response.body = frames(vec![data("one "), data("two")]);
                Answer::Ready(Ok(response))
            }
            _ => ok("hello"),
        });
        let mut client = bench.client();
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(client.until("\r\n\r\n").await.contains("content-length: 5"));
        client.send("HEAD /s HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(!client.until("\r\n\r\n").await.contains("content-length"));
        client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let chunked = client.until("0\r\n\r\n").await;
        assert!(chunked.contains("transfer-encoding: chunked\r\n"));
        assert!(
            chunked.ends_with("\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"),
            "{chunked}"
        );
        client
            .send("GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .await;
        let old = client.rest().await;
        assert!(old.contains("connection: close\r\n"), "{old}");
        assert!(
            !old.contains("transfer-encoding") && old.ends_with("\r\n\r\none two"),
            "{old}"
        );
    });
}
