//! The request of a shared fetch: its target and header fields, made from the request that launches
//! it, but only from the parts that all its readers share.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use super::validation;
use crate::cache::rules::Rules;
use crate::fill::OPEN;
use crate::handler::{Head as RequestHead, loops};
use crate::http::key::KeyRules;
use crate::http::pattern::Pattern;
use crate::http::vary::{self, Codings};
use crate::http::{Fields, cookies, hop, surrogate};
use crate::store::Head;

/// The User-Agent of shared fetches: no client's name, since an origin or a firewall may answer some
/// of them otherwise than others.
const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// Largest number of bytes of a client's header that a shared fetch carries, over all lines. A
/// longer header is left out, because origins refuse requests with long headers.
const VALUE_MAX: usize = 1024;

/// The parts of the launching client's request that a shared fetch carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cache) enum Carries {
    /// Nothing, apart from the headers of the key and of Vary: the response is about the resource,
    /// or about the variant.
    #[default]
    Nothing,
    /// Nothing, and headers of `forward_headers` that the origin may need are left out.
    Incomplete,
    /// Accept or Accept-Language, which choose a representation.
    Choices,
    /// Credentials, the client's address, or headers of `forward_headers`.
    Client,
}

impl Carries {
    /// Whether the fetch carries nothing of one client.
    pub(in crate::cache) fn is_neutral(self) -> bool {
        self <= Carries::Incomplete
    }
}

/// The request of a shared fetch.
pub(in crate::cache) struct SharedRequest {
    pub(in crate::cache) head: RequestHead,
    /// The header fields without conditions and Range. They choose the variant, whatever the
    /// readers' requests contain.
    pub(in crate::cache) sent: Fields,
    pub(in crate::cache) leader_share: LeaderShare,
}

/// The share that the launching request has in a shared fetch and in the response.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cache) struct LeaderShare {
    /// The parts of the launching request that the fetch carries.
    pub(in crate::cache) carries: Carries,
    /// Whether the origin has just refused a validation without the `forward_headers` that this
    /// fetch may carry.
    pub(in crate::cache) needed: bool,
    /// The unshared responses that the client of the launching request may have.
    pub(in crate::cache) may_take: MayTake,
}

/// The responses, and header fields, that can't be shared and that the client of the launching
/// request may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cache) enum MayTake {
    #[default]
    Nothing,
    /// Every response but a refusal: the fetch had another User-Agent than the client's request.
    Content,
    /// Every response: the client's own request would have sent the origin the same.
    All,
}

/// The client's request that launches a shared fetch, and the rules for it.
pub(in crate::cache) struct Launcher<'a> {
    /// The head of the client's request.
    pub(in crate::cache) request: &'a RequestHead,
    /// The names in the resource's Vary.
    pub(in crate::cache) names: &'a [Box<str>],
    pub(in crate::cache) codings: Option<Codings>,
    pub(in crate::cache) rules: &'a Rules,
    /// Whether to leave out everything of the client that can be left out.
    pub(in crate::cache) neutral: bool,
    /// Whether the origin has just refused a validation without `forward_headers`.
    pub(in crate::cache) needed: bool,
    /// Whether the client's Accept and Accept-Language choose the representation. If one is stored
    /// already, only headers that Vary names count.
    pub(in crate::cache) chooses: bool,
}

