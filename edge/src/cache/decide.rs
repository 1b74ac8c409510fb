//! Decisions, as pure functions: which requests use the cache, what a flight asks, what a response
//! may be stored as, and for whom.

use bytes::Bytes;

use super::Options;
use crate::handler::{Head as RequestHead, Response};
use crate::http::cache_control::{RequestDirectives, ResponseDirectives, Scope};
use crate::http::freshness::{self, Candidate, Exchanged};
use crate::http::key::KeyHash;
use crate::http::vary::{self, Codings};
use crate::http::{CacheStatus, Fields, Fwd, Method, Status, date, hop};
use crate::store::{Head, Selected, VaryNames};

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

/// The variant that a request selects under these Vary names (RFC 9111 4.1); 0 without names.
pub(super) fn variant(primary: KeyHash, names: &VaryNames, fields: &Fields) -> u128 {
    if names.is_empty() {
        return 0;
    }
    let mut text = Vec::with_capacity(64);
    vary::select(names, fields, &mut text);
    primary.variant(&text).0
}

/// Whether a request for this key may have the response that this head belongs to.
pub(super) fn selects(primary: KeyHash, head: &Head, fields: &Fields) -> bool {
    head.vary
        .as_ref()
        .is_none_or(|selected| variant(primary, &selected.names, fields) == selected.variant)
}

/// The field lines of a flight's request: those of the allow-list and those that Vary is known to
/// name, from the request that launches it; everything else of that request stays out.
pub(super) fn flight_fields(request: &Fields, names: &[Box<str>], out: &mut Fields) {
    for (name, value) in request.iter() {
        let keyed = names
            .iter()
            .any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()));
        // What the client may be given is sent in its normal form, so that variants stay few.
        if (keyed || hop::is_in(hop::SHARED, name))
            && !name.eq_ignore_ascii_case(b"accept-encoding")
        {
            out.append_bytes(name, value);
        }
    }
    out.append("accept-encoding", Codings::of(request).value());
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

/// What a response to a flight is stored as; else the named reason why it is not.
pub(super) fn store_as(
    primary: KeyHash,
    sent: &Fields,
    response: &Response,
    exchanged: Exchanged,
    options: &Options,
) -> Result<Head, &'static str> {
    if response.until_close {
        // If the origin had died half-way, it would look just the same.
        return Err("until-close");
    }
    let fields = &response.fields;
    let directives = ResponseDirectives::of(fields);
    let valid_s = valid_s(&options.valid, response.status);
    let lifetime = freshness::lifetime(fields, &directives, valid_s, exchanged);
    let vary = freshness::storable(&Candidate {
        method: &Method::Get,
        request: sent,
        request_directives: &RequestDirectives::default(),
        status: response.status,
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
    Ok(Head {
        status: response.status,
        fields: stored_fields(fields, date_s),
        length: response.content_length(),
        etag: fields.get("etag").map(Bytes::copy_from_slice),
        last_modified_s: fields.get("last-modified").and_then(date::parse),
        date_s,
        received_ms: exchanged.response_ms,
        initial_age_ms,
        fresh_until_ms: exchanged.response_ms.saturating_add(fresh_ms),
        vary: (!vary.is_empty()).then(|| {
            let names = vary.into_names();
            Selected {
                variant: variant(primary, &names, sent),
                names,
            }
        }),
        joinable: false,
        generation: 0,
    })
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
