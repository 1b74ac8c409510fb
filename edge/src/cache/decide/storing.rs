//! Storing: the head that a response is stored with, and its update by a later response.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::fence::{self, Content};
use super::variant;
use crate::cache::rules::Rules;
use crate::handler::Response;
use crate::http::freshen::freshen;
use crate::http::freshness::{self, Exchanged, SetCookie, Verdict};
use crate::http::key::KeyHash;
use crate::http::tags::tags;
use crate::http::vary::Vary;
use crate::http::{FieldBlock, Fields, Status, date};
use crate::reason::Reason;
use crate::store::{Head, Selected, VaryNames};

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
    exchanged: Exchanged,
    rules: &Rules,
) -> Result<Storable, Reason> {
    if response.until_close {
        // A body that ends with the connection looks complete even if the origin failed half-way.
        return Err(Reason::UntilClose);
    }
    let (status, fields, length) = represented(response, content);
    let fields = &*fields;
    let verdict = freshness::judge(sent, status, fields, &rules.terms(status), exchanged)?;
    let generation = fence::generation(primary, fields, length);
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

/// Updates a stored head by the 304 that confirms it (RFC 9111 3.2, 4.3.4). An error is the reason
/// why the response may not be stored any more.
pub(in crate::cache) fn freshened(
    primary: KeyHash,
    sent: &Fields,
    old: &Head,
    response: &Response,
    exchanged: Exchanged,
    rules: &Rules,
) -> Result<Storable, Reason> {
    let mut update = Cow::Borrowed(&response.fields);
    if rules.headers.set_cookie != SetCookie::Store && update.contains("set-cookie") {
        // A cookie in a 304 is for the client of this request, and says nothing about the stored
        // response.
        update.to_mut().remove("set-cookie");
    }
    let fields = freshen(&old.fields, &update);
    let terms = rules.terms(old.status);
    let verdict = freshness::judge(sent, old.status, &fields, &terms, exchanged)?;
    let mut stripped = verdict.stripped.clone();
    if update.len() < response.fields.len() {
        stripped.push("set-cookie".to_owned());
    }
    let withheld = lines_in(&response.fields, &stripped);
    let explicit = verdict.source.is_explicit();
    // The validators and the length stay those of the stored version, whatever the new Date is.
    let base = old.clone();
    let head = head(base, primary, sent, &fields, verdict, exchanged, rules);
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
    exchanged: Exchanged,
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
    fence::generation(primary, &fields, length)
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
            response.content_length(),
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
