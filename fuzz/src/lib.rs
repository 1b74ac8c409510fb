//! Fuzz targets: one function for each parser of bytes from clients, origins, volumes and files. Each function accepts
//! any bytes, and panics if the parser violates one of its guarantees.

mod differential;
mod targets;

use sluice::test_rigs::exercise;
use sluice::test_rigs::files;
use sluice::test_rigs::http::FieldBlock;
use sluice::test_rigs::http::bearer;
use sluice::test_rigs::http::cache_control::{RequestDirectives, ResponseDirectives, SECONDS_MAX};
use sluice::test_rigs::http::conditional::{Decision, Validators, evaluate};
use sluice::test_rigs::http::fields::{Fields, is_field_value, is_token, lines_of};
use sluice::test_rigs::http::freshen::{self, freshen};
use sluice::test_rigs::http::freshness::{ExchangeTimes, SetCookie, Terms, judge};
use sluice::test_rigs::http::key::{KeyRules, Parts, resource_with};
use sluice::test_rigs::http::location::{Base, same_host_target};
use sluice::test_rigs::http::pattern::Pattern;
use sluice::test_rigs::http::range::{self, ContentRange, Resolved};
use sluice::test_rigs::http::reference;
use sluice::test_rigs::http::target::{self, Form};
use sluice::test_rigs::http::trace_context::{self, STATE_MAX, TraceContext, TraceParent};
use sluice::test_rigs::http::vary::{self, Codings, NAMES_MAX, Reductions, Vary};
use sluice::test_rigs::http::{Method, Scheme, date, surrogate, targeted};
use sluice::test_rigs::http1::{chunked, head};
use sluice::test_rigs::http2::{DecodeError, exercise as http2};
use sluice::test_rigs::proxy_protocol;
use sluice::test_rigs::signed;
use sluice::test_rigs::tls_exercise::Bench;

pub use targets::{TARGETS, Target};

/// Checks the parsers of a volume's content, with the bytes of a device or file as input.
pub fn volume(data: &[u8]) {
    field_block(data);
    exercise::exercise(data);
}

/// Runs whole TLS connections, whose clients do what the input says.
pub fn tls_connection(data: &[u8]) {
    thread_local! {
        static BENCH: Bench = Bench::new();
    }
    BENCH.with(|bench| bench.exercise(data));
}

/// Checks the parser of the PROXY protocol.
pub fn proxy_preamble(data: &[u8]) {
    proxy_protocol::exercise(data);
}

/// Checks the parser of bearer tokens in Authorization: a token is the end of the value, and is found again.
pub fn authorization(data: &[u8]) {
    let Some(token) = bearer::token(data) else {
        return;
    };
    assert!(bearer::is_token(token) && token.len() <= bearer::TOKEN_BYTES_MAX);
    let scheme = data.strip_suffix(token).expect("the token is the end");
    assert!(scheme.trim_ascii_end().eq_ignore_ascii_case(b"bearer"));
    assert_eq!(
        bearer::token(&[&b"BEARER "[..], token].concat()),
        Some(token)
    );
}

/// Checks the parser of HTTP/1 request heads.
pub fn request_head(data: &[u8]) {
    head::exercise(data);
}

/// Checks the decoder of chunked bodies with trailers: its result must not depend on how the input is split.
pub fn chunked_body(data: &[u8]) {
    let content = chunked::exercise(data);
    assert!(content.is_none_or(|content| content.len() < data.len()));
}

/// Checks the decoder of HTTP/2 header blocks, which must find the fields that another decoder finds. The input is the
/// blocks of one connection, each after its length in one byte.
pub fn http2_header_blocks(data: &[u8]) {
    let (blocks, error) = http2::blocks(data);
    let mut other = loona_hpack::Decoder::new();
    other.set_max_allowed_table_size(4096);
    let mut inputs = http2::split(data);
    for (lines, block) in blocks.iter().zip(&mut inputs) {
        match other.decode(block) {
            Ok(found) => assert_eq!(&found, lines),
            // The other decoder refuses a block that only changes the size of the table.
            Err(error) => assert!(lines.is_empty(), "{error}"),
        }
    }
    if let (Some(DecodeError::Index | DecodeError::Truncated | DecodeError::Huffman), Some(block)) =
        (error, inputs.next())
    {
        assert!(other.decode(block).is_err());
    }
}

/// Checks the parsers of HTTP/2 frames, requests and trailers.
pub fn http2_frames(data: &[u8]) {
    http2::frames(data);
}

/// Runs whole HTTP/2 connections, whose clients send the input after their preface.
pub fn http2_server(data: &[u8]) {
    http2::server(data);
}

/// Runs whole HTTP/2 connections, whose servers send the input after their settings.
pub fn http2_client(data: &[u8]) {
    http2::client(data);
}

