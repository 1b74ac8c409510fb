//! Tests of switching protocols (101).

use super::*;
use crate::balance::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn upgrading() -> Request {
    let fields = [("Connection", "Upgrade"), ("Upgrade", "echo")];
    let mut request = request(Method::Get, "/", &fields);
    request.head.wants_tunnel = true;
    request
}

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly",
        );
        let mut buffer = [0; 100];
        while let Ok(n @ 1..) = served.stream.read(&mut buffer) {
            served.send(&buffer[..n]);
        }
    });
    run(async {
        let testing = origin.upstream();
        let response = testing.ask(upgrading()).await.expect("a response");
        assert_eq!(response.status, 101);
        assert_eq!(response.fields.get("upgrade"), Some(&b"echo"[..]));
        let mut tunnel = response.tunnel.expect("a tunnel");
        let mut early = [0; 5];
        tunnel.read_exact(&mut early).await.expect("bytes");
        assert_eq!(&early, b"early");
        for word in [b"one", b"two"] {
            let mut echoed = [0; 3];
            tunnel.write_all(word).await.expect("a stream");
            tunnel.read_exact(&mut echoed).await.expect("an echo");
            assert_eq!(&echoed, word);
        }
        assert_eq!(testing.counters.upstream_busy_now.get(), 1);
        drop(tunnel);
        assert_eq!(testing.counters.upstream_busy_now.get(), 0);
    });
    let head = origin.next_request();
    assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    assert!(head.contains("\r\nupgrade: echo\r\n"), "{head}");
}

#[test]
fn an_origin_may_decline_to_upgrade() {
    let origin = Origin::always(HELLO);
    run(async {
        let testing = origin.upstream();
        for _ in 0..2 {
            let got = testing.fetch(upgrading()).await;
            assert_eq!(got, Ok((200, b"hello".to_vec())));
        }
        assert_eq!(testing.status()[0].connects, 1);
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive = 0;
        let got = Testing::new(options).fetch(upgrading()).await;
        assert!(got.is_ok());
    });
    for _ in 0..3 {
        assert!(!origin.next_request().contains("close"));
    }
}

fn request_to_upgrade(protocols: &str) -> Request {
    let mut request = request(Method::Get, "/", &[("Upgrade", protocols)]);
    request.head.wants_tunnel = true;
    request
}

#[test]
fn only_requested_protocols_are_switched_to() {
    for (status_line, chosen, accepted) in [
        ("HTTP/1.1 101 X", "upgrade: websocket\r\n", true),
        ("HTTP/1.1 101 X", "upgrade: echo/2, WebSocket\r\n", true),
        ("HTTP/1.1 101 X", "upgrade: websocket, other\r\n", false),
        ("HTTP/1.1 101 X", "upgrade: h2c\r\n", false),
        ("HTTP/1.1 101 X", "", false),
        ("HTTP/1.0 101 X", "upgrade: websocket\r\n", false),
    ] {
        let origin = Origin::once(format!("{status_line}\r\n{chosen}\r\n"));
        let asked = run(origin
            .upstream()
            .ask(request_to_upgrade("WebSocket, h2c, echo/2")));
        let expected = accepted.then_some(101).ok_or(Reason::UnexpectedStatus);
        let got = asked.map(|response| response.status);
        assert_eq!(got, expected, "{status_line} {chosen}");
    }
}

#[test]
fn protocols_that_would_bypass_the_rules_are_not_forwarded() {
    for (asked, sent) in [
        ("h2c", None),
        ("H2C, TLS/1.0, tls", None),
        ("h2c, websocket ,TLS/1.2", Some("websocket")),
        ("websocket, echo/1", Some("websocket, echo/1")),
    ] {
        let origin = Origin::always(HELLO);
        run(origin.upstream().fetch(request_to_upgrade(asked))).expect("a response");
        let head = origin.next_request();
        let line = |name: &str| {
            let name = format!("{name}: ");
            head.lines().find_map(|line| line.strip_prefix(&name))
        };
        assert_eq!(line("upgrade"), sent, "{asked}");
        assert_eq!(line("connection"), sent.map(|_| "upgrade"), "{asked}");
    }
}

#[test]
fn a_tunnel_that_fails_before_it_begins_is_no_answer() {
    let origin = Origin::new(|_, served| {
        served.request();
        served.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        served.await_close();
    });
    let record = Recorded::default();
    run(async {
        let testing = origin.upstream();
        testing.record_choices(&record);
        let mut request = upgrading();
        request.head.method = Method::Post;
        let upload = Fed::default();
        upload.data(b"part");
        upload.feed(Some(Err(Reason::ClientGone.into())));
        request.body = Body::stream(upload);
        let got = testing.ask(request).await.map(|response| response.status);
        assert_eq!(got, Err(Reason::ClientGone));
    });
    assert_eq!(*record.outcomes.borrow(), [Outcome::Cancelled]);
}
