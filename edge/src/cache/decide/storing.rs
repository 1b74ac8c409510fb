//! What a response is stored as, and what is left of it when a later one updates it.

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
    /// Field lines that are for the one who asked, and nobody else.
    pub(in crate::cache) withheld: Fields,
    /// Whether the response itself says how long it is fresh.
    pub(in crate::cache) explicit: bool,
}

/// What a response to a flight is stored as; else the named reason why it is not. A part is stored
/// as the 200 that it is a part of (RFC 9111 3.3). `sent`: the fields that the flight carried.
pub(in crate::cache) fn store_as(
    primary: KeyHash,
    sent: &Fields,
    response: &Response,
    (asked, content): (Option<&Range<u64>>, &Content),
    exchanged: Exchanged,
    rules: &Rules,
) -> Result<Storable, Reason> {
    if response.until_close {
        // If the origin had died half-way, it would look just the same.
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

/// What a stored head becomes by the 304 that confirms it (RFC 9111 3.2, 4.3.4); the named reason
/// why it may not be stored any more.
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
        // It is for the one who asked, and says nothing about what is stored.
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
    // What was put together under a date stays one version, whatever the new Date is.
    let base = old.clone();
    let head = head(base, primary, sent, &fields, verdict, exchanged, rules);
    Ok(Storable {
        head,
        withheld,
        explicit,
    })
}

/// Whether the head of a response to HEAD is that of what is stored: nothing that both say about the
/// content differs (RFC 9111 4.3.5).
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

/// The rest of a head: what caching rules make of its fields.
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

/// The version that a response is of; 0 where nothing tells.
pub(in crate::cache) fn generation(
    primary: KeyHash,
    response: &Response,
    content: &Content,
) -> u64 {
    let (_, fields, length) = represented(response, content);
    fence::generation(primary, &fields, length)
}

/// The names that tell variants apart. Ranges and conditions are for this cache to answer, and are
/// no part of what it admitted.
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

/// The lines with one of these lower-case names.
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

/// The lines to keep: Age is told anew each time, and a Date is there (RFC 9110 6.6.1).
fn stored_fields(fields: &Fields, stripped: &[String], date_s: u64) -> FieldBlock {
    let mut kept = fields.clone();
    // Trailers are not kept, so none are announced.
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
