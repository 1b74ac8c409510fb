//! Storing: the content and the version of a response, the head that it is stored with, and its
//! update by a later response.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::variant;
use crate::cache::rules::Rules;
use crate::handler::Response;
use crate::http::conditional::{EntityTag, Validators};
use crate::http::freshen::freshen;
use crate::http::freshness::{self, ExchangeTimes, SetCookie, Verdict};
use crate::http::key::KeyHash;
use crate::http::range::ContentRange;
use crate::http::tags::tags;
use crate::http::vary::Vary;
use crate::http::{FieldBlock, Fields, Status, date};
use crate::reason::Reason;
use crate::store::{Head, Selected, VaryNames};

/// The content of a response, as its status and framing describe it.
#[derive(Debug, PartialEq)]
pub(in crate::cache) enum Content {
    /// A whole representation, with its length if the response declares it.
    Whole(Option<u64>),
    /// One range of a representation of known length (206).
    Part(Range<u64>, u64),
    /// A 416, with the complete length if the origin states it.
    NotSatisfiable(Option<u64>),
    /// A 206 that can't be used: Content-Range is missing or wrong, there are several parts, the
    /// complete length is unknown, or the number of bytes differs from that of the range.
    Unusable,
}

/// Describes the content of a response by its status and framing.
pub(in crate::cache) fn content_of(response: &Response) -> Content {
    let range = single(&response.fields, "content-range").and_then(ContentRange::parse);
    let declared = response.declared_length();
    match (response.status, range) {
        (206, Some(ContentRange::Part { range, length })) => match length {
            Some(length) if declared.is_none_or(|bytes| bytes == range.end - range.start) => {
                Content::Part(range, length)
            }
            _ => Content::Unusable,
        },
        (206, _) => Content::Unusable,
        (416, Some(ContentRange::Unsatisfied { length })) => Content::NotSatisfiable(Some(length)),
        (416, _) => Content::NotSatisfiable(None),
        _ => Content::Whole(declared),
    }
}

