//! Decisions as pure functions: which requests use the cache, what a fetch sends, how a response is
//! stored, and which requests it may answer.

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

/// Returns the content codings to fetch for a request, `None` for those that the request accepts.
/// Blocks are fetched unencoded: ranges of content that the origin compresses on the fly can't be
/// relied on, and every client accepts identity. `plain` says that ranges of this resource are not
/// requested.
pub(super) fn codings(fill: fill::Kind, request: &RequestHead, plain: bool) -> Option<Codings> {
    let sliced = match fill {
        fill::Kind::Whole | fill::Kind::Lock => false,
        fill::Kind::Slice => true,
        // A request with If-Range continues an earlier response, whose coding it has to get again.
        fill::Kind::Auto => {
            want::guess(request) != (0..OPEN) && !request.fields.contains("if-range")
        }
    };
    (sliced && !plain).then_some(Codings::IDENTITY)
}

/// The variant that a request selects under these Vary names (RFC 9111 4.1), 0 without names.
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

/// Whether the response with this head may answer a request with this key and these header fields.
pub(super) fn selects(
    primary: KeyHash,
    head: &Head,
    fields: &Fields,
    codings: Option<Codings>,
    rules: &Rules,
) -> bool {
    head.vary.as_ref().is_none_or(|selected| {
        let normal = rules.normal(codings);
        variant(primary, &selected.names, fields, normal) == selected.variant
    })
}

/// Collects the header fields that a shared fetch sends: fields of the launching request that are
/// on the allow-list, in `forward_headers` or named by Vary. All other fields of that request are
/// left out. Credentials are sent too, since the response is shared only if it permits that (RFC
/// 9111 3.5).
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
        // If the configuration reduces Accept-Language to a few languages, only the reduced value
        // is sent, so that the response fits every request of the variant.
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

/// Header fields that a shared fetch sets itself.
const OWN: [&str; 7] = [
    "accept-encoding",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
];

/// Whether a shared fetch sends this field of the launching request even if Vary does not name it.
fn is_carried(name: &[u8], rules: &Rules) -> bool {
    if hop::is_in(hop::SHARED, name) || name.eq_ignore_ascii_case(b"authorization") {
        return true;
    }
    // Cookies tell clients apart, so `*` in the configuration does not include them.
    let cookie = name.eq_ignore_ascii_case(b"cookie");
    let mut forward = rules.forward_headers.iter();
    forward.any(|pattern| pattern.matches_field(name) && !(cookie && pattern.is_any()))
        && hop::may_be_carried(name)
}

/// Whether forwarding the request by itself would send the origin the same as a shared fetch. If
/// so, its client may have the response to that fetch even if the response can't be shared. Header
/// fields that a shared fetch leaves out must have no meaning to an origin.
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
