//! Decisions, as pure functions: which requests use the cache, what a flight admitted, what a response
//! may be stored as, and for whom.

pub(super) mod admission;
pub(super) mod fence;
pub(super) mod reuse;
pub(super) mod storing;
pub(super) mod validation;
pub(super) mod want;

use smallvec::SmallVec;

use super::rules::Rules;
use crate::fill::{self, OPEN};
use crate::handler::Head as RequestHead;
use crate::http::key::KeyHash;
use crate::http::vary::{self, Codings, Normal};
use crate::http::{Fields, cookies, hop, surrogate};
use crate::store::{Head, VaryNames};

/// Which codings a request is answered in: `None`, its own; else these. Slices are asked for as
/// they are, whoever wants them: ranges of what is compressed on the fly can't be relied on, and
/// every client understands identity.
pub(super) fn codings(fill: fill::Kind, request: &RequestHead, plain: bool) -> Option<Codings> {
    let sliced = match fill {
        fill::Kind::Whole | fill::Kind::Lock => false,
        fill::Kind::Slice => true,
        // With If-Range, a client goes on with what it was given before, in its own codings.
        fill::Kind::Auto => {
            want::guess(request) != (0..OPEN) && !request.fields.contains("if-range")
        }
    };
    (sliced && !plain).then_some(Codings::IDENTITY)
}

/// The variant that a request selects under these Vary names (RFC 9111 4.1); 0 without names.
pub(super) fn variant(
    primary: KeyHash,
    names: &VaryNames,
    fields: &Fields,
    normal: Normal<'_>,
) -> u128 {
    if names.is_empty() {
        return 0;
    }
    let mut text = Vec::with_capacity(64);
    vary::select(names, fields, normal, &mut text);
    primary.variant(&text).0
}

/// Whether a request for this key may have the response that this head belongs to.
pub(super) fn selects(primary: KeyHash, head: &Head, fields: &Fields, normal: Normal<'_>) -> bool {
    head.vary.as_ref().is_none_or(|selected| {
        variant(primary, &selected.names, fields, normal) == selected.variant
    })
}

/// The field lines of a flight's request: those of the allow-list, those that the configuration
/// adds to it, and those that Vary is known to name, from the request that launches it; everything
/// else of that request stays out. Credentials go along, since what comes back is shared only if it
/// says that it may be (RFC 9111 3.5).
pub(super) fn flight_fields(
    request: &Fields,
    names: &[Box<str>],
    codings: Option<Codings>,
    rules: &Rules,
    out: &mut Fields,
) {
    let keyed = || names.iter().map(|name| &**name).chain(rules.key.headers());
    let normal = rules.normal(codings);
    let reduced =
        |name: &[u8]| !normal.languages.is_empty() && name.eq_ignore_ascii_case(b"accept-language");
    for (name, value) in request.iter() {
        let keyed = keyed().any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()));
        // What a variant is reduced to is all that is sent, so that the response fits all of it.
        let own = hop::is_in(&OWN, name) || reduced(name);
        if (keyed || is_carried(name, rules)) && !own {
            out.append_bytes(name, value);
        }
    }
    if !out.contains("cookie") {
        let names: SmallVec<[&str; 4]> = rules.key.cookies().collect();
        if let Some(value) = cookies::only(request, &names) {
            out.append("cookie", value);
        }
    }
    let codings = codings.unwrap_or_else(|| Codings::of(request));
    out.append("accept-encoding", codings.value());
    if let Some(language) = vary::preferred(request, normal.languages) {
        out.append("accept-language", language);
    }
    if rules
        .headers
        .target_list
        .iter()
        .any(|target| &**target == surrogate::FIELD)
    {
        out.append("surrogate-capability", surrogate::CAPABILITY);
    }
}

/// Fields that a flight has of its own, if at all.
const OWN: [&str; 7] = [
    "accept-encoding",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
];

/// Whether flights carry this field of the request that launches them, whatever Vary names.
fn is_carried(name: &[u8], rules: &Rules) -> bool {
    if hop::is_in(hop::SHARED, name) || name.eq_ignore_ascii_case(b"authorization") {
        return true;
    }
    // A cookie is carried only where it is named: it tells clients apart.
    let cookie = name.eq_ignore_ascii_case(b"cookie");
    let mut forward = rules.forward_headers.iter();
    forward.any(|pattern| pattern.matches_field(name) && !(cookie && pattern.is_any()))
        && hop::may_be_carried(name)
}

/// Whether a request would be sent alone just as a flight is sent for all: then its client may have
/// the flight's response even when that can't be shared. A field that is neither on the allow-list
/// nor without meaning to an origin says no.
pub(super) fn may_take(request: &Fields, rules: &Rules) -> bool {
    const WITHOUT_MEANING: [&str; 10] = [
        "host",
        "connection",
        "keep-alive",
        "cache-control",
        "pragma",
        "te",
        "dnt",
        "priority",
        "upgrade-insecure-requests",
        "sec-gpc",
    ];
    request.iter().all(|(name, _)| {
        is_carried(name, rules)
            || hop::is_in(&OWN, name)
            || hop::is_unkeyed(name)
            || name.len() > 10 && name[..10].eq_ignore_ascii_case(b"sec-fetch-")
            || WITHOUT_MEANING
                .iter()
                .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
    })
}