impl<'a> Launcher<'a> {
    /// The launcher of a fetch that carries as much of the request as a shared fetch may.
    fn of(request: &'a RequestHead, names: &'a [Box<str>], rules: &'a Rules) -> Launcher<'a> {
        Launcher {
            request,
            names,
            codings: None,
            rules,
            neutral: false,
            needed: false,
            chooses: true,
        }
    }
}

/// Makes the request of a shared fetch. `stored` is the head of the stored response that the fetch
/// revalidates, and `range` the range to fetch, `None` for all.
pub(in crate::cache) fn shared_request(
    launcher: &Launcher<'_>,
    stored: Option<&Head>,
    range: Option<&Range<u64>>,
) -> SharedRequest {
    let mut head = RequestHead::new();
    target(launcher.request, &launcher.rules.key, &mut head.target);
    head.authority.push_str(&launcher.request.authority);
    // The ids of the trace are headers of this hop. The client's tracestate is not sent: an origin whose response contains
    // it would put one client's text into the response of others.
    head.trace = (launcher.request.trace.as_ref()).map(|trace| Rc::new(trace.without_state()));
    let (carries, complete) = fields(launcher, &mut head.fields);
    let sent = head.fields.clone();
    if let Some(stored) = stored {
        validation::ask(stored, &mut head.fields);
    }
    if let Some(range) = range {
        head.fields.append("range", range_value(range));
    }
    let own = &launcher.request.fields;
    loops::copy_entries(own, &mut head.fields);
    let same_agent = own
        .get("user-agent")
        .is_none_or(|own| Some(own) == sent.get("user-agent"));
    let may_take = match complete && may_take(own, launcher.rules) {
        false => MayTake::Nothing,
        true if same_agent => MayTake::All,
        true => MayTake::Content,
    };
    SharedRequest {
        head,
        sent,
        leader_share: LeaderShare {
            carries,
            needed: launcher.needed,
            may_take,
        },
    }
}

/// Appends the target of a shared fetch, which contains only the parts of the URL that are in the
/// key.
pub(in crate::cache) fn target(request: &RequestHead, rules: &KeyRules, out: &mut String) {
    if rules.is_plain() {
        return out.push_str(&request.target);
    }
    out.push_str(request.path());
    if let Some(query) = rules.query(request.query()) {
        out.push('?');
        out.push_str(&query);
    }
}

/// The value of a Range header: `bytes=first-last`, or `bytes=first-` for the rest (RFC 9110
/// 14.1.2).
fn range_value(range: &Range<u64>) -> String {
    match range.end {
        OPEN => format!("bytes={}-", range.start),
        end => format!("bytes={}-{}", range.start, end - 1),
    }
}

/// Collects the header fields that a shared fetch sends: fields of the launching request that are
/// in the key, named by Vary, of content negotiation, or in `forward_headers`. All other fields of
/// that request are left out. Credentials are sent too, since the response is shared only if it
/// permits that (RFC 9111 3.5).
///
/// Returns what the fields say of the client, and whether they are complete: the fetch has all
/// fields of these kinds that the launching request has.
fn fields(launcher: &Launcher<'_>, out: &mut Fields) -> (Carries, bool) {
    let (request, rules) = (&launcher.request.fields, launcher.rules);
    let normal = rules.normal(launcher.codings);
    let (mut carries, mut complete) = (Carries::Nothing, true);
    for (name, _) in request.iter() {
        let Some((part, sent)) = part(name, launcher).filter(|_| !hop::is_in(&OWN, name)) else {
            continue;
        };
        complete &= sent;
        if !sent {
            if part == Carries::Client {
                // The origin may refuse the fetch because this header is missing.
                carries = carries.max(Carries::Incomplete);
            }
            continue;
        }
        if has(out, name) {
            continue;
        }
        carries = carries.max(part);
        // All lines of the header, in the form that keys and variants contain. Otherwise one client
        // could choose the response for others whose requests have the same key.
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        vary::copy(request, &name, normal, out);
    }
    if !out.contains("cookie") {
        let names: SmallVec<[&str; 4]> = rules.key.cookies().collect();
        if let Some(value) = cookies::only(request, &names) {
            out.append("cookie", value);
        }
    }
    // A User-Agent of the key or of the variant has the client's value, or is absent.
    if let None | Some((Carries::Client, false)) = part(b"user-agent", launcher) {
        out.append("user-agent", AGENT);
    }
    let codings = launcher.codings.unwrap_or_else(|| Codings::of(request));
    out.append("accept-encoding", codings.value());
    if let Some(language) = vary::preferred(request, normal.languages) {
        out.append("accept-language", language);
    }
    let targets = &rules.headers.target_list;
    if targets.iter().any(|target| &**target == surrogate::FIELD) {
        out.append("surrogate-capability", surrogate::CAPABILITY);
    }
    if rules.forwards_address() && !launcher.neutral {
        carries = Carries::Client;
    }
    (carries, complete)
}

/// Sets User-Agent to the value that a shared fetch sends.
pub(in crate::cache) fn level_agent(rules: &Rules, fields: &mut Fields) {
    let name = b"user-agent";
    let mut keyed = rules.key.headers().map(str::as_bytes);
    let own = keyed.any(|keyed| keyed == name)
        || is_listed(&rules.constant_headers, name)
        || is_carried(name, rules);
    if !own {
        fields.set("user-agent", AGENT);
    }
}

/// Classifies a field of the launching request by what it says of the client, and says whether the
/// shared fetch has it. `None` for a field without a meaning to shared fetches.
fn part(name: &[u8], launcher: &Launcher<'_>) -> Option<(Carries, bool)> {
    let (request, rules) = (&launcher.request.fields, launcher.rules);
    // If the configuration reduces Accept-Language to a few languages, only the reduced value is
    // sent, so that the response fits every request of the variant.
    let reduced =
        || !rules.key.languages.is_empty() && name.eq_ignore_ascii_case(b"accept-language");
    let keyed = rules
        .key
        .headers()
        .any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()));
    let is_short = || length(request, name) <= VALUE_MAX;
    if reduced() {
        None
    } else if keyed || is_listed(&rules.constant_headers, name) || is_trusted(name, rules) {
        Some((Carries::Nothing, true))
    } else if name.eq_ignore_ascii_case(b"authorization") {
        Some((Carries::Client, true))
    } else if is_listed(launcher.names, name) || accepts_all(request, name) {
        Some((Carries::Nothing, is_short()))
    } else if hop::is_in(hop::SHARED, name) {
        Some((Carries::Choices, launcher.chooses && is_short()))
    } else {
        let sent = !launcher.neutral && is_short();
        is_carried(name, rules).then_some((Carries::Client, sent))
    }
}

