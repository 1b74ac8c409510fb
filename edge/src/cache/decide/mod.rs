//! Decisions, as pure functions: which requests use the cache, what a flight asks, what a response
//! may be stored as, and for whom.

pub(super) mod fence;
pub(super) mod want;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::{Options, Rules};
use crate::fill::{self, OPEN};
use crate::handler::{Head as RequestHead, Response};
use crate::http::cache_control::{RequestDirectives, ResponseDirectives, Scope};
use crate::http::freshness::{self, Candidate, Exchanged};
use crate::http::key::KeyHash;
use crate::http::vary::{self, Codings, Vary};
use crate::http::{CacheStatus, Fields, Fwd, Method, Status, date, hop, tags};
use crate::store::{Head, Selected, VaryNames};
use fence::Content;

/// Whether a request may be answered through the cache; else why not.
#[inline]
pub(super) fn admit(head: &RequestHead, no_body: bool) -> Result<(), CacheStatus> {
    let because = |word| Err(CacheStatus::fwd(Fwd::Bypass).because(word));
    if !matches!(head.method, Method::Get | Method::Head) {
        return Err(CacheStatus::fwd(Fwd::Method));
    }
    if head.upgrade {
        return because("upgrade");
    }
    if !no_body {
        return because("request-body");
    }
    // What an authorized request gets may be for it alone (RFC 9111 3.5).
    if head.fields.contains("authorization") {
        return because("authorization");
    }
    Ok(())
}

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
    codings: Option<Codings>,
) -> u128 {
    if names.is_empty() {
        return 0;
    }
    let mut text = Vec::with_capacity(64);
    vary::select(names, fields, codings, &mut text);
    primary.variant(&text).0
}

/// Whether a request for this key may have the response that this head belongs to.
pub(super) fn selects(
    primary: KeyHash,
    head: &Head,
    fields: &Fields,
    codings: Option<Codings>,
) -> bool {
    head.vary.as_ref().is_none_or(|selected| {
        variant(primary, &selected.names, fields, codings) == selected.variant
    })
}

/// The field lines of a flight's request: those of the allow-list and those that Vary is known to
/// name, from the request that launches it; everything else of that request stays out.
pub(super) fn flight_fields(
    request: &Fields,
    names: &[Box<str>],
    codings: Option<Codings>,
    out: &mut Fields,
) {
    for (name, value) in request.iter() {
        let keyed = names
            .iter()
            .any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()));
        // What the client may be given is sent in its normal form, so that variants stay few.
        if (keyed || hop::is_in(hop::SHARED, name))
            && !name.eq_ignore_ascii_case(b"accept-encoding")
            && !name.eq_ignore_ascii_case(b"range")
        {
            out.append_bytes(name, value);
        }
    }
    let codings = codings.unwrap_or_else(|| Codings::of(request));
    out.append("accept-encoding", codings.value());
}

/// Whether a request would be sent alone just as a flight is sent for all: then its client may have
/// the flight's response even when that can't be shared. A field that is neither on the allow-list
/// nor without meaning to an origin says no.
pub(super) fn may_take(request: &Fields) -> bool {
    const WITHOUT_MEANING: [&str; 16] = [
        "host",
        "connection",
        "keep-alive",
        "range",
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
        "cache-control",
        "pragma",
        "te",
        "dnt",
        "priority",
        "upgrade-insecure-requests",
        "sec-gpc",
    ];
    request.iter().all(|(name, _)| {
        hop::is_in(hop::SHARED, name)
            || name.len() > 10 && name[..10].eq_ignore_ascii_case(b"sec-fetch-")
            || WITHOUT_MEANING
                .iter()
                .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
    })
}

