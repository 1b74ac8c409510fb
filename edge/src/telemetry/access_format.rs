//! The lines of the access log in the formats combined and JSON, written into a buffer without
//! allocating.
//!
//! Every value that a client can choose is escaped, so that it can end neither its field nor its line
//! and has no effect on a terminal.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use super::access_record::{AccessRecord, AccessTls, AccessUpstream};
use crate::sys::Address;

/// Most bytes that are logged of one value. A longer value is cut and ends in `...`.
const FIELD_MAX: usize = 8 << 10;

/// The last second that httpdate can format (in the year 9999).
const SECOND_MAX: u64 = 253_402_300_799;

/// The text of a second, which is formatted once and used for all records of that second.
#[derive(Default)]
pub(super) struct Stamp {
    second: u64,
    /// Time in the combined format: `10/Oct/2000:13:55:36 +0000`.
    pub(super) combined: [u8; 26],
    /// Time in ISO 8601: `2000-10-10T13:55:36`.
    json: [u8; 19],
}

impl Stamp {
    /// Formats the second of `unix_ms`, unless that second is already formatted.
    pub(super) fn set(&mut self, unix_ms: u64) {
        let second = (unix_ms / 1000).min(SECOND_MAX);
        if second == self.second && self.json[0] != 0 {
            return;
        }
        self.second = second;
        let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        // httpdate writes exactly 29 bytes: `Tue, 10 Oct 2000 13:55:36 GMT`.
        let mut text = [0; 29];
        if write!(&mut text[..], "{date}").is_err() {
            return;
        }
        let (day, month, year, time) = (&text[5..7], &text[8..11], &text[12..16], &text[17..25]);
        join(
            &mut self.combined,
            &[day, b"/", month, b"/", year, b":", time, b" +0000"],
        );
        join(
            &mut self.json,
            &[year, b"-", month_number(month), b"-", day, b"T", time],
        );
    }
}

impl Stamp {
    /// Writes a time of the current second as `2000-10-10T13:55:36.042Z`.
    pub(super) fn write_iso(&self, out: &mut Vec<u8>, unix_ms: u64) {
        out.extend_from_slice(&self.json);
        out.push(b'.');
        three_digits(out, (unix_ms % 1000) as u16);
        out.push(b'Z');
    }
}

fn join(into: &mut [u8], parts: &[&[u8]]) {
    let mut at = 0;
    for part in parts {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

fn month_number(name: &[u8]) -> &'static [u8] {
    match name {
        b"Jan" => b"01",
        b"Feb" => b"02",
        b"Mar" => b"03",
        b"Apr" => b"04",
        b"May" => b"05",
        b"Jun" => b"06",
        b"Jul" => b"07",
        b"Aug" => b"08",
        b"Sep" => b"09",
        b"Oct" => b"10",
        b"Nov" => b"11",
        _ => b"12",
    }
}

/// Writes a line in the combined format, followed by the cache status or `-`.
pub(super) fn combined_cache(out: &mut Vec<u8>, record: &AccessRecord<'_>, stamp: &mut Stamp) {
    combined(out, record, stamp);
    // Replaces the end of the line.
    out.pop();
    out.push(b' ');
    out.extend_from_slice(record.cache.unwrap_or("-").as_bytes());
    out.push(b'\n');
}

/// Writes a line in nginx's combined format: `$remote_addr - $remote_user [$time_local] "$request"
/// $status $body_bytes_sent "$http_referer" "$http_user_agent"`. Times are in UTC.
pub(super) fn combined(out: &mut Vec<u8>, record: &AccessRecord<'_>, stamp: &mut Stamp) {
    stamp.set(record.time_unix_ms);
    address(out, record.client);
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(&stamp.combined);
    out.extend_from_slice(b"] \"");
    if !record.refused_line.is_empty() {
        escape(out, record.refused_line, b'"', escape_hex);
    } else if record.method.is_empty() {
        out.push(b'-');
    } else {
        escape(out, record.method.as_bytes(), b' ', escape_hex);
        out.push(b' ');
        escape(out, record.target.as_bytes(), b' ', escape_hex);
        out.push(b' ');
        escape(out, record.version.as_bytes(), b'"', escape_hex);
    }
    out.extend_from_slice(b"\" ");
    status(out, record.status);
    out.push(b' ');
    number(out, record.body_bytes);
    for field in [record.referer, record.user_agent] {
        out.extend_from_slice(b" \"");
        escape(out, field.unwrap_or(b"-"), b'"', escape_hex);
        out.push(b'"');
    }
    out.push(b'\n');
}

/// Writes a status as nginx does, with three digits. `000` means that no status was sent.
pub(super) fn status(out: &mut Vec<u8>, status: u16) {
    three_digits(out, status);
}

/// Writes the last three digits of a number.
pub(super) fn three_digits(out: &mut Vec<u8>, n: u16) {
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[digit(n / 100), digit(n / 10), digit(n)]);
}

