//! Cache-Control (RFC 9111 5.2), parsed tolerantly and interpreted strictly.
//!
//! Names compare without case. Values are tokens or quoted strings. Unknown directives are ignored.
//! An invalid, repeated or contradictory directive is interpreted in the way that caches less (RFC
//! 9111 4.2.1): an invalid max-age counts as 0, and of two different ones the smaller counts. In a
//! response, a malformed directive such as `private; max-age=60` counts as every restriction that
//! occurs in it as a whole word.

#[cfg(test)]
pub(super) mod tests;

use super::Fields;
use super::fields::is_token;

/// Largest number of seconds; larger numbers are reduced to it (RFC 9111 1.2.2).
pub const SECONDS_MAX: u32 = 1 << 31;

/// Scope of a directive that can be limited to some header fields, such as `private="set-cookie"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The directive is absent.
    #[default]
    Absent,
    /// The directive is limited to the fields it names; see `named_fields`.
    Fields,
    /// The directive applies to the whole response.
    Whole,
}

/// The directives of a response (RFC 9111 5.2.2, RFC 5861, RFC 8246). Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the directive of its name")]
pub struct ResponseDirectives {
    pub max_age: Option<u32>,
    pub s_maxage: Option<u32>,
    pub stale_while_revalidate: Option<u32>,
    pub stale_if_error: Option<u32>,
    pub no_cache: Scope,
    pub private: Scope,
    pub no_store: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub no_transform: bool,
    pub immutable: bool,
}

/// The caching policy in one targeted field, or in all lines of Cache-Control together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The policy's directives.
    pub directives: ResponseDirectives,
    /// The field names to which `private` and `no-cache` are limited, in lower case.
    pub named: Vec<String>,
}

/// The directives of a request (RFC 9111 5.2.1, RFC 5861). Times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the directive of its name")]
pub struct RequestDirectives {
    pub max_age: Option<u32>,
    /// Seconds of staleness that the client accepts; `SECONDS_MAX` (any staleness) if max-stale has
    /// no argument.
    pub max_stale: Option<u32>,
    pub min_fresh: Option<u32>,
    pub stale_if_error: Option<u32>,
    pub no_cache: bool,
    pub no_store: bool,
    pub no_transform: bool,
    pub only_if_cached: bool,
}

/// Directives of one message, filled by one parsed directive after the other.
trait ReadDirectives: Default {
    fn apply(&mut self, directive: &Directive<'_>);
}

/// Parses the directives of all these header values into one set.
fn read<'a, D: ReadDirectives>(values: impl IntoIterator<Item = &'a [u8]>) -> D {
    let mut all = D::default();
    for directive in values.into_iter().flat_map(Directives) {
        all.apply(&directive);
    }
    all
}

impl ResponseDirectives {
    /// Parses all Cache-Control lines of a response.
    pub fn of(fields: &Fields) -> ResponseDirectives {
        read(fields.get_all("cache-control"))
    }

    /// Parses the value of one Cache-Control line.
    pub fn parse(value: &[u8]) -> ResponseDirectives {
        read([value])
    }

    /// Whether the response must never be served stale (RFC 9111 4.2.4): it has must-revalidate,
    /// proxy-revalidate, s-maxage (which implies proxy-revalidate, 5.2.2.10) or no-cache.
    pub fn is_strict(&self) -> bool {
        self.must_be_validated() || self.s_maxage.is_some()
    }

    /// Whether a directive explicitly forbids serving the response stale. Unlike in `is_strict`,
    /// s-maxage does not count.
    pub fn must_be_validated(&self) -> bool {
        self.must_revalidate || self.proxy_revalidate || self.no_cache == Scope::Whole
    }

    /// Whether the response to a request with Authorization may be served to other clients (RFC
    /// 9111 3.5).
    pub fn is_for_all(&self) -> bool {
        self.public || self.must_revalidate || self.s_maxage.is_some()
    }
}

impl ResponseDirectives {
    /// Applies a word of a malformed directive, if it is the name of a restriction. Nothing is
    /// permitted by such a word: must-revalidate and s-maxage, which permit storing responses to
    /// Authorization (RFC 9111 3.5), count as proxy-revalidate and `max-age=0`.
    fn restrict(&mut self, word: &[u8]) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match () {
            _ if is("private") => self.private = Scope::Whole,
            _ if is("no-store") => self.no_store = true,
            _ if is("no-cache") => self.no_cache = Scope::Whole,
            _ if is("max-age") || is("s-maxage") => self.max_age = Some(0),
            _ if is("must-revalidate") || is("proxy-revalidate") => self.proxy_revalidate = true,
            _ if is("no-transform") => self.no_transform = true,
            _ => {}
        }
    }
}