/// Whether a request has headers of one client, apart from those of the key and these names of Vary,
/// that a shared fetch may carry.
pub(in crate::cache) fn has_parts_of_a_client(
    request: &RequestHead,
    names: &[Box<str>],
    rules: &Rules,
) -> bool {
    parts(request, names, rules) > Carries::Nothing
}

/// Whether a shared fetch leaves out a header that selects the variant of the request, because the
/// header is too long. `names` are the names in the resource's Vary.
pub(in crate::cache) fn leaves_out_vary(
    request: &RequestHead,
    names: &[Box<str>],
    rules: &Rules,
) -> bool {
    let launcher = Launcher::of(request, names, rules);
    let mut names = names.iter().map(|name| name.as_bytes());
    names.any(|name| {
        !hop::is_in(&OWN, name) && part(name, &launcher) == Some((Carries::Nothing, false))
    })
}

/// Whether a request has headers that a neutral fetch leaves out and that an origin may need: those
/// of `forward_headers`.
pub(in crate::cache) fn has_forwarded_headers(
    request: &RequestHead,
    names: &[Box<str>],
    rules: &Rules,
) -> bool {
    parts(request, names, rules) == Carries::Client
}

/// The parts of a request that a shared fetch may carry, apart from those of the key and these names
/// of Vary.
fn parts(request: &RequestHead, names: &[Box<str>], rules: &Rules) -> Carries {
    let launcher = Launcher::of(request, names, rules);
    let names = request.fields.iter().map(|(name, _)| name);
    let names = names.filter(|name| !hop::is_in(&OWN, name));
    let parts = names.filter_map(|name| part(name, &launcher));
    parts.map(|(part, _)| part).max().unwrap_or_default()
}

/// Whether this is an Accept or Accept-Language that means the same as none: `*/*` or `*` (RFC 9110
/// 12.5.1, 12.5.4).
fn accepts_all(request: &Fields, name: &[u8]) -> bool {
    let is = |header: &str, all: &[u8]| {
        name.eq_ignore_ascii_case(header.as_bytes())
            && request
                .get_all(header)
                .all(|value| value.trim_ascii() == all)
    };
    is("accept", b"*/*") || is("accept-language", b"*")
}

fn is_listed(names: &[Box<str>], name: &[u8]) -> bool {
    names
        .iter()
        .any(|listed| name.eq_ignore_ascii_case(listed.as_bytes()))
}

fn has(fields: &Fields, name: &[u8]) -> bool {
    fields
        .iter()
        .any(|(other, _)| other.eq_ignore_ascii_case(name))
}

/// Number of bytes of all lines of a header.
fn length(request: &Fields, name: &[u8]) -> usize {
    let lines = request
        .iter()
        .filter(|(other, _)| other.eq_ignore_ascii_case(name));
    lines.map(|(_, value)| value.len()).sum()
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
    hop::is_in(hop::SHARED, name)
        || name.eq_ignore_ascii_case(b"authorization")
        || (names(&rules.forward_headers, name) && hop::may_be_carried(name))
        || is_trusted(name, rules)
}

/// Whether the operator trusts the values of this header: a response to a fetch that carries it is
/// about the resource. Credentials are never trusted.
fn is_trusted(name: &[u8], rules: &Rules) -> bool {
    names(&rules.trusted_headers, name)
        && !name.eq_ignore_ascii_case(b"authorization")
        && (hop::may_be_carried(name) || hop::is_in(hop::SHARED, name))
}

/// Whether a list of the configuration names this header. Cookies tell clients apart, so `*` does
/// not include them.
fn names(patterns: &[Pattern], name: &[u8]) -> bool {
    let cookie = name.eq_ignore_ascii_case(b"cookie");
    let mut patterns = patterns.iter();
    patterns.any(|pattern| pattern.matches_field(name) && !(cookie && pattern.is_any()))
}

/// Whether the origin would receive the same if the request were forwarded separately in place of a
/// shared fetch. If so, its client may have the response to that fetch even if the response can't
/// be shared. Header fields that a shared fetch leaves out must have no meaning to an origin.
pub(in crate::cache) fn may_take(request: &Fields, rules: &Rules) -> bool {
    const WITHOUT_MEANING: [&str; 11] = [
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
        // An origin whose responses depend on the User-Agent must say so by Vary (RFC 9110 12.5.5).
        "user-agent",
    ];
    request.iter().all(|(name, _)| {
        is_carried(name, rules)
            || hop::is_in(&OWN, name)
            || hop::is_unkeyed(name)
            || name.len() > 10 && name[..10].eq_ignore_ascii_case(b"sec-fetch-")
            || is_listed(&rules.constant_headers, name)
            || WITHOUT_MEANING
                .iter()
                .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
    })
}
