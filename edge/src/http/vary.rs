//! Vary: the request headers by which the responses of a resource differ, and the variant that a
//! request selects (RFC 9111 4.1, RFC 9110 12.5.5).

mod language;

use std::sync::Arc;

use smallvec::SmallVec;

use super::Fields;
use super::coding::weighted;
use super::fields::is_token;
use super::hop;

pub use language::{is_language_tag, preferred};

/// Largest number of names in Vary. A response with more is not stored, because each name
/// multiplies the number of variants.
pub const NAMES_MAX: usize = 16;

/// The names in one resource's Vary: lower case, sorted, without duplicates. An empty value does
/// not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vary(Arc<[Box<str>]>);

/// Configured reductions of request headers beyond their normal form, which limit the number of
/// variants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reductions<'a> {
    /// Content codings to request from the origin instead of those that the client accepts; `None`
    /// to request the client's.
    pub codings: Option<Codings>,
    /// Languages that Accept-Language is reduced to: only the one among them that the client
    /// prefers counts. If empty, Accept-Language is not reduced.
    pub languages: &'a [Box<str>],
}

/// Errors in a response's Vary, which then can't be used to select variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// `*`: the response depends on more than headers, so no stored response can be selected.
    Any,
    /// Vary has more than `NAMES_MAX` names.
    TooMany,
    /// Vary contains an invalid header name.
    BadName,
}

