//! Tests of the request that the origin receives.

use super::*;

/// Returns the head that the origin receives for a request.
fn sent(testing: &Testing, origin: &Origin, request: Request) -> String {
    run(testing.fetch(request)).expect("a response");
    origin.next_request()
}

#[test]
fn a_request_is_built_from_its_checked_parts() {
    let origin = Origin::always(HELLO);
    let fields = [
        ("Host", "ignored.example"),
        ("User-Agent", "curl/8"),
        ("Accept", "*/*"),
        (
            "Connection",
            "keep-alive, X-Hop, Host, Cookie, X-Forwarded-For",
        ),
        ("Keep-Alive", "timeout=5"),
        ("X-Hop", "1"),
        ("Cookie", "a=b"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("TE", "gzip"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABk"),
        ("Expect", "100-continue"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "7"),
        ("Trailer", "X"),
        ("X-Forwarded-For", "203.0.113.66"),
        ("X_Forwarded_Proto", "https"),
        ("Forwarded", "for=203.0.113.66"),
        ("X-Real-IP", "203.0.113.66"),
        ("Via", "1.0 before"),
    ];
    let asked = request(Method::Get, "/a?b=c", &fields);
    let head = sent(&origin.upstream(), &origin, asked);
    let loops = head.lines().find(|line| line.starts_with("cdn-loop: "));
    let loops = loops.expect("always sent");
    assert!(loops.starts_with("cdn-loop: sluice-"), "{loops}");
    assert_eq!(
        head.replace(&format!("{loops}\r\n"), ""),
        "GET /a?b=c HTTP/1.1\r\n\
         host: example.com\r\n\
         user-agent: curl/8\r\n\
         accept: */*\r\n\
         cookie: a=b\r\n\
         via: 1.0 before\r\n\
         via: 1.1 sluice\r\n\
         x-forwarded-for: 192.0.2.7\r\n\
         x-forwarded-proto: http\r\n\
         x-forwarded-host: example.com\r\n\
         forwarded: for=192.0.2.7;host=\"example.com\";proto=http\r\n\r\n"
    );
}

#[test]
fn the_client_is_named_to_the_origin() {
    let origin = Origin::always(HELLO);
    let testing = origin.upstream();
    let mut asked = get("/");
    asked.peer.address = "[2001:db8::7]:1".parse().expect("an address");
    asked.peer.client = asked.peer.address.ip();
    asked.peer.scheme = Scheme::Https;
    asked.head.version = crate::http::Version::Http10;
    asked.head.authority.clear();
    let head = sent(&testing, &origin, asked);
    assert!(head.contains(&format!("\r\nhost: {}\r\n", origin.address)));
    assert!(head.contains("\r\nx-forwarded-for: 2001:db8::7\r\n"));
    assert!(head.contains("\r\nforwarded: for=\"[2001:db8::7]\";proto=https\r\n"));
    assert!(head.contains("\r\nvia: 1.0 sluice\r\n"));
    assert!(!head.contains("x-forwarded-host"));
    let mut mapped = get("/");
    mapped.peer.address = "[::ffff:192.0.2.9]:1".parse().expect("an address");
    mapped.peer.client = mapped.peer.address.ip().to_canonical();
    let head = sent(&origin.upstream(), &origin, mapped);
    assert!(head.contains("\r\nx-forwarded-for: 192.0.2.9\r\n"));
}

#[test]
fn a_client_is_named_together_with_the_trusted_proxy() {
    let origin = Origin::always(HELLO);
    let claims = [("X-Forwarded-For", "203.0.113.66, 2001:db8::7, 10.0.0.9")];
    let mut asked = request(Method::Get, "/", &claims);
    asked.peer.client = "2001:db8::7".parse().expect("an address");
    asked.peer.address = "10.0.0.1:1".parse().expect("an address");
    let head = sent(&origin.upstream(), &origin, asked);
    assert!(head.contains("\r\nx-forwarded-for: 2001:db8::7, 10.0.0.1\r\n"));
    let forwarded = "for=\"[2001:db8::7]\";host=\"example.com\";proto=http, for=10.0.0.1";
    assert!(
        head.contains(&format!("\r\nforwarded: {forwarded}\r\n")),
        "{head}"
    );
    assert_eq!(head.matches("203.0.113.66").count(), 0);
}

#[test]
fn the_host_may_be_configured() {
    let origin = Origin::always(HELLO);
    let mut options = Options::new(vec![origin.server()]);
    options.host = Some("inner.example:8080".into());
    let head = sent(&Testing::new(options), &origin, get("/"));
    assert!(head.contains("\r\nhost: inner.example:8080\r\n"));
    assert!(head.contains("\r\nx-forwarded-host: example.com\r\n"));
}

#[test]
fn targets_are_sent_as_received_except_for_bytes_that_no_uri_may_contain() {
    let origin = Origin::always(HELLO);
    let table = [
        ("/", "/"),
        ("/a%2Fb//c;d?e=f&g[]={h}|^", "/a%2Fb//c;d?e=f&g[]={h}|^"),
        ("/a{b}|^\"", "/a{b}|^\""),
        ("/<a>`?b=\"c\"&<d>", "/%3Ca%3E%60?b=%22c%22&%3Cd%3E"),
        ("/??", "/??"),
    ];
    for (target, line) in table {
        let head = sent(&origin.upstream(), &origin, get(target));
        assert!(
            head.starts_with(&format!("GET {line} HTTP/1.1\r\n")),
            "{head}"
        );
    }
    let asked = request(Method::Options, "*", &[]);
    let head = sent(&origin.upstream(), &origin, asked);
    assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"), "{head}");
    let asked = request(Method::Other("PROPFIND".into()), "/", &[]);
    let head = sent(&origin.upstream(), &origin, asked);
    assert!(head.starts_with("PROPFIND / HTTP/1.1\r\n"), "{head}");
}

#[test]
fn a_request_in_a_loop_is_stopped_before_it_reaches_a_server() {
    let origin = Origin::always(HELLO);
    let testing = origin.upstream();
    let entry = |head: &str| {
        let name = "\r\ncdn-loop: ";
        let at = head.rfind(name).expect("always sent") + name.len();
        head[at..].lines().next().expect("a value").to_owned()
    };
    run(async {
        testing.fetch(get("/x")).await.expect("a response");
        let entry = entry(&origin.next_request());
        let with = |target, entries: &str| request(Method::Get, target, &[("CDN-Loop", entries)]);
        let back = testing.fetch(with("/x", &format!("other, {entry}"))).await;
        assert_eq!(back, Err(Reason::Loop));
        assert_eq!(testing.status()[0].requests, 1);
        assert!(testing.fetch(with("/other", &entry)).await.is_ok());
        assert!(
            testing
                .fetch(with("/x", "sluice-0;k=0, other"))
                .await
                .is_ok()
        );
        let often = vec![entry; 8].join(", ");
        assert_eq!(
            testing.fetch(with("/other", &often)).await,
            Err(Reason::Loop)
        );
    });
}

#[test]
fn via_may_be_left_out_and_x_real_ip_sent() {
    let origin = Origin::always(HELLO);
    let mut options = Options::new(vec![origin.server()]);
    (options.via, options.x_real_ip) = (false, true);
    let fields = [("Via", "1.1 before"), ("X-Real-IP", "203.0.113.66")];
    let head = sent(
        &Testing::new(options),
        &origin,
        request(Method::Get, "/", &fields),
    );
    assert!(!head.contains("\r\nvia: "), "{head}");
    assert!(head.contains("\r\nx-real-ip: 192.0.2.7\r\n"), "{head}");
    assert!(!head.contains("203.0.113.66"), "{head}");
}

#[test]
fn connect_is_refused() {
    let testing = Testing::new(Options::new(Vec::new()));
    let answer = testing.upstream.handle(request(Method::Connect, "/", &[]));
    assert!(matches!(answer, Answer::Ready(Ok(response)) if response.status == 501));
}
