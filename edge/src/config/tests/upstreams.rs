//! Tests of `[upstream.NAME]`: servers that are down, the port of health checks, and a secret in a file.

use super::*;
use crate::upstream::Http2;

/// Returns an upstream with this text, and a route to it.
fn with_upstream(upstream: &str) -> String {
    format!("[upstream.o]\n{upstream}\n[[route]]\nproxy = \"o\"\n")
}

#[test]
fn servers_may_be_down_and_an_upstream_without_another_gets_a_warning() {
    let text = with_upstream(
        "servers = [{ url = \"http://a\", down = true }, \"http://b\"]\nhealth = { port = 8081 }",
    );
    let plan = plan(&text);
    let options = &plan.upstreams["o"];
    let down: Vec<bool> = options.servers.iter().map(|server| server.down).collect();
    assert_eq!(down, [true, false]);
    let port = options.health.as_ref().and_then(|health| health.port);
    assert_eq!(port, Some(8081));
    assert_eq!(said(&text).trim(), "");
    let cases = [
        "servers = [{ url = \"http://a\", down = true }, { url = \"http://b\", down = true }]",
        "servers = [\"http://a\", \"unix:/run/app.sock\"]\nhealth = { port = 80 }",
        "servers = \"http://a\"\nhealth = { port = 0 }",
        "servers = \"http://a\"\nhealth = { port = 65536 }",
    ];
    let said: String = cases
        .iter()
        .map(|text| said(&with_upstream(text)))
        .collect();
    insta::assert_snapshot!("down_and_ports", said);
}

#[test]
fn http2_is_negotiated_known_demanded_or_switched_off() {
    let http2 = |text: &str| {
        let plan = plan(&with_upstream(text));
        let options = &plan.upstreams["o"];
        let protocols = options.tls.protocols.join(" ");
        (options.http2, options.servers[0].h2c, protocols)
    };
    let both = || "h2 http/1.1".to_owned();
    let https = "servers = \"https://a\"";
    assert_eq!(http2(https), (Http2::Negotiated, false, both()));
    let h2c = "servers = \"h2c://a:50051\"";
    assert_eq!(http2(h2c), (Http2::Negotiated, true, both()));
    for (version, expected, protocols) in [
        ("1.0", Http2::Never, "http/1.1"),
        ("1.1", Http2::Never, "http/1.1"),
        ("2", Http2::Always, "h2"),
    ] {
        let text = format!("{https}\nhttp = \"{version}\"");
        assert_eq!(http2(&text), (expected, false, protocols.to_owned()));
    }
    let routed = plan("[[route]]\nproxy = \"h2c://a\"\n");
    assert!(routed.upstreams["h2c://a:80"].servers[0].h2c);
    let said = said(&with_upstream(&format!("{h2c}\nhttp = \"1.1\"")));
    assert!(said.contains("a server of `h2c://` needs HTTP/2"), "{said}");
}

const SIGN: &str = "servers = \"http://a\"\nsign = { region = \"r\", access_key = \"a\", ";

/// Checks a text, as if each file had this content.
fn with_file(text: &str, content: std::io::Result<&str>) -> Result<Loaded, Report> {
    let read = |_: &Path| {
        let content = content.as_ref().map(|text| (*text).to_owned());
        Some(content.map_err(|error| error.kind().into()))
    };
    loading::examine("sluice.toml", text, &|_| None, &read, Purpose::Reload)
}

#[test]
fn a_secret_is_read_from_its_file_and_never_shown() {
    let text = with_upstream(&format!("{SIGN}secret_key_file = \"/etc/s3.key\" }}"));
    let loaded = with_file(&text, Ok("secret\n")).expect("a plan");
    let sign = loaded.plan.upstreams["o"].sign.as_ref().expect("a key");
    assert_eq!(sign.secret_key, "secret");
    let file = sign.secret_key_file.as_deref();
    assert_eq!(file, Some(Path::new("/etc/s3.key")));
    assert!(!format!("{loaded:?}").contains("secret\""));
    let missing = std::io::ErrorKind::NotFound.into();
    let both = with_upstream(&format!(
        "{SIGN}secret_key = \"s\", secret_key_file = \"/etc/s3.key\" }}"
    ));
    let none = with_upstream(&format!("{SIGN}}}"));
    let refused = [
        with_file(&text, Err(missing)),
        with_file(&text, Ok("\n")),
        with_file(&text, Ok("two words")),
        with_file(&both, Ok("secret")),
        with_file(&none, Ok("secret")),
    ];
    let refused = refused.map(|result| result.expect_err("it is refused").render(false));
    insta::assert_snapshot!("secrets_in_files", refused.concat());
}