impl Vary {
    /// Parses all Vary lines of a response. Without Vary the result is empty.
    pub fn of(response: &Fields) -> Result<Vary, Error> {
        let mut names: SmallVec<[String; 4]> = SmallVec::new();
        let mut error = None;
        for member in response.members("vary") {
            match std::str::from_utf8(member) {
                _ if member == b"*" => return Err(Error::Any),
                Ok(name) if is_token(member) => {
                    let name = name.to_ascii_lowercase();
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                _ => error = error.or(Some(Error::BadName)),
            }
            if names.len() > NAMES_MAX {
                return Err(Error::TooMany);
            }
        }
        names.sort_unstable();
        match error {
            Some(error) => Err(error),
            None => Ok(Vary(
                names.into_iter().map(String::into_boxed_str).collect(),
            )),
        }
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}

/// Appends the selecting part of a request: the values of the headers in Vary. The values are
/// normalised, so equivalent requests give the same bytes, and delimited, so different values give
/// different bytes.
///
/// For each name: its length and text, whether the header is present, and the value's length and
/// text. A request to the origin for a variant must carry the normalised values (`copy`), since an
/// origin may distinguish spellings that are equal here:
///
/// - Accept: several lines are one list (RFC 9110 5.3), and spaces around commas outside quotes are
///   ignored.
/// - Accept-Language is rewritten to an equivalent form (RFC 9110 12.5.4), or reduced to `preferred`
///   with `Reductions::languages`.
/// - Accept-Encoding is reduced to `Codings`.
/// - The lines of any other header are one list if all members are tokens. Otherwise they count as
///   they are, because the header may not be a list (RFC 9111 4.1): User-Agent contains commas.
pub fn select(names: &[Box<str>], request: &Fields, normal: Reductions<'_>, out: &mut Vec<u8>) {
    for name in names {
        append_delimited(out, |out| out.extend_from_slice(name.as_bytes()));
        out.push(0);
        let present = out.len() - 1;
        let mut there = false;
        append_delimited(out, |out| there = append_normal(request, name, normal, out));
        out[present] = u8::from(there);
    }
}

/// One request header, normalised as in `select`; `None` if it is absent and its absence has no
/// equivalent value. `name` is in lower case.
pub fn normal_value(request: &Fields, name: &str, normal: Reductions<'_>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    append_normal(request, name, normal, &mut value).then_some(value)
}

/// Copies the lines of a request header in the form of `select`, so that requests of one variant
/// send the origin the same. `name` is in lower case.
pub fn copy(request: &Fields, name: &str, normal: Reductions<'_>, out: &mut Fields) {
    let value = normal_value(request, name, normal);
    for line in value
        .iter()
        .flat_map(|value| value.split(|&b| b == LINE_END))
    {
        out.append_bytes(name.as_bytes(), line);
    }
}

/// Separates the lines of a header that is no list. The byte is not permitted in values (RFC 9110
/// 5.5).
const LINE_END: u8 = b'\n';

/// Appends the normalised value of a request header; returns whether there is a value.
fn append_normal(request: &Fields, name: &str, normal: Reductions<'_>, out: &mut Vec<u8>) -> bool {
    match name {
        "accept-encoding" => {
            let codings = normal.codings.unwrap_or_else(|| Codings::of(request));
            out.extend_from_slice(codings.value().as_bytes());
            return true;
        }
        "accept-language" if !normal.languages.is_empty() => {
            let preferred = preferred(request, normal.languages);
            out.extend_from_slice(preferred.unwrap_or_default().as_bytes());
            return preferred.is_some();
        }
        "accept-language" if language::append_normal(request, out) => return true,
        _ if hop::is_in(hop::SHARED, name.as_bytes()) => append_list(request, name, out),
        _ => append_lines(request, name, out),
    }
    request.contains(name)
}

/// Appends the output of `append`, preceded by its length in four bytes.
fn append_delimited(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    append(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Appends all lines of a header: as one list if all members are tokens, otherwise as they are.
fn append_lines(request: &Fields, name: &str, out: &mut Vec<u8>) {
    let lines = request.get_all(name).map(<[u8]>::trim_ascii);
    match request.members(name).all(is_token) {
        true => append_joined(request.members(name), b", ", out),
        false => append_joined(lines, &[LINE_END], out),
    }
}

fn append_joined<'a>(parts: impl Iterator<Item = &'a [u8]>, separator: &[u8], out: &mut Vec<u8>) {
    for (i, part) in parts.enumerate() {
        if i > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(part);
    }
}

/// Appends all lines of a header as one list without spaces around its commas.
fn append_list(request: &Fields, name: &str, out: &mut Vec<u8>) {
    for (i, value) in request.get_all(name).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        append_value(value.trim_ascii(), out);
    }
}

fn append_value(value: &[u8], out: &mut Vec<u8>) {
    let (mut quoted, mut escaped, mut after_comma) = (false, false, false);
    let start = out.len();
    for &b in value {
        let space = b == b' ' || b == b'\t';
        if !quoted && after_comma && space {
            continue;
        }
        if !quoted && b == b',' {
            while out.len() > start && matches!(out.last(), Some(b' ' | b'\t')) {
                out.pop();
            }
        }
        after_comma = !quoted && b == b',';
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        out.push(b);
    }
}

/// The set of content codings that a request accepts, among gzip, br, zstd and identity: its
/// normalised Accept-Encoding. The client's preferences (q) are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codings(u8);

impl Codings {
    /// The set with identity only.
    pub const IDENTITY: Codings = Codings(1);
    const BR: Codings = Codings(2);
    const GZIP: Codings = Codings(4);
    const ZSTD: Codings = Codings(8);
    const ALL: Codings = Codings(15);

    /// Returns the content codings that a request accepts (RFC 9110 12.5.3). A request without the
    /// header accepts any coding, but counts as accepting only identity, which every client
    /// understands.
    pub fn of(request: &Fields) -> Codings {
        let (mut accepted, mut named) = (Codings(0), Codings(0));
        let mut others = None;
        for member in request.members("accept-encoding") {
            let (coding, weight) = weighted(member);
            let accepts = weight > 0;
            if coding == b"*" {
                others = Some(accepts);
            } else if let Some(coding) = Codings::named(coding) {
                named.0 |= coding.0;
                // If a coding is listed twice, a refusal (`q=0`) takes precedence.
                accepted.0 |= coding.0;
                if !accepts {
                    accepted.0 &= !coding.0;
                }
            }
        }
        let unnamed = match others {
            Some(true) => Codings::ALL,
            Some(false) => Codings(0),
            None => Codings::IDENTITY,
        };
        Codings(accepted.0 | (unnamed.0 & !named.0))
    }

    fn named(coding: &[u8]) -> Option<Codings> {
        let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        match () {
            _ if is("gzip") || is("x-gzip") => Some(Codings::GZIP),
            _ if is("br") => Some(Codings::BR),
            _ if is("zstd") => Some(Codings::ZSTD),
            _ if is("identity") => Some(Codings::IDENTITY),
            _ => None,
        }
    }

    /// Returns the equivalent Accept-Encoding for the request to the origin.
    pub fn value(self) -> &'static str {
        const VALUES: [&str; 16] = [
            "identity;q=0",
            "identity",
            "br, identity;q=0",
            "br",
            "gzip, identity;q=0",
            "gzip",
            "br, gzip, identity;q=0",
            "br, gzip",
            "zstd, identity;q=0",
            "zstd",
            "br, zstd, identity;q=0",
            "br, zstd",
            "gzip, zstd, identity;q=0",
            "gzip, zstd",
            "br, gzip, zstd, identity;q=0",
            "br, gzip, zstd",
        ];
        VALUES[usize::from(self.0 & Codings::ALL.0)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        lines.iter().copied().collect()
    }

    fn vary(value: &str) -> Result<Vary, Error> {
        Vary::of(&fields(&[("vary", value)]))
    }

    fn selected(names: &str, request: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let vary = vary(names).expect("valid");
        select(&vary.0, &fields(request), Reductions::default(), &mut out);
        out
    }

    #[test]
    fn names_are_sorted_and_bounded() {
        let response = fields(&[("vary", "Origin, , accept-ENCODING"), ("Vary", "origin")]);
        let names = Vary::of(&response).expect("valid");
        assert_eq!(
            names.names().collect::<Vec<_>>(),
            ["accept-encoding", "origin"]
        );
        assert!(Vary::of(&Fields::new()).is_ok_and(|v| v.names().len() == 0));
        assert_eq!(vary("a, *"), Err(Error::Any));
        assert_eq!(vary("a b, *"), Err(Error::Any));
        assert_eq!(vary("a b"), Err(Error::BadName));
        let many: Vec<_> = (0..=NAMES_MAX).map(|i| format!("x-{i}")).collect();
        assert_eq!(vary(&many.join(",")), Err(Error::TooMany));
        assert!(vary(&many[1..].join(",")).is_ok());
        assert!(vary(&["a"; 100].join(",")).is_ok());
    }

    #[test]
    fn equivalent_requests_select_the_same_variant() {
        let same = [
            selected("x", &[("X", "a, b")]),
            selected("X", &[("x", "a\t ,  b ")]),
            selected("x", &[("x", "a"), ("other", "1"), ("x", "b")]),
            // Empty members don't count (RFC 9110 5.6.1.2).
            selected("x", &[("x", ",a,, b ,")]),
        ];
        assert!(same.iter().all(|key| *key == same[0]));
        let different = [
            selected("x", &[("x", "a, b")]),
            selected("x", &[("x", "a b")]),
            selected("x", &[("x", "A, b")]),
            selected("x", &[("x", "\"a, b\"")]),
            selected("x", &[("x", "\"a,b\"")]),
            selected("x", &[("x", "")]),
            selected("x", &[]),
            selected("y", &[("y", "a, b")]),
            selected("x, y", &[("x", "a, b")]),
            selected("x, y", &[("x", "a, b"), ("y", "")]),
            selected("", &[]),
            selected("x", &[("x", "(a, b)")]),
            selected("x", &[("x", "(a,b)")]),
            selected("x", &[("x", "(a"), ("x", "b)")]),
            selected("x", &[("x", "b)"), ("x", "(a")]),
            selected("x", &[("x", "(a"), ("x", "b)"), ("x", "")]),
        ];
        for (i, one) in different.iter().enumerate() {
            assert!(different[i + 1..].iter().all(|other| one != other), "{i}");
        }
        assert!(selected("", &[("x", "a")]).is_empty());
    }

    #[test]
    fn accept_encoding_is_reduced_to_a_set() {
        let codings = |value: &str| Codings::of(&fields(&[("accept-encoding", value)])).value();
        for (value, expected) in [
            ("gzip, deflate, br, zstd", "br, gzip, zstd"),
            ("GZIP;q=1.0 ,br;q=0.001", "br, gzip"),
            ("x-gzip", "gzip"),
            ("gzip;q=0", "identity"),
            ("gzip;q=0.000, br; q=0.5", "br"),
            ("gzip;q=2", "identity"),
            ("gzip;q=x", "identity"),
            ("gzip;level=9", "identity"),
            ("gzip, gzip;q=0", "identity"),
            ("deflate", "identity"),
            ("", "identity"),
            ("*", "br, gzip, zstd"),
            ("*, br;q=0", "gzip, zstd"),
            ("identity;q=1, *;q=0", "identity"),
            ("gzip, *;q=0", "gzip, identity;q=0"),
            ("gzip, identity;q=0", "gzip, identity;q=0"),
            ("*;q=0", "identity;q=0"),
        ] {
            assert_eq!(codings(value), expected, "{value}");
        }
        assert_eq!(Codings::of(&Fields::new()), Codings::IDENTITY);
        let key = |value| selected("accept-encoding", &[("accept-encoding", value)]);
        assert_eq!(key("gzip, br"), key("br;q=0.5,gzip;q=1, deflate"));
        assert_ne!(key("gzip, br"), key("gzip"));
        assert_eq!(key("identity"), selected("accept-encoding", &[]));
    }

    #[test]
    fn the_forwarded_header_selects_the_same_variant() {
        for bits in 0..16 {
            let codings = Codings(bits);
            let sent = fields(&[("accept-encoding", codings.value())]);
            assert_eq!(Codings::of(&sent), codings);
        }
    }

    proptest! {
        #[test]
        fn different_lists_of_tokens_select_different_variants(
            a in prop::collection::vec("[a-c]{1,3}", 0..4),
            b in prop::collection::vec("[a-c]{1,3}", 0..4),
        ) {
            let (one, other) = (a.join(", "), b.join(","));
            let same = selected("x, y", &[("x", &one)]) == selected("x, y", &[("x", &other)]);
            prop_assert_eq!(same, a == b);
        }

        #[test]
        fn requests_of_one_variant_send_the_origin_the_same(
            name in prop::sample::select(vec!["user-agent", "accept", "accept-language", "cookie"]),
            a in prop::collection::vec("[ab,;= \"]{0,4}", 0..4),
            b in prop::collection::vec("[ab,;= \"]{0,4}", 0..4),
        ) {
            let of = |lines: &[String]| {
                let lines: Vec<_> = lines.iter().map(|line| (name, line.trim())).collect();
                let mut sent = Fields::new();
                copy(&fields(&lines), name, Reductions::default(), &mut sent);
                let sent: Vec<_> = sent.get_all(name).map(<[u8]>::to_vec).collect();
                (selected(name, &lines), sent)
            };
            let (one, other) = (of(&a), of(&b));
            prop_assert_eq!(one.0 == other.0, one.1 == other.1);
        }

        #[test]
        fn any_value_is_accepted(value in "[ -~]{0,40}") {
            let _ = vary(&value);
            selected("x, accept-encoding", &[("x", &value), ("accept-encoding", &value)]);
        }
    }
}