/// What a response to a flight is stored as; else the named reason why it is not. A part is stored
/// as the 200 that it is a part of (RFC 9111 3.3).
pub(super) fn store_as(
    primary: KeyHash,
    sent: &Fields,
    response: &Response,
    (asked, content): (Option<&Range<u64>>, &Content),
    exchanged: Exchanged,
    options: &Options,
) -> Result<Head, &'static str> {
    if response.until_close {
        // If the origin had died half-way, it would look just the same.
        return Err("until-close");
    }
    let (status, fields, length) = represented(response, content);
    let fields = &*fields;
    let directives = ResponseDirectives::of(fields);
    let valid_s = valid_s(&options.valid, status);
    let lifetime = freshness::lifetime(fields, &directives, valid_s, exchanged);
    let vary = freshness::storable(&Candidate {
        method: &Method::Get,
        request: sent,
        request_directives: &RequestDirectives::default(),
        status,
        response: fields,
        directives: &directives,
        lifetime,
    })
    .map_err(freshness::Reason::word)?;
    // Stored responses are not revalidated yet: one that must be before each use is of no use.
    if directives.no_cache != Scope::Absent {
        return Err("no-cache");
    }
    let initial_age_ms = freshness::initial_age_ms(fields, exchanged);
    let lifetime_s = lifetime.map_or(0, |lifetime| lifetime.seconds);
    let fresh_ms = freshness::remaining_ms(lifetime_s, initial_age_ms);
    let fresh_ms = u64::try_from(fresh_ms).map_err(|_| "expired")?;
    if fresh_ms == 0 {
        return Err("expired");
    }
    let date_s = freshness::date_of(fields).unwrap_or(exchanged.response_ms / 1000);
    let generation = fence::generation(primary, fields, length);
    Ok(Head {
        // Who knows the flight says when it began.
        born_seq: 0,
        tags: tags::tags(fields, &Rules::default().tags),
        status,
        fields: stored_fields(fields, date_s),
        length,
        etag: fields.get("etag").map(Bytes::copy_from_slice),
        last_modified_s: fields.get("last-modified").and_then(date::parse),
        date_s,
        received_ms: exchanged.response_ms,
        initial_age_ms,
        fresh_until_ms: exchanged.response_ms.saturating_add(fresh_ms),
        generation,
        joinable: generation != 0 && status == 200 && honours_ranges(response, asked, content),
        vary: selecting(&vary).map(|names| Selected {
            variant: variant(primary, &names, sent, None),
            names,
        }),
    })
}

/// The version that a response is of; 0 where nothing tells.
pub(super) fn generation(primary: KeyHash, response: &Response, content: &Content) -> u64 {
    let (_, fields, length) = represented(response, content);
    fence::generation(primary, &fields, length)
}

/// The names that tell variants apart. Ranges and conditions are for this cache to answer, and are
/// no part of what it asks.
fn selecting(vary: &Vary) -> Option<VaryNames> {
    let own = |name: &str| name == "range" || name.starts_with("if-");
    let names: VaryNames = vary
        .names()
        .filter(|name| !own(name))
        .map(Box::from)
        .collect();
    (!names.is_empty()).then_some(names)
}

/// Status, fields and complete length of the representation that a response is, or is a part of.
fn represented<'a>(
    response: &'a Response,
    content: &Content,
) -> (Status, Cow<'a, Fields>, Option<u64>) {
    match content {
        Content::Part(_, length) => {
            let mut fields = response.fields.clone();
            fields.remove("content-range");
            (200, Cow::Owned(fields), Some(*length))
        }
        _ => (
            response.status,
            Cow::Borrowed(&response.fields),
            response.content_length(),
        ),
    }
}

/// Whether the origin has shown that it answers ranges of this, or says so where it was not asked.
fn honours_ranges(response: &Response, asked: Option<&Range<u64>>, content: &Content) -> bool {
    let mut units = response.fields.members("accept-ranges");
    matches!(content, Content::Part(..))
        || asked.is_none() && units.any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}

fn valid_s(valid: &[(Status, std::time::Duration)], status: Status) -> Option<u64> {
    let (_, lifetime) = valid.iter().find(|(of, _)| *of == status)?;
    Some(lifetime.as_secs())
}

/// The lines to keep: Age is told anew each time, and a Date is there (RFC 9110 6.6.1).
fn stored_fields(fields: &Fields, date_s: u64) -> Bytes {
    let mut kept = fields.clone();
    kept.remove("age");
    // Trailers are not kept, so none are announced.
    kept.remove("trailer");
    if freshness::date_of(&kept).is_none() {
        kept.set("date", date::format(date_s));
    }
    Bytes::copy_from_slice(kept.text())
}