/// Runs whole HTTP/2 connections between the client of the h2 crate and our server, which do what the input says.
pub fn http2_server_differential(data: &[u8]) {
    differential::server::run(data);
}

/// Runs whole HTTP/2 connections between our client and the server of the h2 crate, which do what the input says.
pub fn http2_client_differential(data: &[u8]) {
    differential::client::run(data);
}

/// Checks the parsers of Range and Content-Range.
pub fn range(data: &[u8]) {
    if let Some(specs) = range::parse(data) {
        assert!((1..=range::SPECS_MAX).contains(&specs.iter().len()));
        for length in [0, 1, 10, 1000, u64::MAX] {
            for gap in [0, range::PART_OVERHEAD] {
                check_resolved(&specs.resolve(length, gap), length);
            }
        }
    }
    if let Some(parsed) = ContentRange::parse(data) {
        let mut text = Vec::new();
        parsed.render(&mut text);
        assert_eq!(ContentRange::parse(&text), Some(parsed));
    }
}

fn check_resolved(resolved: &Resolved, length: u64) {
    let Resolved::Satisfiable(parts) = resolved else {
        return;
    };
    assert!(!parts.is_empty());
    for (i, part) in parts.iter().enumerate() {
        assert!(part.start < part.end && part.end <= length);
        let apart = |other: &std::ops::Range<u64>| other.end < part.start || part.end < other.start;
        assert!(parts[i + 1..].iter().all(apart));
    }
}

/// Checks the parsers of traceparent and tracestate: what is sent is valid and bounded, whatever was received.
pub fn trace_context(data: &[u8]) {
    let mut fields = Fields::new();
    let names = [trace_context::PARENT_HEADER, trace_context::STATE_HEADER];
    for (line, value) in data.split(|b| *b == b'\n').enumerate() {
        if is_field_value(value) {
            fields.append(names[line.min(1)], value);
        }
    }
    let trace = TraceContext::of(&fields, [1, 2, 3]);
    let mut parent = Vec::new();
    trace.write_parent(&mut parent);
    assert!(TraceParent::parse(&parent).is_some());
    if let Some(state) = trace.state() {
        assert!(state.len() <= STATE_MAX);
        let again = trace_context::state([state.as_bytes()].into_iter());
        assert_eq!(again.as_deref(), Some(state));
    }
}

/// Checks the parsers of dates.
pub fn date(data: &[u8]) {
    let parsed = date::parse(data);
    if let Some(unix_s) = parsed {
        let text = date::format(unix_s);
        assert_eq!(date::parse(&text), Some(unix_s));
        assert_eq!(date::parse_expires(&text), Some(unix_s));
    }
    let expires = date::parse_expires(data);
    assert!(expires.is_none() || expires == parsed);
}

/// Checks the parsers of Cache-Control in requests and responses, of Expires, Date and Age.
pub fn cache_control(data: &[u8]) {
    let response = ResponseDirectives::parse(data);
    let request = RequestDirectives::parse(data);
    let seconds = [
        response.max_age,
        response.s_maxage,
        response.stale_while_revalidate,
        response.stale_if_error,
        request.max_age,
        request.max_stale,
        request.min_fresh,
    ];
    assert!(seconds.iter().flatten().all(|s| *s <= SECONDS_MAX));
    let Some(fields) = all_of(&["cache-control", "expires", "date", "age"], data) else {
        return;
    };
    assert_eq!(ResponseDirectives::of(&fields), response);
}

/// Checks the caching rules of a response. The input is the response's header lines.
pub fn judged(data: &[u8]) {
    let response = head_of(data);
    for value in [
        data,
        &response.joined("surrogate-control").unwrap_or_default(),
    ] {
        for policy in [targeted::parse(value), surrogate::parse(value)] {
            let directives = policy.unwrap_or_default().directives;
            let seconds = [directives.max_age, directives.s_maxage];
            assert!(seconds.iter().flatten().all(|s| *s <= SECONDS_MAX));
        }
    }
    let targets = ["sluice-cache-control".into(), "surrogate-control".into()];
    let at_ms = 784_111_779_500;
    for (request_ms, response_ms) in [(at_ms, at_ms + 1), (u64::MAX, 0), (0, u64::MAX)] {
        let terms = Terms {
            valid_s: (request_ms == 0).then_some(u64::MAX),
            heuristic_max_s: u64::MAX,
            lifetime_s: 10..=1000,
            set_cookie: SetCookie::Remove,
            stale_while_revalidate_s: u64::MAX,
            targets: &targets,
            ..Terms::default()
        };
        let exchanged = ExchangeTimes {
            request_ms,
            response_ms,
        };
        let Ok(verdict) = judge(&Fields::new(), 200, &response, &terms, exchanged) else {
            continue;
        };
        assert!(verdict.lifetime_s == 0 || (10..=1000).contains(&verdict.lifetime_s));
        assert!(verdict.fresh_ms <= i64::from(verdict.lifetime_s) * 1000);
        // s-maxage also forbids serving the response stale, but the same response may permit stale responses
        // explicitly.
        assert!(!verdict.no_cache || verdict.swr_s == 0 && verdict.sie_s == 0);
        let cookies = response.contains("set-cookie");
        assert!(!cookies || verdict.stripped.iter().any(|name| name == "set-cookie"));
    }
    // Updating a response with its own headers once or twice must give the same result.
    let once = freshen(&FieldBlock::from(&response), &response);
    assert!(once.text().len() <= freshen::BYTES_MAX);
    assert_eq!(freshen(&FieldBlock::from(&once), &response), once);
}

