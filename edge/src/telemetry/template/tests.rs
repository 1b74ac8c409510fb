//! Tests of templates: which are refused, the lines of others, and that hostile bytes stay within
//! their field.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::telemetry::{AccessTls, AccessUpstream};

fn record<'a>() -> AccessRecord<'a> {
    AccessRecord {
        request_id: None,
        upstream_request_id: None,
        trace: None,
        time_unix_ms: 971_186_136_042,
        client: Ipv4Addr::new(192, 0, 2, 1).into(),
        peer: (Ipv4Addr::LOCALHOST, 5000).into(),
        scheme: "http",
        tls: None,
        method: "GET",
        authority: "cdn.example.com",
        target: "/a?b=1",
        version: "HTTP/1.1",
        refused_line: b"",
        status: 206,
        body_bytes: 2326,
        referer: None,
        user_agent: Some(b"curl/8 \"x\""),
        range: Some(b""),
        request_headers: &[],
        cache: Some("hit"),
        reason: None,
        request_us: 1_002_345,
        upstream: None,
        cut: false,
    }
}

fn line(text: &str, record: &AccessRecord<'_>) -> String {
    let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let (mut out, mut stamp) = (Vec::new(), Stamp::default());
    template.write(&mut out, record, &mut stamp);
    String::from_utf8(out).expect("lines are ASCII")
}

#[test]
fn every_field_has_its_form() {
    let mut record = record();
    record.upstream = Some(AccessUpstream {
        server: Some((Ipv4Addr::LOCALHOST, 9000).into()),
        tries: 1,
        status: Some(200),
        connect_us: 0,
        header_us: Some(1500),
        response_us: None,
        redirects: 2,
    });
    record.cut = true;
    record.tls = Some(AccessTls {
        version: "TLSv1.2",
        cipher: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        group: None,
        resumed: true,
        certificate: Some(("CN=a b>", "0af1")),
    });
    record.request_id = Some("a-1");
    record.upstream_request_id = Some("a-2");
    record.trace = Some(("4bf9", "00f0"));
    let forms = [
        ("request_id", "a-1"),
        ("upstream_request_id", "a-2"),
        ("trace_id", "4bf9"),
        ("span_id", "00f0"),
        ("client", "192.0.2.1"),
        ("peer", "127.0.0.1"),
        ("port", "5000"),
        ("scheme", "http"),
        ("tls", "TLSv1.2"),
        ("cipher", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("group", "-"),
        ("resumed", "resumed"),
        ("client_subject", "CN=a b\\x3E"),
        ("client_fingerprint", "0af1"),
        ("time_iso", "2000-10-10T13:55:36.042Z"),
        ("time_common", "10/Oct/2000:13:55:36 +0000"),
        ("time_unix", "971186136.042"),
        ("method", "GET"),
        ("host", "cdn.example.com"),
        ("target", "/a?b=1"),
        ("path", "/a"),
        ("query", "b=1"),
        ("version", "HTTP/1.1"),
        ("status", "206"),
        ("bytes", "2326"),
        ("referer", "-"),
        ("user_agent", "curl/8 \\x22x\\x22"),
        ("range", "-"),
        ("cache", "hit"),
        ("reason", "-"),
        ("cut", "cut"),
        ("request_us", "1002345"),
        ("request_time", "1.002"),
        ("upstream", "127.0.0.1:9000"),
        ("upstream_status", "200"),
        ("tries", "1"),
        ("connect_us", "0"),
        ("connect_time", "0.000"),
        ("header_us", "1500"),
        ("header_time", "0.001"),
        ("response_us", "-"),
        ("response_time", "-"),
        ("redirects", "2"),
    ];
    let names: Vec<&str> = forms.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, FIELD_NAMES);
    for (name, form) in forms {
        assert_eq!(
            line(&format!("<{{{name}}}>"), &record),
            format!("<{form}>\n")
        );
    }
}

#[test]
fn doubled_braces_are_literal_and_request_headers_are_listed_once() {
    let values: [Option<&[u8]>; 2] = [Some(b"a b"), None];
    let record = AccessRecord {
        request_headers: &values,
        ..record()
    };
    let text = "{{{request.X-Id}}} {request.via} {request.x-id}";
    assert_eq!(line(text, &record), "{a b} - a b\n");
    let template = Template::parse(text).expect("good");
    assert_eq!(
        template.request_headers(),
        [Box::from("x-id"), Box::from("via")]
    );
}