/// Writes a line that is a JSON object. Absent values are left out; times are in microseconds.
pub(super) fn json(out: &mut Vec<u8>, record: &AccessRecord<'_>, stamp: &mut Stamp) {
    stamp.set(record.time_unix_ms);
    out.extend_from_slice(b"{\"time\":\"");
    stamp.write_iso(out, record.time_unix_ms);
    out.extend_from_slice(b"\",\"client\":\"");
    address(out, record.client);
    out.push(b'"');
    for (name, value) in [
        ("method", record.method),
        ("host", record.authority),
        ("target", record.target),
        ("version", record.version),
    ] {
        if !value.is_empty() {
            string(out, name, value.as_bytes());
        }
    }
    field(out, "status", u64::from(record.status));
    field(out, "bytes", record.body_bytes);
    if let Some(tls) = &record.tls {
        tls_fields(out, tls);
    }
    let texts = [
        ("request_id", record.request_id.map(str::as_bytes)),
        (
            "upstream_request_id",
            record.upstream_request_id.map(str::as_bytes),
        ),
        ("trace_id", record.trace.map(|(id, _)| id.as_bytes())),
        ("span_id", record.trace.map(|(_, id)| id.as_bytes())),
        ("referer", record.referer),
        ("user_agent", record.user_agent),
        ("range", record.range),
        ("cache", record.cache.map(str::as_bytes)),
        (
            "reason",
            record.reason.map(|reason| reason.text().as_bytes()),
        ),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            string(out, name, value);
        }
    }
    field(out, "request_us", record.request_us);
    if let Some(upstream) = &record.upstream {
        upstream_fields(out, upstream);
    }
    if record.cut {
        out.extend_from_slice(b",\"cut\":true");
    }
    out.extend_from_slice(b"}\n");
}

fn tls_fields(out: &mut Vec<u8>, tls: &AccessTls<'_>) {
    string(out, "tls", tls.version.as_bytes());
    string(out, "cipher", tls.cipher.as_bytes());
    if let Some(group) = tls.group {
        string(out, "group", group.as_bytes());
    }
    name(out, "resumed");
    let resumed: &[u8] = if tls.resumed { b"true" } else { b"false" };
    out.extend_from_slice(resumed);
    if let Some((subject, fingerprint)) = tls.certificate {
        string(out, "client_subject", subject.as_bytes());
        string(out, "client_fingerprint", fingerprint.as_bytes());
    }
}

fn upstream_fields(out: &mut Vec<u8>, upstream: &AccessUpstream) {
    if let Some(server) = upstream.server {
        out.extend_from_slice(b",\"upstream\":\"");
        server_address(out, server);
        out.push(b'"');
    }
    let redirects = upstream.redirects > 0;
    let numbers = [
        ("upstream_status", upstream.status.map(u64::from)),
        ("tries", Some(upstream.tries.into())),
        ("connect_us", Some(upstream.connect_us)),
        ("header_us", upstream.header_us),
        ("response_us", upstream.response_us),
        ("redirects", redirects.then_some(upstream.redirects.into())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            field(out, name, value);
        }
    }
}

fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn field(out: &mut Vec<u8>, key: &str, value: u64) {
    name(out, key);
    number(out, value);
}

fn string(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    name(out, key);
    out.push(b'"');
    escape(out, value, b'"', escape_json);
    out.push(b'"');
}

pub(super) fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

pub(super) fn address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            number(out, u64::from(a));
            for part in [b, c, d] {
                out.push(b'.');
                number(out, u64::from(part));
            }
        }
        // Writing to a Vec can't fail.
        IpAddr::V6(v6) => _ = write!(out, "{v6}"),
    }
}