fn single<'a>(fields: &'a Fields, name: &'static str) -> Option<&'a [u8]> {
    let mut values = fields.get_all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// A response that may be stored.
pub(in crate::cache) struct Storable {
    pub(in crate::cache) head: Head,
    /// Header fields that are for the client of this request only, and are not stored.
    pub(in crate::cache) withheld: Fields,
    /// Whether the response states its own lifetime.
    pub(in crate::cache) explicit: bool,
}

/// Makes the head to store for the response to a shared fetch. An error is the reason why the
/// response can't be stored. A 206 is stored as the 200 that it is a part of (RFC 9111 3.3). `sent`
/// holds the header fields that the fetch sent.
pub(in crate::cache) fn store_as(
    primary: KeyHash,
    sent: &Fields,
    response: &Response,
    (asked, content): (Option<&Range<u64>>, &Content),
    exchanged: ExchangeTimes,
    rules: &Rules,
) -> Result<Storable, Reason> {
    if response.until_close {
        // A body that ends with the connection looks complete even if the origin failed half-way.
        return Err(Reason::UntilClose);
    }
    let (status, fields, length) = represented(response, content);
    let fields = &*fields;
    let verdict = judge(sent, status, fields, response, exchanged, rules)?;
    let generation = version(primary, fields, length);
    let withheld = lines_in(fields, &verdict.stripped);
    let explicit = verdict.source.is_explicit();
    let base = Head {
        status,
        length,
        etag: fields.get("etag").map(Bytes::copy_from_slice),
        generation,
        joinable: generation != 0 && status == 200 && honours_ranges(response, asked, content),
        ..Head::default()
    };
    let head = head(base, primary, sent, fields, verdict, exchanged, rules);
    Ok(Storable {
        head,
        withheld,
        explicit,
    })
}

/// Decides whether a head with this status and these fields may be stored, and as what. `response` is
/// the response that the origin sent, whose redirects count as well if some were followed.
fn judge(
    sent: &Fields,
    status: Status,
    fields: &Fields,
    response: &Response,
    exchanged: ExchangeTimes,
    rules: &Rules,
) -> Result<Verdict, Reason> {
    let terms = rules.terms(status);
    let mut verdict = freshness::judge(sent, status, fields, &terms, exchanged)?;
    let followed = response.upstream.as_ref().map(|one| one.followed.get());
    let Some(followed) = followed.filter(|followed| followed.count > 0) else {
        return Ok(verdict);
    };
    if followed.not_for_all {
        if sent.contains("authorization") {
            return Err(Reason::Authorization);
        }
        verdict.authorized = false;
    }
    match () {
        () if terms.ignore.cache_control => {}
        () if followed.no_store => return Err(Reason::NoStore),
        () if followed.private => return Err(Reason::Private),
        () => verdict.no_cache |= followed.no_cache,
    }
    Ok(verdict)
}

/// Limits an error to the variant that it was fetched for: many origins send errors without the Vary
/// of their other responses. `names` are the names in the Vary of the resource.
pub(in crate::cache) fn limit_to_variant(
    head: &mut Head,
    names: &VaryNames,
    primary: KeyHash,
    sent: &Fields,
    rules: &Rules,
) {
    let own = head.vary.iter().flat_map(|vary| vary.names.iter());
    let mut all: Vec<_> = names.iter().chain(own).cloned().collect();
    all.sort_unstable();
    all.dedup();
    let names = VaryNames::from(all);
    head.vary = Some(Selected {
        variant: variant(primary, &names, sent, rules.normal(None)),
        names,
    });
}

/// Updates a stored head by the 304 that confirms it (RFC 9111 3.2, 4.3.4). An error is the reason
/// why the response may not be stored any more.
pub(in crate::cache) fn freshened(
    primary: KeyHash,
    sent: &Fields,
    old: &Head,
    response: &Response,
    exchanged: ExchangeTimes,
    rules: &Rules,
) -> Result<Storable, Reason> {
    let mut update = Cow::Borrowed(&response.fields);
    if rules.headers.set_cookie != SetCookie::Store && update.contains("set-cookie") {
        // A cookie in a 304 is for the client of this request, and says nothing about the stored
        // response.
        update.to_mut().remove("set-cookie");
    }
    let fields = freshen(&old.fields, &update);
    let verdict = judge(sent, old.status, &fields, response, exchanged, rules)?;
    let mut stripped = verdict.stripped.clone();
    if update.len() < response.fields.len() {
        stripped.push("set-cookie".to_owned());
    }
    let withheld = lines_in(&response.fields, &stripped);
    let explicit = verdict.source.is_explicit();
    // The validators and the length stay those of the stored version, whatever the new Date is.
    let base = old.clone();
    let mut head = head(base, primary, sent, &fields, verdict, exchanged, rules);
    if let (400.., Some(vary)) = (old.status, &old.vary) {
        limit_to_variant(&mut head, &vary.names, primary, sent, rules);
    }
    Ok(Storable {
        head,
        withheld,
        explicit,
    })
}

/// Whether the response to a HEAD describes the stored content: entity tag, Last-Modified and
/// length are equal if both responses have them (RFC 9111 4.3.5).
pub(in crate::cache) fn same_as(head: &Head, response: &Response) -> bool {
    let fields = &response.fields;
    let modified_s = fields.get("last-modified").and_then(date::parse);
    agree(fields.get("etag"), head.etag.as_deref())
        && agree(modified_s, head.last_modified_s)
        && agree(response.length, head.length)
}

fn agree<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// Fills in the rest of a head from the header fields and the verdict on their freshness.
fn head(
    base: Head,
    primary: KeyHash,
    sent: &Fields,
    fields: &Fields,
    verdict: Verdict,
    exchanged: ExchangeTimes,
    rules: &Rules,
) -> Head {
    let date_s = freshness::date_of(fields).unwrap_or(exchanged.response_ms / 1000);
    let fresh_ms = match verdict.no_cache {
        true => verdict.fresh_ms.min(0),
        false => verdict.fresh_ms,
    };
    let ms = |seconds: u32| u64::from(seconds) * 1000;
    Head {
        fields: stored_fields(fields, &verdict.stripped, date_s),
        last_modified_s: fields.get("last-modified").and_then(date::parse),
        date_s,
        received_ms: exchanged.response_ms,
        initial_age_ms: verdict.initial_age_ms,
        fresh_until_ms: exchanged.response_ms.saturating_add_signed(fresh_ms),
        lifetime_source: verdict.source,
        stale_while_revalidate_ms: ms(verdict.swr_s),
        stale_if_error_ms: ms(verdict.sie_s),
        strict: verdict.strict || verdict.no_cache,
        authorized: verdict.authorized,
        immutable: verdict.immutable,
        odd_range: fields.contains("content-range"),
        tags: tags(fields, &rules.headers.tags),
        vary: selecting(&verdict.vary).map(|names| Selected {
            variant: variant(primary, &names, sent, rules.normal(None)),
            names,
        }),
        ..base
    }
}

/// The version that a response belongs to, 0 if unknown.
pub(in crate::cache) fn generation(
    primary: KeyHash,
    response: &Response,
    content: &Content,
) -> u64 {
    let (_, fields, length) = represented(response, content);
    version(primary, &fields, length)
}

/// Returns the id of a version: a hash of key, strong validator and complete length. The id is 0
/// without a strong validator or a length.
pub(super) fn version(primary: KeyHash, fields: &Fields, length: Option<u64>) -> u64 {
    let validators = Validators::of(fields);
    let (Some(length), true) = (length, validators.is_strong()) else {
        return 0;
    };
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(&length.to_le_bytes());
    // Some origins compress content without changing its entity tag.
    text.extend_from_slice(fields.get("content-encoding").unwrap_or_default());
    match (validators.etag, validators.strong_date_s()) {
        (Some(EntityTag { opaque, .. }), _) => {
            text.push(b'"');
            text.extend_from_slice(opaque);
        }
        (None, modified_s) => text.extend_from_slice(&modified_s.unwrap_or(0).to_le_bytes()),
    }
    primary.variant(&text).low().max(1)
}

/// The Vary names that distinguish variants. The cache itself answers ranges and conditions, so
/// their names are left out.
fn selecting(vary: &Vary) -> Option<VaryNames> {
    let own = |name: &str| name == "range" || name.starts_with("if-");
    let names: VaryNames = vary
        .names()
        .filter(|name| !own(name))
        .map(Box::from)
        .collect();
    (!names.is_empty()).then_some(names)
}

/// Status, header fields and complete length of the representation that a response is, or is a part
/// of.
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
            response.declared_length(),
        ),
    }
}