impl ReadDirectives for ResponseDirectives {
    fn apply(&mut self, d: &Directive<'_>) {
        if !d.is_well_formed() {
            d.words().for_each(|word| self.restrict(word));
        }
        match () {
            _ if d.is("max-age") => smaller(&mut self.max_age, d.seconds()),
            _ if d.is("s-maxage") => smaller(&mut self.s_maxage, d.seconds()),
            _ if d.is("stale-while-revalidate") => {
                smaller(&mut self.stale_while_revalidate, d.seconds());
            }
            _ if d.is("stale-if-error") => smaller(&mut self.stale_if_error, d.seconds()),
            _ if d.is("no-cache") => self.no_cache = self.no_cache.max(d.scope()),
            _ if d.is("private") => self.private = self.private.max(d.scope()),
            // A directive that restricts caching is honoured with any argument. A directive that
            // permits caching is honoured only without an argument, the form that the RFCs define.
            _ if d.is("no-store") => self.no_store = true,
            _ if d.is("must-revalidate") => self.must_revalidate = true,
            _ if d.is("proxy-revalidate") => self.proxy_revalidate = true,
            _ if d.is("no-transform") => self.no_transform = true,
            _ if d.is("must-understand") => self.must_understand |= d.argument.is_none(),
            _ if d.is("public") => self.public |= d.argument.is_none(),
            _ if d.is("immutable") => self.immutable |= d.argument.is_none(),
            _ => {}
        }
    }
}

impl RequestDirectives {
    /// Parses all Cache-Control lines of a request. Pragma is ignored (RFC 9111 5.4).
    pub fn of(fields: &Fields) -> RequestDirectives {
        read(fields.get_all("cache-control"))
    }

    /// Parses the value of one Cache-Control line.
    #[cfg(any(test, feature = "test-rigs"))]
    pub fn parse(value: &[u8]) -> RequestDirectives {
        read([value])
    }
}

impl ReadDirectives for RequestDirectives {
    fn apply(&mut self, d: &Directive<'_>) {
        match () {
            _ if d.is("max-age") => smaller(&mut self.max_age, d.seconds()),
            _ if d.is("max-stale") => {
                let any = d.argument.is_none();
                smaller(
                    &mut self.max_stale,
                    if any { SECONDS_MAX } else { d.seconds() },
                );
            }
            _ if d.is("min-fresh") => {
                // A larger `min-fresh` is stricter. For all other directives with a number, the
                // smaller number is stricter.
                let seconds = d.valid_seconds().unwrap_or(SECONDS_MAX);
                self.min_fresh = self.min_fresh.max(Some(seconds));
            }
            _ if d.is("stale-if-error") => smaller(&mut self.stale_if_error, d.seconds()),
            _ if d.is("no-cache") => self.no_cache = true,
            _ if d.is("no-store") => self.no_store = true,
            _ if d.is("no-transform") => self.no_transform = true,
            _ if d.is("only-if-cached") => self.only_if_cached = true,
            _ => {}
        }
    }
}

/// Returns the field names to which `private` and `no-cache` are limited (`Scope::Fields`), in
/// lower case and in the order of the header.
pub fn named_fields(fields: &Fields) -> Vec<String> {
    fields
        .get_all("cache-control")
        .flat_map(Directives)
        .filter(|d| d.is("private") || d.is("no-cache"))
        .filter_map(|d| names_in(d.argument.filter(|a| a.valid)?.text))
        .flatten()
        .collect()
}

/// Returns the field names of a comma-separated list, in lower case; `None` if the list is empty or
/// contains an invalid name.
pub(super) fn names_in(list: &[u8]) -> Option<Vec<String>> {
    let members = list.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let names: Vec<_> = members.filter(|name| !name.is_empty()).collect();
    if names.is_empty() || !names.iter().all(|name| is_token(name)) {
        return None;
    }
    let lower = |name: &&[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
    Some(names.iter().map(lower).collect())
}

/// delta-seconds (RFC 9111 1.2.2): the value of decimal digits, at most `SECONDS_MAX`;
/// `None` for anything else.
pub(super) fn delta_seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |seconds: u32, &digit| {
        seconds
            .saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
            .min(SECONDS_MAX)
    }))
}

