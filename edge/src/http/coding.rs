//! Content codings (RFC 9110 8.4.1), and the preferences of a request among them (12.5.3).

use super::Fields;

/// A content coding that Sluice can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// `zstd` (RFC 8878).
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All content codings, the one with the best compression at equal cost first.
    pub const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// Returns the coding's name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// Finds a coding by its name, case-insensitively; `x-gzip` is gzip (RFC 9110 8.4.1.3).
    pub fn named(name: &[u8]) -> Option<Coding> {
        match () {
            _ if name.eq_ignore_ascii_case(b"x-gzip") => Some(Coding::Gzip),
            _ => Coding::ALL
                .into_iter()
                .find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes())),
        }
    }
}

/// The weights that a request gives to each content coding, in thousandths; 0 means refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    weights: [u16; 3],
    /// The weight of identity, if Accept-Encoding specifies one.
    identity: Option<u16>,
}

impl Accepted {
    /// Parses Accept-Encoding. Without the header no coding is accepted: RFC 9110 permits any
    /// coding then, but the client might not understand it.
    pub fn of(request: &Fields) -> Accepted {
        let mut named: [Option<u16>; 3] = [None; 3];
        let (mut identity, mut others) = (None, None);
        for member in request.members("accept-encoding") {
            let (name, weight) = weighted(member);
            match Coding::named(name) {
                // If a coding is listed twice, the smaller weight counts.
                Some(coding) => {
                    let known = &mut named[coding as usize];
                    *known = Some(known.map_or(weight, |known| known.min(weight)));
                }
                None if name == b"*" => others = Some(weight),
                None if name.eq_ignore_ascii_case(b"identity") => identity = Some(weight),
                None => {}
            }
        }
        Accepted {
            weights: named.map(|weight| weight.or(others).unwrap_or(0)),
            identity,
        }
    }

    /// Whether this content coding is accepted.
    #[cfg(test)]
    pub fn takes(&self, coding: Coding) -> bool {
        self.weights[coding as usize] > 0
    }

    /// Returns the coding in `of` that has the largest weight, and the first one of several with
    /// the same weight. Returns `None` if none is accepted, or if identity has a larger weight.
    pub fn best(&self, of: impl IntoIterator<Item = Coding>) -> Option<Coding> {
        let least = self.identity.unwrap_or(0).max(1);
        let mut best: Option<(u16, Coding)> = None;
        for coding in of {
            let weight = self.weights[coding as usize];
            if weight >= least && best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, coding));
            }
        }
        best.map(|(_, coding)| coding)
    }
}

/// Returns the content coding and the weight (in thousandths) of one member of Accept-Encoding. An
/// invalid weight counts as 0, because content without a coding is always a correct response.
pub fn weighted(member: &[u8]) -> (&[u8], u16) {
    let Some(semicolon) = memchr::memchr(b';', member) else {
        return (member, 1000);
    };
    let coding = member[..semicolon].trim_ascii();
    let parameter = member[semicolon + 1..].trim_ascii();
    let weight = match parameter {
        [b'q' | b'Q', b'=', weight @ ..] => weight,
        _ => return (coding, 0),
    };
    (coding, thousandths(weight).unwrap_or(0))
}

/// Parses a qvalue (RFC 9110 12.4.2): 0 or 1 with at most three decimals.
pub(super) fn thousandths(weight: &[u8]) -> Option<u16> {
    let (whole, decimals) = match weight {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| decimals.get(at).map_or(0, |b| u16::from(b - b'0'));
    let number = u16::from(whole - b'0') * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (number <= 1000).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(value: &str) -> Accepted {
        let mut fields = Fields::new();
        fields.append("accept-encoding", value);
        Accepted::of(&fields)
    }

    fn best(value: &str) -> Option<&'static str> {
        accepted(value).best(Coding::ALL).map(Coding::name)
    }

    #[test]
    fn the_weight_decides_and_then_the_configured_order() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, deflate, br", Some("br")),
            ("gzip;q=1.0, br;q=0.5", Some("gzip")),
            ("x-GZIP", Some("gzip")),
            ("gzip;q=0", None),
            ("*", Some("zstd")),
            ("*, zstd;q=0", Some("br")),
            ("gzip, *;q=0", Some("gzip")),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some("gzip")),
            ("identity;q=0, gzip;q=0.1", Some("gzip")),
            ("gzip;q=0.5, gzip;q=0", None),
            ("gzip;q=2", None),
            ("gzip;level=1", None),
            ("deflate", None),
            ("", None),
        ] {
            assert_eq!(best(value), expected, "{value}");
        }
        assert_eq!(Accepted::of(&Fields::new()), Accepted::default());
        assert!(accepted("br").takes(Coding::Brotli));
        assert!(!accepted("br").takes(Coding::Gzip));
        let only = accepted("br, gzip;q=0.1").best([Coding::Gzip]);
        assert_eq!(only, Some(Coding::Gzip));
    }
}
