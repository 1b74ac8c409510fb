//! Which field lines end at this hop and which go on (RFC 9110 7.6.1).

use smallvec::SmallVec;

use crate::http::Fields;

/// Fields that belong to one connection and never go on.
const CONNECTION_FIELDS: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Fields that a sender cannot take away by naming them in Connection: they say whose message it
/// is, how long it is and how it may be cached, so losing them on the way would let a client
/// change what a request means behind our back.
const KEPT_FIELDS: &[&str] = &[
    "host",
    "authorization",
    "cookie",
    "set-cookie",
    "cache-control",
    "pragma",
    "expires",
    "vary",
    "age",
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "via",
    "forwarded",
];

/// The fields of one message that end here.
pub(super) struct Ending<'a> {
    named: SmallVec<[&'a [u8]; 4]>,
}

impl<'a> Ending<'a> {
    /// Reads the Connection fields.
    pub(super) fn new(connection: impl Iterator<Item = &'a [u8]>) -> Ending<'a> {
        let mut named = SmallVec::new();
        for value in connection {
            let members = value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
            named.extend(members.filter(|name| !name.is_empty() && !is_kept(name)));
        }
        Ending { named }
    }

    /// Of a message we hold as field lines.
    pub(super) fn of(fields: &'a Fields) -> Ending<'a> {
        Ending::new(fields.get_all("connection"))
    }

    /// Whether a field of this name ends here.
    pub(super) fn covers(&self, name: &[u8]) -> bool {
        is_any(CONNECTION_FIELDS, name) || self.named.iter().any(|n| n.eq_ignore_ascii_case(name))
    }
}

fn is_kept(name: &[u8]) -> bool {
    is_any(KEPT_FIELDS, name) || is_forwarding(name)
}

/// Whether a field may stand in trailers: nothing that frames or routes a message, says how to read
/// it, who sent it or how to cache it (RFC 9110 6.5.1).
pub(super) fn may_trail(name: &[u8]) -> bool {
    const OTHERS: &[&str] = &[
        "trailer",
        "expect",
        "max-forwards",
        "location",
        "retry-after",
    ];
    !is_any(CONNECTION_FIELDS, name) && !is_kept(name) && !is_any(OTHERS, name)
}

/// Whether a name is in a list.
pub(super) fn is_any(list: &[&str], name: &[u8]) -> bool {
    list.iter()
        .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Forwarded, X-Forwarded-* and X-Real-IP, also with `_` for `-`: an origin that maps names to
/// variables, as CGI does, cannot tell those apart.
pub(super) fn is_forwarding(name: &[u8]) -> bool {
    let starts = |prefix: &[u8]| {
        name.len() >= prefix.len()
            && name.iter().zip(prefix).all(|(&have, &want)| {
                have.to_ascii_lowercase() == want || (want == b'-' && have == b'_')
            })
    };
    starts(b"x-forwarded-") || (name.len() == 9 && (starts(b"forwarded") || starts(b"x-real-ip")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_takes_away_what_it_names_but_not_what_carries_meaning() {
        let mut fields = Fields::new();
        fields.append("Connection", "close, X-Mine, Host ,Cookie,,x-forwarded-for");
        let ending = Ending::of(&fields);
        for name in ["x-mine", "CLOSE", "Keep-Alive", "transfer-encoding", "TE"] {
            assert!(ending.covers(name.as_bytes()), "{name}");
        }
        for name in ["host", "cookie", "x-forwarded-for", "accept"] {
            assert!(!ending.covers(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn underscores_do_not_hide_a_forwarding_field() {
        for name in [
            "X-Forwarded-For",
            "x_forwarded_proto",
            "FORWARDED",
            "X_Real-Ip",
        ] {
            assert!(is_forwarding(name.as_bytes()), "{name}");
        }
        for name in ["x-forwarded", "forwarded-by", "x-real-ip-2", "via"] {
            assert!(!is_forwarding(name.as_bytes()), "{name}");
        }
    }
}