/// Checks cache keys. The input is a key template, a query and a header value, one per line.
pub fn key_rules(data: &[u8]) {
    let mut lines = data.splitn(3, |&b| b == b'\n').map(std::str::from_utf8);
    let (Some(Ok(template)), Some(Ok(query))) = (lines.next(), lines.next()) else {
        return;
    };
    let mut rules = match KeyRules::parse(template) {
        Ok(rules) => rules,
        Err(error) => return assert!(template.get(error.at).is_some() && !error.help.is_empty()),
    };
    let names = ["cookie", "accept-language", "x-tenant"];
    let value = lines.next().and_then(Result::ok).unwrap_or_default();
    let fields = all_of(&names, value.as_bytes()).unwrap_or_default();
    let check = |rules: &KeyRules| {
        let key = rules.key(Scheme::Http, "a", "/", Some(query), &fields);
        let hash = rules.hash(Scheme::Http, "a", "/", Some(query), &fields);
        assert_eq!(key.hash(), hash);
        assert_eq!(Parts::of(key.text()), Some(key.parts()));
        let resource = rules.resource(Scheme::Http, "a", "/", Some(query));
        assert_eq!(resource_with(hash, key.text()), resource);
        let normal = rules.query(Some(query));
        assert_eq!(rules.query(normal.as_deref()), normal);
    };
    check(&rules);
    rules.sort = true;
    rules.ignore = vec![Pattern::new("utm_*")];
    check(&rules);
}

/// Checks the signature of a URL in canonical form.
pub fn signed_url(data: &[u8]) {
    let mut target = String::new();
    if let Ok(Form::Origin) = target::canonical(&Method::Get, data, &mut target) {
        signed::exercise(&target);
    }
}

/// Checks the resolution of Location relative to a request target, on the same host and to any URL.
pub fn location(data: &[u8]) {
    let base = Base {
        scheme: Scheme::Http,
        authority: "a.example",
        target: "/b/c?d",
    };
    if let Some(url) = reference::resolve(base, data) {
        let text = format!("{}://{}{}", url.scheme.as_str(), url.authority, url.target);
        assert!(
            text.bytes()
                .all(|b| b.is_ascii_graphic() && !b"\\#".contains(&b)),
            "{text}"
        );
        assert_eq!(reference::resolve(base, text.as_bytes()), Some(url));
    }
    let Some((path, query)) = same_host_target(base, data) else {
        return;
    };
    let text = match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut again = String::new();
    let form = target::canonical(&Method::Get, text.as_bytes(), &mut again);
    assert_eq!((form, &again), (Ok(Form::Origin), &text));
}

/// Checks the parser of a stored head's field lines with any bytes, since a volume may be damaged.
fn field_block(data: &[u8]) {
    let Some((numbers, bytes)) = data.split_first_chunk::<2>() else {
        return;
    };
    let [text, lines] = numbers.map(u32::from);
    if let Some(block) = FieldBlock::from_bytes(bytes.to_vec().into(), text, lines) {
        let same: FieldBlock = (&head_of(block.text())).into();
        assert!(same.lines().eq(block.lines()));
    }
}

/// Returns the header lines of a text, without invalid ones.
fn head_of(data: &[u8]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in lines_of(data) {
        if is_token(name) && is_field_value(value) {
            fields.append_bytes(name, value);
        }
    }
    fields
}