pub(super) fn server_address(out: &mut Vec<u8>, server: Address) {
    let Address::Ip(server) = server else {
        // Writing to a Vec can't fail.
        _ = write!(out, "{server}");
        return;
    };
    match server.ip().to_canonical() {
        ip @ IpAddr::V4(_) => address(out, ip),
        ip @ IpAddr::V6(_) => {
            out.push(b'[');
            address(out, ip);
            out.push(b']');
        }
    }
    out.push(b':');
    number(out, u64::from(server.port()));
}

/// Whether a byte can be written as it is: visible ASCII or space, except quote and backslash.
#[inline]
fn is_plain(b: u8) -> bool {
    (b' '..0x7f).contains(&b) & (b != b'"') & (b != b'\\')
}

/// Writes a value and escapes it. The byte `end`, which delimits the value, is escaped, too.
/// `other` escapes bytes.
#[inline]
pub(super) fn escape(out: &mut Vec<u8>, value: &[u8], end: u8, other: fn(&mut Vec<u8>, u8)) {
    let logged = &value[..value.len().min(FIELD_MAX)];
    // All bytes are tested without early exit, since the compiler then tests many at once. Nearly
    // all values need no escaping.
    if logged
        .iter()
        .fold(0, |other, &b| other | u8::from(!is_plain(b) | (b == end)))
        == 0
    {
        out.extend_from_slice(logged);
    } else {
        for &b in logged {
            match is_plain(b) && b != end {
                true => out.push(b),
                false => other(out, b),
            }
        }
    }
    if logged.len() < value.len() {
        out.extend_from_slice(b"...");
    }
}

/// Escapes a byte as nginx does: `\x0A`.
pub(super) fn escape_hex(out: &mut Vec<u8>, b: u8) {
    out.extend_from_slice(&[b'\\', b'x', hex(b >> 4), hex(b & 15)]);
}

/// Escapes a byte for JSON (RFC 8259 7). Each byte is one character, so bytes above 0x7F are read
/// as Latin-1.
fn escape_json(out: &mut Vec<u8>, b: u8) {
    match b {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
        _ => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(b >> 4), hex(b & 15)]),
    }
}

