//! Switching protocols.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn upgrading() -> Request {
    let fields = [("Connection", "Upgrade"), ("Upgrade", "echo")];
    let mut request = request(Method::Get, "/", &fields);
    request.head.upgrade = true;
    request
}

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let origin = Origin::new(|_, wire| {
        wire.request();
        wire.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly",
        );
        let mut buffer = [0; 100];
        while let Ok(n @ 1..) = wire.stream.read(&mut buffer) {
            wire.send(&buffer[..n]);
        }
    });
    run(async {
        let testing = origin.upstream();
        let response = testing.ask(upgrading()).await.expect("a response");
        assert_eq!(response.status, 101);
        assert_eq!(response.fields.get("upgrade"), Some(&b"echo"[..]));
        let mut tunnel = response.upgrade.expect("a tunnel");
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
        assert_eq!(testing.shared.status()[0].connects, 1);
        let mut options = Options::new(vec![origin.server()]);
        options.keepalive = 0;
        let got = Testing::new(options).fetch(upgrading()).await;
        assert!(got.is_ok());
    });
    for _ in 0..3 {
        assert!(!origin.next_request().contains("close"));
    }
}