/// Checks Vary, and the request headers that Vary names.
pub fn vary(data: &[u8]) {
    let Some(fields) = all_of(&["vary", "accept-encoding", "x"], data) else {
        return;
    };
    if let Ok(vary) = Vary::of(&fields) {
        assert!(vary.names().len() <= NAMES_MAX && vary.names().is_sorted());
    }
    let codings = Codings::of(&fields);
    let mut sent = Fields::new();
    sent.append("accept-encoding", codings.value());
    assert_eq!(Codings::of(&sent), codings);
    let mut names = Fields::new();
    names.append("vary", "x, accept-encoding");
    let vary = Vary::of(&names).expect("two names");
    let mut languages = Fields::new();
    languages.append("accept-language", data);
    let normal_of =
        |fields: &Fields| vary::normal_value(fields, "accept-language", Reductions::default());
    let of_two = ["de".into(), "en-US".into()];
    let preferred = vary::preferred(&languages, &of_two);
    let normal = normal_of(&languages).expect("the field is there");
    languages.set("accept-language", &normal);
    assert_eq!(normal_of(&languages), Some(normal));
    if let Some(preferred) = preferred {
        languages.set("accept-language", preferred);
        assert_eq!(vary::preferred(&languages, &of_two), Some(preferred));
    }
    let mut key = Vec::new();
    let names: Vec<_> = vary.names().map(Into::into).collect();
    vary::select(&names, &fields, Reductions::default(), &mut key);
    // The key contains two names with their lengths, and for each the presence, length and at most the value of the
    // header, in which a space follows each comma.
    let framing = 2 * (4 + 1 + 4) + "x".len() + "accept-encoding".len();
    let spaces = data.iter().filter(|byte| **byte == b',').count();
    assert!(key.len() <= framing + data.len() + spaces + codings.value().len());
}

/// Checks the evaluation of conditional requests.
pub fn conditional(data: &[u8]) {
    let conditions = [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
    ];
    let Some(response) = all_of(&["etag", "last-modified", "date"], data) else {
        return;
    };
    let validators = Validators::of(&response);
    for name in conditions {
        let mut request = Fields::new();
        request.append(name, data);
        let get = evaluate(&Method::Get, &request, &validators);
        let put = evaluate(&Method::Put, &request, &validators);
        assert_ne!(put, Decision::NotModified);
        assert!(
            put != Decision::Proceed {
                ignore_range: false
            }
        );
        if name == "if-range" {
            assert!(matches!(get, Decision::Proceed { .. }));
        }
        if name == "if-none-match" && validators.etag.is_some() {
            assert_eq!(get, Decision::NotModified);
        }
    }
}

/// Checks the mapping from request paths to file paths.
pub fn file_path(data: &[u8]) {
    let mut once = String::new();
    if target::canonical(&Method::Get, data, &mut once).is_err() {
        return;
    }
    let path = once.split('?').next().unwrap_or_default();
    for hidden in [false, true] {
        let Some(located) = files::locate(path, hidden) else {
            continue;
        };
        if located.names.is_empty() {
            assert!(located.is_folder);
            continue;
        }
        for (at, name) in located.names.split(|b| *b == b'/').enumerate() {
            assert!(!name.is_empty() && name != b"." && name != b"..");
            assert!(!name.iter().any(|b| *b < b' ' || *b == b'\\'));
            let well_known = at == 0 && name == b".well-known";
            assert!(hidden || name[0] != b'.' || well_known);
        }
    }
}

/// Checks the parsers of request targets and Host headers.
pub fn target(data: &[u8]) {
    for method in [Method::Get, Method::Options] {
        let mut once = String::new();
        let Ok(form) = target::canonical(&method, data, &mut once) else {
            continue;
        };
        assert!(once.starts_with('/') || once == "*");
        assert!(
            once.bytes()
                .all(|b| b.is_ascii_graphic() && b != b'#' && b != b'\\')
        );
        let path = once.split('?').next().unwrap_or_default();
        assert!(
            !path
                .split('/')
                .any(|segment| [".", ".."].contains(&segment))
        );
        let mut twice = String::new();
        assert!(target::canonical(&method, once.as_bytes(), &mut twice).is_ok());
        assert_eq!(once, twice);
        if let Form::Absolute { authority, .. } = form {
            assert!(!authority.is_empty());
            check_host(authority);
        }
    }
    check_host(data);
}

fn check_host(data: &[u8]) {
    let (mut once, mut twice) = (String::new(), String::new());
    if target::host(data, &mut once).is_ok() {
        assert!(
            once.bytes()
                .all(|b| b.is_ascii_graphic() && !b"/?#@\\".contains(&b))
        );
        assert_eq!(once, once.to_ascii_lowercase());
        assert_eq!(target::host(once.as_bytes(), &mut twice), Ok(()));
        assert_eq!(once, twice);
    }
}

/// Returns headers with these names that all have this value; `None` if no header can have this value.
fn all_of(names: &[&str], value: &[u8]) -> Option<Fields> {
    if !is_field_value(value) {
        return None;
    }
    let mut fields = Fields::new();
    for name in names {
        fields.append(name, value);
    }
    Some(fields)
}
