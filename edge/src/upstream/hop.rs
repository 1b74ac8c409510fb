//! Which field lines end at this hop and which go on (RFC 9110 7.6.1).

use smallvec::SmallVec;

use crate::http::Fields;
use crate::http::hop::{HOP_BY_HOP, is_end_to_end, is_in};

/// More connection options than this are not looked at; real ones have up to three.
const OPTIONS_MAX: usize = 64;

/// The fields of one message that end here.
pub(super) struct Ending<'a> {
    named: SmallVec<[&'a [u8]; 4]>,
}

impl<'a> Ending<'a> {
    /// Reads the Connection fields.
    pub(super) fn new(connection: impl Iterator<Item = &'a [u8]>) -> Ending<'a> {
        let named = connection
            .flat_map(|value| value.split(|&b| b == b','))
            .map(<[u8]>::trim_ascii)
            .take(OPTIONS_MAX)
            .filter(|name| !is_in(&["", "close", "keep-alive"], name) && !is_end_to_end(name))
            .collect();
        Ending { named }
    }

    /// Of a message we hold as field lines.
    pub(super) fn of(fields: &'a Fields) -> Ending<'a> {
        Ending::new(fields.get_all("connection"))
    }

    /// Whether a field of this name ends here.
    pub(super) fn covers(&self, name: &[u8]) -> bool {
        is_in(HOP_BY_HOP, name) || self.named.iter().any(|n| n.eq_ignore_ascii_case(name))
    }
}

/// Whether a field may stand in trailers: nothing that frames or routes a message, says how to read
/// it, who sent it or how to cache it (RFC 9110 6.5.1); digests and validators may.
pub(super) fn may_trail(name: &[u8]) -> bool {
    const MADE_FOR_IT: &[&str] = &["content-digest", "content-md5", "etag"];
    is_in(MADE_FOR_IT, name) || !(is_in(HOP_BY_HOP, name) || is_end_to_end(name))
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
        for name in ["x-mine", "Keep-Alive", "transfer-encoding", "TE"] {
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