/// Whether the origin supports ranges of this resource: it has answered with one, or states
/// Accept-Ranges in response to a request without Range.
fn honours_ranges(response: &Response, asked: Option<&Range<u64>>, content: &Content) -> bool {
    let mut units = response.fields.members("accept-ranges");
    matches!(content, Content::Part(..))
        || asked.is_none() && units.any(|unit| unit.eq_ignore_ascii_case(b"bytes"))
}

/// The field lines with one of these lower-case names.
fn lines_in(fields: &Fields, names: &[String]) -> Fields {
    let mut lines = Fields::new();
    for (name, value) in fields.iter().filter(|(name, _)| is_in(names, name)) {
        lines.append_bytes(name, value);
    }
    lines
}

fn is_in(names: &[String], name: &[u8]) -> bool {
    names
        .iter()
        .any(|listed| name.eq_ignore_ascii_case(listed.as_bytes()))
}

/// The field lines to store. Age is left out, since it is computed for each response. A missing
/// Date is added (RFC 9110 6.6.1).
fn stored_fields(fields: &Fields, stripped: &[String], date_s: u64) -> FieldBlock {
    let mut kept = fields.clone();
    // Trailers are not stored, so the Trailer field is left out.
    kept.retain(|name, _| {
        !name.eq_ignore_ascii_case(b"age")
            && !name.eq_ignore_ascii_case(b"trailer")
            && !is_in(stripped, name)
    });
    if freshness::date_of(&kept).is_none() {
        kept.set("date", date::format(date_s));
    }
    FieldBlock::from(&kept)
}
