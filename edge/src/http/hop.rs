//! Which fields go no further than one connection, and which must not reach a shared fetch.

use smallvec::SmallVec;

use super::Fields;

/// Fields that concern one connection only and are never passed on (RFC 9110 7.6.1, 11.7), in both
/// directions. TE and Upgrade are written anew where we mean them ourselves. Trailer stays, since
/// trailer fields are passed on (RFC 9110 6.6.2).
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

/// Fields for all recipients, which Connection must never name (RFC 9110 7.6.1). Where it does, the
/// sender would have them removed before the next hop sees them: credentials, conditions, what says
/// who asked. Then the name is passed over and the field stays.
const END_TO_END: &[&str] = &[
    "accept",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "cache-status",
    "cdn-cache-control",
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

/// As `END_TO_END`, for all names that begin so.
const END_TO_END_PREFIXES: &[&str] = &[
    "accept-",
    "access-control-",
    "content-",
    "if-",
    "sec-",
    "x-forwarded-",
];

/// Fields that an origin may act on although the key does not hold them: one client could have its
/// answer stored for all. They are stripped from every request that may be stored or shared. Those
/// of X-Forwarded-* and Forwarded that we set ourselves are set anew.
pub const UNKEYED: &[&str] = &[
    "forwarded",
    "front-end-https",
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
    "x-method-override",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-proxy-url",
    "x-real-url",
    "x-request-uri",
    "x-rewrite-url",
    "x-script-name",
    "x-url-scheme",
];

/// Further fields that no shared fetch takes from a client, whatever the configuration says: they are
/// set anew on the way (Host, Via, X-Real-IP, all X-Forwarded-*), are for each hop to say or to act on
/// (Cache-Control, CDN-Loop, Early-Data, Expect, Max-Forwards, Pragma, Surrogate-Capability), or speak
/// of a body (Trailer, Content-*), or of a part or condition (Range, If-*) that others did not ask for.
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

/// What a shared fetch takes over from the request that began it: content negotiation (RFC 9110
/// 12.5), by which an origin may choose a representation and then says so in Vary. Accept-Encoding
/// goes as `vary::Codings` says it, and Accept-Language as `vary::preferred` does where languages
/// are configured. Everything else of the client's stays behind: its cookies, credentials,
/// conditions, range, client hints and Origin.
///
/// Beside these a fetch carries the fields that the Vary in force names, since the key holds them.
/// Where a response's Vary names a field that was left out and a rider's request has it, the rider
/// is not that variant's and goes on its own.
pub const SHARED: &[&str] = &["accept", "accept-encoding", "accept-language", "user-agent"];

/// More connection options than this are not looked at; real ones have up to three.
const OPTIONS_MAX: usize = 64;

/// Whether the name is in such a list of lower-case names.
pub fn is_in(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|n| n.as_bytes().eq_ignore_ascii_case(name))
}

/// The fields of one message that end here.
pub struct Ending<'a> {
    named: SmallVec<[&'a [u8]; 4]>,
}

impl<'a> Ending<'a> {
    /// Reads the Connection fields.
    pub fn new(connection: impl Iterator<Item = &'a [u8]>) -> Ending<'a> {
        let named = connection
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .take(OPTIONS_MAX)
            .filter(|name| !is_in(&["", "close", "keep-alive"], name) && !is_end_to_end(name))
            .collect();
        Ending { named }
    }

    /// Of a message we hold as field lines.
    pub fn of(fields: &'a Fields) -> Ending<'a> {
        Ending::new(fields.get_all("connection"))
    }

    /// Whether a field of this name ends here.
    pub fn covers(&self, name: &[u8]) -> bool {
        is_in(HOP_BY_HOP, name) || self.named.iter().any(|n| n.eq_ignore_ascii_case(name))
    }
}

/// Whether a name is this field's, given in lower case, for an origin that takes `_` for `-`, as
/// those do that hand fields on as environment variables (RFC 3875 4.1.18).
pub fn reads_as(name: &[u8], field: &[u8]) -> bool {
    let dashed = |&b: &u8| match b {
        b'_' => b'-',
        _ => b.to_ascii_lowercase(),
    };
    name.len() == field.len() && name.iter().map(dashed).eq(field.iter().copied())
}

/// `reads_as` of how a name begins.
pub fn reads_as_prefix(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| reads_as(start, prefix))
}

/// Whether a name is that of one of these fields, in lower case, for such an origin.
fn reads_as_any(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|field| reads_as(name, field.as_bytes()))
}