#[test]
fn a_fault_is_found_at_its_place() {
    use TemplateFault::*;
    let many = "{status} ".repeat(65);
    for (text, at, fault) in [
        ("a {clinet}", 2..10, Unknown("clinet".to_owned())),
        ("{}", 0..2, Unknown(String::new())),
        ("{request.a b}", 0..13, NoFieldName("a b".to_owned())),
        ("{request.}", 0..10, NoFieldName(String::new())),
        ("a {client", 2..9, Brace),
        ("a } {client}", 2..3, Brace),
        ("é {client}", 0..2, Character),
        ("{client}\n", 8..9, Character),
        ("{host}{target}", 6..14, Adjacent),
        ("{target}ms {status}", 8..9, Ending),
        ("{{ {target}\\", 11..12, Ending),
        ("{target}-{{{status}", 8..9, Ending),
        // A value that was too long ends in `...`, so a dot cannot mark the end of a value.
        ("{target}. {status}", 8..9, Ending),
        ("nothing", 0..7, NoField),
        ("", 0..0, NoField),
        (&many, 576..584, TooMuch),
    ] {
        let error = Template::parse(text).expect_err(text);
        assert_eq!(error, TemplateError { at, fault }, "{text}");
    }
    assert!(Template::parse(&"x".repeat(5000)).is_err());
    assert!(Template::parse("{request_us}us").is_ok());
}

/// Parses a line by its template and returns the unescaped values of the fields that clients
/// choose.
fn read_back(template: &Template, record: &AccessRecord<'_>, line: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut values) = (line, Vec::new());
    let mut stamp = Stamp::default();
    stamp.set(record.time_unix_ms);
    for piece in &template.pieces {
        let length = match piece {
            Piece::Text(text) => {
                assert!(rest.starts_with(text), "{:?}", line.escape_ascii());
                text.len()
            }
            Piece::Field(field, end) if field.is_foreign() => {
                let length = rest.iter().position(|b| b == end).expect("an end");
                values.push(unescape(&rest[..length]));
                length
            }
            Piece::Field(field, _) => {
                let mut own_form = Vec::new();
                own(&mut own_form, *field, record, &stamp);
                assert!(rest.starts_with(&own_form));
                own_form.len()
            }
        };
        rest = &rest[length..];
    }
    assert!(rest.is_empty());
    values
}

fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&first, rest)) = text.split_first() {
        text = rest;
        match first {
            b'\\' => {
                let code = std::str::from_utf8(&text[1..3]).expect("two digits");
                out.push(u8::from_str_radix(code, 16).expect("hexadecimal"));
                text = &text[3..];
            }
            _ => out.push(first),
        }
    }
    out
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let marks = prop::sample::select(b"\"\\ \n\r\t|;,[]{}-\x1b\x00\x7f\x85\xff".to_vec());
    prop::collection::vec(prop_oneof![marks, any::<u8>()], 0..40)
}

const TEMPLATES: [&str; 5] = [
    "{client} - - [{time_common}] \"{method} {target} {version}\" {status} {bytes} \"{referer}\" \"{user_agent}\"",
    "{time_iso}\t{host}\t{path}\t{query}\t{range}\t{request.x}\t{status}",
    "{user_agent}|{referer}|{request.x};{method},{request.y}",
    "[{referer}] [{user_agent}] {{{request.x}}} ({range})",
    "{request.y} {referer}={user_agent}:{target} {host}",
];

proptest! {
    #[test]
    fn any_bytes_stay_within_their_field(
        values in prop::collection::vec(hostile(), 5), strings in prop::collection::vec("\\PC*|[ \"\\\\\n|;,\t-]*", 3),
        which in 0..TEMPLATES.len(),
    ) {
        let template = Template::parse(TEMPLATES[which]).expect("a good one");
        let by_name = |name: &str| match name { "x" => &values[3], _ => &values[4] };
        let extra: Vec<Option<&[u8]>> =
            template.request_headers().iter().map(|name| Some(by_name(name).as_slice())).collect();
        let record = AccessRecord {
            method: &strings[0], authority: &strings[1], target: &strings[2],
            referer: Some(&values[0]), user_agent: Some(&values[1]), range: Some(&values[2]),
            request_headers: &extra,
            ..record()
        };
        let (mut out, mut stamp) = (Vec::new(), Stamp::default());
        template.write(&mut out, &record, &mut stamp);
        let body = out.strip_suffix(b"\n").expect("a line ends");
        prop_assert!(body.iter().all(|b| (b' '..0x7f).contains(b) || *b == b'\t'));
        let read = read_back(&template, &record, &out);
        let fields = template.pieces.iter().filter_map(|piece| match piece {
            Piece::Field(field, _) if field.is_foreign() => Some(*field),
            _ => None,
        });
        for (field, read) in fields.zip(read) {
            let value = foreign(field, &record).filter(|value| !value.is_empty()).unwrap_or(b"-");
            prop_assert_eq!(read, value);
        }
    }
}
