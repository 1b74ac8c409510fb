//! Hop-by-hop headers, and headers that must not be part of a shared fetch.

use smallvec::SmallVec;

use super::Fields;

/// Hop-by-hop headers, which are never forwarded in either direction (RFC 9110 7.6.1, 11.7). Sluice
/// sends its own TE and Upgrade where needed. Trailer is not listed, because trailers are forwarded
/// (RFC 9110 6.6.2).
pub const HOP_BY_HOP: &[&str] = &[
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// End-to-end headers, which Connection must never name (RFC 9110 7.6.1). A client could otherwise
/// have credentials, conditions or the client's address removed before the request reaches the
/// origin. If Connection names one of these, the name is ignored and the header is kept.
const END_TO_END: &[&str] = &[
    "accept",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "cache-status",
    "cdn-cache-control",
    "cdn-loop",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "last-modified",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "range",
    "referer",
    "server",
    "set-cookie",
    "strict-transport-security",
    "surrogate-control",
    "trailer",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
    "x-real-ip",
];

/// Prefixes of header names that are all end-to-end, so that Connection must never name them.
const END_TO_END_PREFIXES: &[&str] = &[
    "accept-",
    "access-control-",
    "content-",
    "if-",
    "sec-",
    "x-forwarded-",
];

/// Headers that are not in the cache key, but on which an origin may base its response. With one of
/// them, a client could have a response of its choice stored for all clients, or reach a path that
/// the route's rules deny. The headers are removed from every request whose response may be stored
/// or shared. Sluice replaces X-Forwarded-* and Forwarded by its own. Other requests to an origin
/// carry such a header only if the route's configuration names it. Sorted, in lower case.
///
/// These programs take URL, host or method from the headers:
/// - reverse proxies for their applications: X-Original-*, X-Rewrite-URL, X-Replaced-Path and
///   X-Envoy-Original-* (IIS, Zend and Laminas, Symfony before CVE-2018-14773, Traefik, Envoy),
///   X-ARR-Original-URL and X-WAWS-Unencoded-URL (Azure), Front-End-Https (Exchange)
/// - method overrides: X-HTTP-Method-Override and similar ones (Rails, Express, Symfony)
/// - Next.js between its own parts: X-Middleware-* (CVE-2025-29927), X-Invoke-*, X-Matched-Path and
///   X-Now-Route-Matches
/// - Rack::Sendfile: X-Sendfile-Type and X-Accel-Mapping (CVE-2025-61780)
/// - CGI programs: Proxy, which becomes the environment variable HTTP_PROXY (CVE-2016-5385), and
///   Request-URI, Base-URL and similar ones, which look like variables of the server
pub const UNKEYED: &[&str] = &[
    "base-url",
    "forwarded",
    "front-end-https",
    "http-url",
    "proxy",
    "proxy-host",
    "proxy-url",
    "request-uri",
    "x-accel-mapping",
    "x-accel-redirect",
    "x-arr-original-url",
    "x-envoy-original-host",
    "x-envoy-original-method",
    "x-envoy-original-path",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-forwarded-url",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-http-path-override",
    "x-http-proto",
    "x-invoke-output",
    "x-invoke-path",
    "x-invoke-query",
    "x-invoke-status",
    "x-matched-path",
    "x-method-override",
    "x-middleware-next",
    "x-middleware-override-headers",
    "x-middleware-redirect",
    "x-middleware-rewrite",
    "x-middleware-set-cookie",
    "x-middleware-skip",
    "x-middleware-subrequest",
    "x-now-route-matches",
    "x-original-host",
    "x-original-method",
    "x-original-path",
    "x-original-query",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-proxy-url",
    "x-real-url",
    "x-replaced-path",
    "x-request-uri",
    "x-rewrite-url",
    "x-script-name",
    "x-sendfile",
    "x-sendfile-type",
    "x-unencoded-url",
    "x-url-scheme",
    "x-wap-url",
    "x-waws-unencoded-url",
];

/// Headers by which Sluice reports the client to the origin. No configuration sets them.
pub const REPORTED: &[&str] = &[
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Further headers that a shared fetch never takes from a client, whatever the configuration.
/// Sluice sets some of these headers itself (Host, Via, X-Real-IP, all X-Forwarded-*). Others apply
/// to one hop (Cache-Control, CDN-Loop, Early-Data, Expect, Max-Forwards, Pragma,
/// Surrogate-Capability), describe a body (Trailer, Content-*), or request a part or condition
/// (Range, If-*) that other clients did not request.
pub const NOT_CARRIED: &[&str] = &[
    "cache-control",
    "cdn-loop",
    "early-data",
    "expect",
    "host",
    "max-forwards",
    "pragma",
    "range",
    "surrogate-capability",
    "trailer",
    "via",
    "x-real-ip",
];

/// Headers that a shared fetch takes from the request that began the fetch: those of content
/// negotiation (RFC 9110 12.5), in their normal form. If an origin chooses a representation by one of them, its response
/// names the header in Vary. Accept-Encoding is sent in the form of `vary::Codings`, and
/// Accept-Language in the form of `vary::preferred` if languages are configured. All other headers
/// of the client are omitted, such as cookies, User-Agent, conditions, Range, client hints and
/// Origin.
///
/// A fetch also carries the headers named by the resource's known Vary, because the variant key
/// contains them. If the response's Vary names a header that was omitted and a rider's request has
/// that header, the rider does not match that variant and starts its own fetch.
pub const SHARED: &[&str] = &["accept", "accept-encoding", "accept-language"];

/// Largest number of names in Connection that are honoured, further ones are ignored; real messages
/// have up to three.
const OPTIONS_MAX: usize = 64;

/// Whether the list of lower-case names contains the name.
pub fn is_in(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a header is one of `HOP_BY_HOP`.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    // Few names of usual heads begin like one of the list.
    let begins = |first: &u8| b"chkptu".contains(&first.to_ascii_lowercase());
    name.first().is_some_and(begins) && is_in(HOP_BY_HOP, name)
}

/// The hop-by-hop headers of one message.
pub struct HopByHop<'a> {
    named: SmallVec<[&'a [u8]; 4]>,
}

impl<'a> HopByHop<'a> {
    /// Parses the values of Connection.
    pub fn new(connection: impl Iterator<Item = &'a [u8]>) -> HopByHop<'a> {
        let named = connection
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .take(OPTIONS_MAX)
            .filter(|name| !is_in(&["", "close", "keep-alive"], name) && !is_end_to_end(name))
            .collect();
        HopByHop { named }
    }

    /// Returns the hop-by-hop headers of a message with these header lines.
    pub fn of(fields: &'a Fields) -> HopByHop<'a> {
        HopByHop::new(fields.get_all("connection"))
    }

    /// Whether Connection names this header.
    pub fn names(&self, name: &[u8]) -> bool {
        self.named.iter().any(|n| n.eq_ignore_ascii_case(name))
    }

    /// Whether a header of this name is hop-by-hop in this message.
    pub fn covers(&self, name: &[u8]) -> bool {
        is_hop_by_hop(name) || self.names(name)
    }
}

/// Whether an origin that treats `_` as `-` would read `name` as this lower-case header name.
/// Origins that pass headers on as environment variables do so (RFC 3875 4.1.18).
pub fn reads_as(name: &[u8], field: &[u8]) -> bool {
    name.len() == field.len() && name.iter().map(dashed).eq(field.iter().map(dashed))
}

/// Returns the byte of a header name as an origin reads it that treats `_` as `-`, in lower case.
fn dashed(b: &u8) -> u8 {
    match b {
        b'_' => b'-',
        _ => b.to_ascii_lowercase(),
    }
}

/// Whether an origin that treats `_` as `-` would read the start of `name` as this lower-case
/// prefix.
pub fn reads_as_prefix(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| reads_as(start, prefix))
}

/// Whether an origin that treats `_` as `-` would read the name as one of these lower-case header
/// names.
fn reads_as_any(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|field| reads_as(name, field.as_bytes()))
}

/// Whether an origin that treats `_` as `-` would read the name as one of `UNKEYED`.
pub fn is_unkeyed(name: &[u8]) -> bool {
    // Few names of usual requests begin like one of the list.
    const FIRST: &[u8] = b"bfhprx";
    let may_be = name
        .first()
        .is_some_and(|first| FIRST.contains(&first.to_ascii_lowercase()));
    let place = |field: &&str| field.bytes().cmp(name.iter().map(dashed));
    may_be && UNKEYED.binary_search_by(place).is_ok()
}

/// Whether an origin that treats `_` as `-` would read the name as one of `REPORTED`.
pub fn is_reported(name: &[u8]) -> bool {
    // Few names of usual requests begin like one of the list.
    let begins = |first: &u8| matches!(first.to_ascii_lowercase(), b'f' | b'x');
    name.first().is_some_and(begins) && reads_as_any(REPORTED, name)
}

/// Whether the client's value of this header reaches an origin only if the configuration names the
/// header: one of `UNKEYED`, or any other X-Forwarded-* that Sluice does not set itself.
pub fn is_withheld(name: &[u8]) -> bool {
    is_unkeyed(name) || reads_as_prefix(name, b"x-forwarded-")
}

/// Returns the reason why a shared fetch never sends the client's value of this header, even if the
/// header is in the cache key; `None` if it may. The text is for messages.
pub fn why_never_sent(name: &[u8]) -> Option<&'static str> {
    let is = |list: &[&str]| reads_as_any(list, name);
    let begins = |prefix: &str| reads_as_prefix(name, prefix.as_bytes());
    match () {
        () if is(HOP_BY_HOP) => Some("it is a hop-by-hop header"),
        () if is(&["range"]) || begins("if-") => {
            Some("the cache itself handles ranges and conditions")
        }
        () if is(&["trailer"]) || begins("content-") => {
            Some("it describes a body, and shared fetches have none")
        }
        () if is(&["forwarded", "host", "via", "x-real-ip"]) || begins("x-forwarded-") => {
            Some("Sluice sets it itself in requests to the origin")
        }
        () if is(NOT_CARRIED) => Some("it concerns a single hop"),
        () => None,
    }
}

/// Returns the reason why a shared fetch can't send the client's value of this header if the header
/// is not in the cache key; `None` if it can. The text is for messages.
pub fn why_not_carried(name: &[u8]) -> Option<&'static str> {
    let unkeyed = "origins may use it as the URL, host or method instead of the request's";
    why_never_sent(name).or_else(|| is_unkeyed(name).then_some(unkeyed))
}