/// Whether a field is among `UNKEYED` for some origin.
pub fn is_unkeyed(name: &[u8]) -> bool {
    reads_as_any(UNKEYED, name)
}

/// Why a field of this name never reaches the origin as a client sent it, by a shared fetch, even
/// where keys hold it; for people.
pub fn why_never_sent(name: &[u8]) -> Option<&'static str> {
    let is = |list: &[&str]| reads_as_any(list, name);
    let begins = |prefix: &str| reads_as_prefix(name, prefix.as_bytes());
    match () {
        () if is(HOP_BY_HOP) => Some("it belongs to one connection"),
        () if is(&["range"]) || begins("if-") => {
            Some("ranges and conditions are for the cache to answer")
        }
        () if is(&["trailer"]) || begins("content-") => {
            Some("it speaks of a body, and what is asked on behalf of all has none")
        }
        () if is(&["forwarded", "host", "via", "x-real-ip"]) || begins("x-forwarded-") => {
            Some("it is set anew on the way to the origin")
        }
        () if is(NOT_CARRIED) => Some("it is for each hop to say, or to act on"),
        () => None,
    }
}

/// Why a shared fetch can't carry a field of this name where keys don't hold it, whatever the
/// configuration says; for people.
pub fn why_not_carried(name: &[u8]) -> Option<&'static str> {
    let unkeyed = "origins take it for another URL, host or method than was asked for";
    why_never_sent(name).or_else(|| is_unkeyed(name).then_some(unkeyed))
}

/// Whether a shared fetch can carry a field of this name that keys don't hold.
pub fn may_be_carried(name: &[u8]) -> bool {
    why_not_carried(name).is_none()
}

/// Whether a field of this name is for all recipients, so that Connection must not name it.
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
        let ending = Ending::of(&message);
        fields.retain(|name, _| !ending.covers(name));
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
    fn connection_fields_and_what_they_name_go() {
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
    fn connection_cannot_remove_what_is_for_all() {
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
    fn options_are_bounded() {
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
    fn unkeyed_fields_go() {
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

    // For CGI and its heirs, X_Original_URL is X-Original-URL.
    #[test]
    fn underscores_hide_nothing() {
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
        // Where keys hold it, each client has its own.
        assert!(why_not_carried(b"X-Original-Host").is_some());
        assert!(why_never_sent(b"X-Original-Host").is_none());
        for name in ["X-Tenant", "x_tenant", "Cookie", "viable", "ifs", "x-via"] {
            assert!(may_be_carried(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn lists_are_lower_case_sorted_and_apart() {
        for list in [
            HOP_BY_HOP,
            END_TO_END,
            END_TO_END_PREFIXES,
            UNKEYED,
            NOT_CARRIED,
            SHARED,
        ] {
            assert!(list.is_sorted() && list.iter().all(|n| n.to_ascii_lowercase() == *n));
        }
        let both = |n: &&&str| is_in(HOP_BY_HOP, n.as_bytes()) || is_in(UNKEYED, n.as_bytes());
        assert_eq!(SHARED.iter().find(both), None);
        assert!(SHARED.iter().all(|n| may_be_carried(n.as_bytes())));
        assert!(HOP_BY_HOP.iter().all(|n| !is_end_to_end(n.as_bytes())));
    }
}