fn hex(nibble: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(nibble & 15)]
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn record<'a>() -> AccessRecord<'a> {
        AccessRecord {
            request_id: None,
            upstream_request_id: None,
            trace: None,
            time_unix_ms: 971_186_136_042,
            client: Ipv4Addr::new(127, 0, 0, 1).into(),
            peer: (Ipv4Addr::new(127, 0, 0, 1), 5000).into(),
            scheme: "http",
            tls: None,
            method: "GET",
            authority: "cdn.example.com",
            target: "/apache_pb.gif?a=1",
            version: "HTTP/1.0",
            refused_line: b"",
            status: 200,
            body_bytes: 2326,
            referer: Some(b"http://www.example.com/start.html"),
            user_agent: Some(b"Mozilla/4.08 [en] (Win98; I ;Nav)"),
            range: None,
            request_headers: &[],
            cache: Some("hit"),
            reason: None,
            request_us: 71,
            upstream: None,
            cut: false,
        }
    }

    fn lines(record: &AccessRecord<'_>) -> (String, String) {
        let (mut a, mut b, mut stamp) = (Vec::new(), Vec::new(), Stamp::default());
        combined(&mut a, record, &mut stamp);
        json(&mut b, record, &mut stamp);
        let text = |line| String::from_utf8(line).expect("lines are ASCII");
        (text(a), text(b))
    }

    #[test]
    fn the_combined_format_is_that_of_nginx() {
        let mut record = record();
        assert_eq!(
            lines(&record).0,
            "127.0.0.1 - - [10/Oct/2000:13:55:36 +0000] \"GET /apache_pb.gif?a=1 HTTP/1.0\" 200 2326 \
             \"http://www.example.com/start.html\" \"Mozilla/4.08 [en] (Win98; I ;Nav)\"\n"
        );
        record.client = Ipv6Addr::LOCALHOST.into();
        (record.method, record.status, record.body_bytes) = ("", 0, 0);
        (record.referer, record.user_agent) = (None, Some(&b""[..]));
        assert_eq!(
            lines(&record).0,
            "::1 - - [10/Oct/2000:13:55:36 +0000] \"-\" 000 0 \"-\" \"\"\n"
        );
    }

    #[test]
    fn a_json_line_has_every_field_of_its_record() {
        let mut record = record();
        record.range = Some(b"bytes=0-9");
        record.reason = Some(crate::reason::Reason::BodyCut);
        record.cut = true;
        record.tls = Some(AccessTls {
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            group: Some("X25519"),
            resumed: false,
            certificate: Some(("CN=\"a\"", "0af1")),
        });
        record.upstream = Some(AccessUpstream {
            server: Some((Ipv6Addr::LOCALHOST, 9000).into()),
            tries: 3,
            status: Some(206),
            connect_us: 5,
            header_us: Some(6),
            response_us: None,
            redirects: 2,
        });
        assert_eq!(
            lines(&record).1,
            concat!(
                r#"{"time":"2000-10-10T13:55:36.042Z","client":"127.0.0.1","method":"GET","host":"cdn.example.com","#,
                r#""target":"/apache_pb.gif?a=1","version":"HTTP/1.0","status":200,"bytes":2326,"#,
                r#""tls":"TLSv1.3","cipher":"TLS_AES_128_GCM_SHA256","group":"X25519","resumed":false,"#,
                r#""client_subject":"CN=\"a\"","client_fingerprint":"0af1","#,
                r#""referer":"http://www.example.com/start.html","user_agent":"Mozilla/4.08 [en] (Win98; I ;Nav)","#,
                r#""range":"bytes=0-9","cache":"hit","reason":"body-cut","request_us":71,"upstream":"[::1]:9000","#,
                r#""upstream_status":206,"tries":3,"connect_us":5,"header_us":6,"redirects":2,"cut":true}"#,
                "\n"
            )
        );
    }

    #[test]
    fn injected_lines_stay_within_their_field() {
        let mut record = record();
        record.user_agent = Some(b"a\" 200 0\n127.0.0.1 - - \x1b[2J\\x \xe9\x7f");
        record.referer = Some(b"\",\"status\":\"500");
        let (combined, json) = lines(&record);
        assert!(combined.ends_with(
            " \"\\x22,\\x22status\\x22:\\x22500\" \"a\\x22 200 0\\x0A127.0.0.1 - - \\x1B[2J\\x5Cx \\xE9\\x7F\"\n"
        ));
        let value: serde_json::Value = serde_json::from_str(&json).expect("a JSON object");
        assert_eq!(value["status"], 200);
        assert_eq!(value["referer"], "\",\"status\":\"500");
        assert_eq!(
            value["user_agent"],
            "a\" 200 0\n127.0.0.1 - - \u{1b}[2J\\x \u{e9}\u{7f}"
        );
    }

    #[test]
    fn a_field_is_cut_at_its_limit_and_a_date_at_the_last_year() {
        let long = vec![b'"'; 100_000];
        let mut record = record();
        record.referer = Some(&long);
        record.time_unix_ms = u64::MAX;
        let (combined, json) = lines(&record);
        assert!(combined.len() < 4 * FIELD_MAX + 300 && combined.contains("\\x22...\""));
        assert!(combined.contains("[31/Dec/9999:23:59:59 +0000]"));
        assert!(json.len() < 2 * FIELD_MAX + 600);
    }

    proptest! {
        #[test]
        fn any_bytes_give_one_line_of_visible_ascii(
            agent in prop::collection::vec(any::<u8>(), 0..200), referer in prop::collection::vec(any::<u8>(), 0..200),
            target in "\\PC*", time in any::<u64>(), status in any::<u16>(),
        ) {
            let mut record = record();
            record.user_agent = Some(&agent);
            record.referer = Some(&referer);
            record.target = &target;
            (record.time_unix_ms, record.status) = (time, status);
            let (combined, json) = lines(&record);
            for line in [&combined, &json] {
                let body = line.strip_suffix('\n').expect("a line ends");
                prop_assert!(body.bytes().all(|b| (b' '..0x7f).contains(&b)));
            }
            prop_assert_eq!(combined.matches('"').count(), 6);
            let value: serde_json::Value = serde_json::from_str(&json).expect("a JSON object");
            let latin: String = agent.iter().map(|&b| char::from(b)).collect();
            prop_assert_eq!(value["user_agent"].as_str(), Some(latin.as_str()));
        }
    }
}