/// Whether a shared fetch may send this header with a value that the configuration sets for all
/// clients.
pub fn may_be_constant(name: &[u8]) -> bool {
    why_never_sent(name).is_none() || (is_withheld(name) && !is_reported(name))
}

/// Whether a shared fetch may send the client's value of this header although the header is not in
/// the cache key.
pub fn may_be_carried(name: &[u8]) -> bool {
    why_not_carried(name).is_none()
}

/// Whether an origin that treats `_` as `-` would read the name as that of a hop-by-hop header or of
/// an end-to-end header that Connection must not name.
pub fn reads_as_listed(name: &[u8]) -> bool {
    let dashed = |&b: &u8| if b == b'_' { b'-' } else { b };
    let name: SmallVec<[u8; 40]> = name.iter().map(dashed).collect();
    is_in(HOP_BY_HOP, &name) || is_end_to_end(&name)
}

/// Whether a header is end-to-end, so that Connection must not name it.
pub fn is_end_to_end(name: &[u8]) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    is_in(END_TO_END, name) || END_TO_END_PREFIXES.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip_hop_by_hop(fields: &mut Fields) {
        let message = fields.clone();
        let hop_by_hop = HopByHop::of(&message);
        fields.retain(|name, _| !hop_by_hop.covers(name));
    }

    fn strip_unkeyed(fields: &mut Fields) {
        fields.retain(|name, _| !is_unkeyed(name));
    }

    fn stripped(lines: &[(&str, &str)], strip: fn(&mut Fields)) -> Vec<String> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        strip(&mut fields);
        fields
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    #[test]
    fn hop_by_hop_headers_and_those_named_by_connection_are_removed() {
        let left = stripped(
            &[
                ("Host", "h"),
                ("Connection", "keep-alive, X-One"),
                ("X-One", "1"),
                ("x-two", "2"),
                ("X-Three", "3"),
                ("connection", "x-TWO , close"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Connection", "keep-alive"),
                ("TE", "trailers"),
                ("Transfer-Encoding", "chunked"),
                ("Upgrade", "websocket"),
                ("Proxy-Authorization", "Basic eDp5"),
                ("Proxy-Authenticate", "Basic"),
                ("HTTP2-Settings", "x"),
                ("Trailer", "x-sum"),
            ],
            strip_hop_by_hop,
        );
        assert_eq!(left, ["Host", "X-Three", "Trailer"]);
    }

    #[test]
    fn connection_cannot_remove_end_to_end_headers() {
        let names = [
            "Host",
            "Cache-Control",
            "Content-Length",
            "Content-Type",
            "X-Forwarded-For",
            "Forwarded",
            "Authorization",
            "Cookie",
            "Range",
            "If-Range",
            "Via",
            "Vary",
            "Set-Cookie",
            "Accept-Encoding",
            "Access-Control-Allow-Origin",
        ];
        let all = names.join(",");
        let mut lines = vec![("connection", &*all)];
        lines.extend(names.iter().map(|name| (*name, "1")));
        assert_eq!(stripped(&lines, strip_hop_by_hop), names);
    }

    #[test]
    fn connection_options_are_bounded() {
        let options: Vec<_> = (0..10_000).map(|i| format!("x-{i}")).collect();
        let left = stripped(
            &[
                ("connection", &options.join(",")),
                ("x-63", ""),
                ("x-64", ""),
            ],
            strip_hop_by_hop,
        );
        assert_eq!(left, ["x-64"]);
    }

    #[test]
    fn unkeyed_names_are_found_in_any_spelling() {
        assert!(UNKEYED.is_sorted_by(|a, b| a < b));
        for name in UNKEYED {
            for spelling in [name.to_uppercase(), name.replace('-', "_")] {
                assert!(is_unkeyed(spelling.as_bytes()), "{spelling}");
            }
            assert!(!is_unkeyed(&name.as_bytes()[1..]), "{name}");
        }
        for name in ["", "host", "referer", "x-forwarded", "x-wap-profile", "zz"] {
            assert!(!is_unkeyed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn unkeyed_headers_are_removed() {
        let left = stripped(
            &[
                ("X-Forwarded-Host", "evil"),
                ("x-original-url", "/admin"),
                ("X-Rewrite-URL", "/admin"),
                ("X-HTTP-Method-Override", "DELETE"),
                ("Accept", "*/*"),
            ],
            strip_unkeyed,
        );
        assert_eq!(left, ["Accept"]);
    }

    #[test]
    fn underscores_do_not_hide_a_header_that_reports_the_client() {
        for name in [
            "X-Forwarded-For",
            "x_forwarded_proto",
            "FORWARDED",
            "X_Real-Ip",
        ] {
            assert!(is_reported(name.as_bytes()), "{name}");
        }
        for name in ["x-forwarded", "forwarded-by", "x-real-ip-2", "via"] {
            assert!(!is_reported(name.as_bytes()), "{name}");
        }
    }

    // CGI and similar interfaces read X_Original_URL as X-Original-URL, so both names must be
    // removed from requests.
    #[test]
    fn underscores_do_not_hide_a_header() {
        let left = stripped(
            &[
                ("x_original_url", "/admin"),
                ("X_HTTP-Method_Override", "DELETE"),
                ("X_Forwarded_Host", "evil"),
                ("x_tenant", "1"),
            ],
            strip_unkeyed,
        );
        assert_eq!(left, ["x_tenant"]);
        for name in [
            "Surrogate_Capability",
            "content_length",
            "If_Match",
            "x_real_ip",
            "x-forwarded-anything",
            "Transfer_Encoding",
        ] {
            assert!(!may_be_carried(name.as_bytes()), "{name}");
        }
        // A header in the cache key may be sent, because each value of the header has its own cache
        // entry.
        assert!(why_not_carried(b"X-Original-Host").is_some());
        assert!(why_never_sent(b"X-Original-Host").is_none());
        for name in ["X-Tenant", "x_tenant", "Cookie", "viable", "ifs", "x-via"] {
            assert!(may_be_carried(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_lists_are_lower_case_sorted_and_disjoint() {
        for list in [
            HOP_BY_HOP,
            END_TO_END,
            END_TO_END_PREFIXES,
            UNKEYED,
            REPORTED,
            NOT_CARRIED,
            SHARED,
        ] {
            assert!(list.is_sorted() && list.iter().all(|n| n.to_ascii_lowercase() == *n));
        }
        let both = |n: &&&str| is_in(HOP_BY_HOP, n.as_bytes()) || is_in(UNKEYED, n.as_bytes());
        assert_eq!(SHARED.iter().find(both), None);
        assert!(UNKEYED.iter().all(|name| is_unkeyed(name.as_bytes())));
        assert!(REPORTED.iter().all(|name| is_reported(name.as_bytes())));
        for name in ["x-script-name", "X_Forwarded_Prefix", "x-tenant"] {
            assert!(may_be_constant(name.as_bytes()), "{name}");
        }
        for name in ["X_Forwarded_For", "forwarded", "range", "connection"] {
            assert!(!may_be_constant(name.as_bytes()), "{name}");
        }
        assert!(SHARED.iter().all(|n| may_be_carried(n.as_bytes())));
        assert!(HOP_BY_HOP.iter().all(|n| !is_end_to_end(n.as_bytes())));
        assert!(HOP_BY_HOP.iter().all(|n| is_hop_by_hop(n.as_bytes())));
    }
}