fn smaller(kept: &mut Option<u32>, seconds: u32) {
    *kept = Some(kept.map_or(seconds, |kept| kept.min(seconds)));
}

/// One directive of Cache-Control as written.
struct Directive<'a> {
    /// The whole directive, and the comma after it.
    text: &'a [u8],
    name: &'a [u8],
    argument: Option<Argument<'a>>,
}

#[derive(Clone, Copy)]
struct Argument<'a> {
    /// The value without surrounding quotes; escapes in the value are not decoded.
    text: &'a [u8],
    /// Whether the value is a token or a complete quoted string, with nothing around it.
    valid: bool,
}

impl Directive<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether the name is a token, and the argument, if any, a token or a quoted string (RFC 9111
    /// 5.2).
    fn is_well_formed(&self) -> bool {
        is_token(self.name) && self.argument.is_none_or(|argument| argument.valid)
    }

    /// Returns the words in the directive: letters, digits, `-` and `_` without anything between.
    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        self.text.split(move |&b| !is_part(b))
    }

    /// Returns the value as delta-seconds (RFC 9111 1.2.2); `None` if there is none or it is
    /// invalid.
    fn valid_seconds(&self) -> Option<u32> {
        delta_seconds(self.argument.filter(|a| a.valid)?.text)
    }

    /// Returns the value as delta-seconds; 0 if there is none or it is invalid.
    fn seconds(&self) -> u32 {
        self.valid_seconds().unwrap_or(0)
    }

    /// Returns the directive's scope: limited to fields if its argument is a valid list of names,
    /// otherwise the whole response.
    fn scope(&self) -> Scope {
        match self.argument.filter(|a| a.valid) {
            Some(argument) if names_in(argument.text).is_some() => Scope::Fields,
            _ => Scope::Whole,
        }
    }
}

/// Iterator over the directives of one line, tolerant of malformed input.
struct Directives<'a>(&'a [u8]);

impl<'a> Iterator for Directives<'a> {
    type Item = Directive<'a>;

    fn next(&mut self) -> Option<Directive<'a>> {
        loop {
            let line = self.0;
            if line.is_empty() {
                return None;
            }
            let name_end = end_of(line, |b| b == b',' || b == b'=');
            let written = &line[..name_end];
            let name = written.trim_ascii();
            let argument = match line.get(name_end) {
                Some(b'=') => {
                    let mut argument = self.take_argument(name_end + 1);
                    // No white space is permitted around `=` (RFC 9111 5.2).
                    argument.valid &= !written.ends_with(b" ") && !written.ends_with(b"\t");
                    Some(argument)
                }
                _ => {
                    self.skip_past(name_end);
                    None
                }
            };
            if !name.is_empty() || argument.is_some() {
                return Some(Directive {
                    text: &line[..line.len() - self.0.len()],
                    name,
                    argument,
                });
            }
        }
    }
}

impl<'a> Directives<'a> {
    /// Parses the argument that begins at `start` and skips the rest up to and including the next
    /// comma.
    fn take_argument(&mut self, start: usize) -> Argument<'a> {
        let rest = &self.0[start..];
        if let Some(length) = quoted_length(rest) {
            let after = &rest[length..];
            let comma = end_of(after, |b| b == b',');
            let valid = after[..comma].trim_ascii().is_empty();
            self.skip_past(start + length + comma);
            let text = &rest[1..length - 1];
            return Argument { text, valid };
        }
        // An unterminated quote must not hide the directives after it.
        let comma = end_of(rest, |b| b == b',');
        let written = &rest[..comma];
        self.skip_past(start + comma);
        let text = written.trim_ascii_end();
        let valid = is_token(text);
        Argument { text, valid }
    }

    fn skip_past(&mut self, comma: usize) {
        self.0 = self.0.get(comma + 1..).unwrap_or_default();
    }
}

/// Returns the position of the first byte for which `is` holds, or the length of `bytes`.
fn end_of(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&b| is(b)).unwrap_or(bytes.len())
}

/// Returns the length of the quoted string (RFC 9110 5.6.4) at the start of `bytes`, including its
/// quotes.
fn quoted_length(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let mut escaped = false;
    for (i, &b) in bytes.iter().enumerate().skip(1) {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}
