//! Makes the request that a question is about: writes it as a client would, and parses it as a client's request.

use std::net::IpAddr;

use bytes::Bytes;

use crate::admin::Question;
use crate::config::Plan;
use crate::downstream::Refusal;
use crate::downstream::http1::head::{Limits, Parsed, parse};
use crate::handler::{Body, Peer, Request};
use crate::http::Fields;
use crate::http::fields::{is_field_value, is_token};
use crate::http::url::Url;

/// A request, or the refusal that its client would get.
pub(in crate::wiring) type Asked = Result<Request, Refusal>;

/// Makes the request that a question is about.
///
/// # Errors
///
/// URL, method, headers or address are invalid. The text says why.
pub(in crate::wiring) fn request(question: &Question, plan: &Plan) -> Result<(Url, Asked), String> {
    let url = Url::parse(&question.url)?;
    if !is_token(question.method.as_bytes()) {
        return Err("the method is not a valid one\n(write it as in GET)".to_owned());
    }
    let fields = fields(&question.headers)?;
    if fields.contains("host") {
        return Err("a Host header is not needed\n(write the host in the URL)".to_owned());
    }
    let client: IpAddr = question
        .client
        .parse()
        .map_err(|_| "the client is an IP address, as in 192.0.2.7".to_owned())?;
    let local = plan
        .listeners
        .iter()
        .find_map(|listener| listener.address.ip());
    let peer = Peer {
        address: (client, 0).into(),
        client,
        local: local.map_or_else(|| ([127, 0, 0, 1], 0).into(), Into::into),
        scheme: url.scheme,
        tls: None,
        shared: false,
    };
    let text = text(question, &url, &fields);
    let asked = match parse(&text, &limits(plan)) {
        Ok(Some(parsed)) => Ok(received(parsed, peer, plan)),
        Ok(None) => return Err("this is not a complete request".to_owned()),
        Err(refusal) => Err(refusal),
    };
    Ok((url, asked))
}

/// Writes a request as clients do, with the target as it is in the question.
fn text(question: &Question, url: &Url, fields: &Fields) -> Vec<u8> {
    let rest = question.url.split_once("://").map_or("", |(_, rest)| rest);
    let target = rest.find(['/', '?']).map_or("/", |at| &rest[at..]);
    let slash = if target.starts_with('/') { "" } else { "/" };
    let (method, host) = (&question.method, &url.authority);
    let mut text = format!("{method} {slash}{target} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for (name, value) in fields.iter() {
        for part in [name, b": ", value, b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn limits(plan: &Plan) -> Limits {
    Limits {
        request_line: plan.limits.request_line,
        headers: plan.limits.headers,
        body: plan.limits.body,
    }
}

/// Returns a request as handlers get it. Of a body, only its existence matters.
fn received(parsed: Parsed, peer: Peer, plan: &Plan) -> Request {
    let has_body = parsed.has_body();
    let mut head = parsed.head;
    let peer = plan.trust.peer(peer, &head.fields);
    head.normalize_authority(peer.scheme);
    Request {
        head,
        body: match has_body {
            true => Body::Bytes(Bytes::from_static(b"-")),
            false => Body::Empty,
        },
        peer,
        interim: None,
    }
}

/// Parses lines of request headers.
///
/// # Errors
///
/// A line is no valid header.
pub(in crate::wiring) fn fields(lines: &str) -> Result<Fields, String> {
    let mut fields = Fields::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(':').unwrap_or_default();
        let value = value.trim();
        // White space before the colon is refused as in a client's request (RFC 9112 5.1).
        if !is_token(name.as_bytes()) || !is_field_value(value.as_bytes()) {
            return Err("a header is written as in Accept-Language: de".to_owned());
        }
        fields.append(name, value);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan() -> Plan {
        let text = "[[route]]\nrespond = { status = 200 }\n";
        crate::config::parse("test.toml", text)
            .expect("a plan")
            .plan
    }

    #[test]
    fn a_question_becomes_the_request_of_a_client() {
        let mut question = Question::of("HTTP://A.Example:80?x=%7e", "Accept-Language: de\nX: 1");
        question.client = "192.0.2.7".to_owned();
        let (url, asked) = request(&question, &plan()).expect("a valid question");
        assert_eq!(url.to_string(), "http://a.example/?x=%7e");
        let Ok(request) = asked else {
            panic!("the request is not refused");
        };
        let head = &request.head;
        assert_eq!((&*head.authority, &*head.target), ("a.example", "/?x=%7e"));
        assert_eq!(head.fields.get("x"), Some(&b"1"[..]));
        assert_eq!(request.peer.client, IpAddr::from([192, 0, 2, 7]));
        assert!(request.body.is_empty());
    }

    #[test]
    fn a_wrong_question_is_an_error_and_a_refused_request_is_not() {
        let ask = |url: &str, method: &str, headers: &str| {
            let question = Question {
                method: method.to_owned(),
                ..Question::of(url, headers)
            };
            request(&question, &plan()).map(|(_, asked)| asked.err())
        };
        for (url, method, headers) in [
            ("a", "GET", ""),
            ("http://a/\r\nX: y", "GET", ""),
            ("http://a/", "GET X", ""),
            ("http://a/", "", ""),
            ("http://a/", "GET", "no colon"),
            ("http://a/", "GET", "x: a\0b"),
            ("http://a/", "GET", "Host: b"),
            ("http://a/", "GET", "Content-Length : 1"),
            ("http://a/", "GET", " X: folded"),
        ] {
            assert!(
                ask(url, method, headers).is_err(),
                "{url} {method} {headers}"
            );
        }
        for (method, headers, reason) in [
            ("CONNECT", "", "connect"),
            ("POST", "Content-Length: 99999999", "request-body-too-large"),
            ("GET", "Content-Length: 1\nTransfer-Encoding: chunked", ""),
        ] {
            let refusal = ask("http://a/", method, headers).expect("a valid question");
            let refusal = refusal.unwrap_or_else(|| panic!("{method} is refused"));
            assert!(refusal.reason.text().contains(reason), "{}", refusal.reason);
        }
    }

    proptest! {
        #[test]
        fn no_question_panics(url in "(https?://)?.{0,40}", method in ".{0,8}", headers in "(.{0,20}\n?){0,4}", client in ".{0,12}") {
            let question = Question { url, method, headers, client };
            let _ = request(&question, &plan());
        }
    }
}
