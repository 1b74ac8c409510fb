//! Reports the uses of stored responses to the simulation of other cache sizes.

use std::ops::Range;

use crate::cache::context::Context;
use crate::cache::decide::want::{self, WantedOf};
use crate::cache::lookup::{Found, Freshness};
use crate::handler::Head as RequestHead;
use crate::http::wanted::Wanted;
use crate::store::{self, Head, Object, TableKey};
use crate::what_if::{Outcome, UnitState, UnitUse};

/// Largest number of blocks that one request reports. The others of a request for more are not simulated.
const BLOCKS_MAX: u64 = 1024;

/// The object that a request uses.
#[derive(Clone, Copy)]
pub(in crate::cache) struct Used<'a> {
    object: &'a Object,
    head: &'a Head,
    table_key: TableKey,
}

/// Reports a request whose wanted bytes are all in memory. `first` is the first wanted range, if the response has content.
#[inline]
pub(in crate::cache) fn hit(
    context: &Context,
    found: &Found,
    first: Option<Range<u64>>,
    now_ms: u64,
) {
    if context.sampler.is_some() {
        let outcome = with_all_bytes(found.freshness);
        note(context, Used::of(found), first, now_ms, |_| outcome);
    }
}

/// Reports a request for a stored response of which some wanted bytes may be missing in memory.
pub(in crate::cache) fn partial(context: &Context, request: &RequestHead, found: &Found) {
    if context.sampler.is_none() {
        return;
    }
    let Found { object, head, .. } = found;
    let wanted = want::judge(request, head, object.content_length(head));
    let stored = with_all_bytes(found.freshness);
    let missing = object.missing();
    let now_ms = context.worker.clock.unix_ms();
    let outcome = |bytes: Range<u64>| match missing.intersects(&bytes) {
        true => Outcome::Missed,
        false => stored,
    };
    note(context, Used::of(found), wanted.first(), now_ms, outcome);
}

/// Reports a request whose response was not stored. `collapsed`: another request's fetch brings it.
pub(in crate::cache) fn fetched(
    context: &Context,
    used: Used<'_>,
    wanted: &Wanted,
    collapsed: bool,
) {
    if context.sampler.is_some() {
        let outcome = match collapsed {
            true => Outcome::Hit,
            false => Outcome::Missed,
        };
        let now_ms = context.worker.clock.unix_ms();
        note(context, used, wanted.first(), now_ms, |_| outcome);
    }
}

/// Returns the outcome for a stored response without missing bytes.
fn with_all_bytes(freshness: Freshness) -> Outcome {
    match freshness {
        Freshness::Confirmed { collapsed, .. } | Freshness::OnError { collapsed, .. }
            if !collapsed =>
        {
            Outcome::Validated
        }
        _ => Outcome::Hit,
    }
}

impl<'a> Used<'a> {
    pub(in crate::cache) fn new(
        object: &'a Object,
        head: &'a Head,
        table_key: TableKey,
    ) -> Used<'a> {
        Used {
            object,
            head,
            table_key,
        }
    }

    fn of(found: &'a Found) -> Used<'a> {
        Used::new(&found.object, &found.head, found.table_key)
    }
}

/// Reports each unit of the wanted range: the object, or its blocks if they are evicted separately.
#[inline]
fn note(
    context: &Context,
    used: Used<'_>,
    wanted: Option<Range<u64>>,
    now_ms: u64,
    outcome: impl Fn(Range<u64>) -> Outcome,
) {
    let length = used.object.content_length(used.head).unwrap_or(0);
    let block = context.options.fill.block;
    if length > block && used.head.joinable {
        return note_blocks(context, used, wanted, (length, now_ms), outcome);
    }
    let unit = UnitUse {
        block: 0,
        bytes: length,
        outcome: outcome(0..length),
        first: true,
    };
    if let Some(sampler) = &context.sampler {
        sampler.note(used.table_key.hash(), &unit, || UnitState {
            weight: used.object.weight_without_content(used.head) + store::content_weight(length),
            now_ms,
            fresh_until_ms: used.head.fresh_until_ms,
        });
    }
}

fn note_blocks(
    context: &Context,
    used: Used<'_>,
    wanted: Option<Range<u64>>,
    (length, now_ms): (u64, u64),
    outcome: impl Fn(Range<u64>) -> Outcome,
) {
    let Some(sampler) = &context.sampler else {
        return;
    };
    let block = context.options.fill.block;
    for number in blocks(wanted.clone(), length, block) {
        let start = number * block;
        let range = start..start.saturating_add(block).min(length);
        let bytes = range.end - range.start;
        let unit = UnitUse {
            block: number,
            bytes,
            outcome: outcome(range),
            first: wanted.as_ref().is_none_or(|wanted| wanted.start >= start),
        };
        sampler.note(used.table_key.hash(), &unit, || UnitState {
            weight: match number {
                0 => used.object.weight_without_content(used.head) + store::block_weight(bytes),
                _ => store::block_weight(bytes),
            },
            now_ms,
            fresh_until_ms: used.head.fresh_until_ms,
        });
    }
}

/// Returns the numbers of the blocks that contain the wanted bytes. A response without content uses the first block.
fn blocks(wanted: Option<Range<u64>>, length: u64, block: u64) -> Range<u64> {
    let wanted = wanted.unwrap_or(0..1);
    let first = wanted.start.min(length.saturating_sub(1)) / block;
    let end = wanted.end.min(length).div_ceil(block).max(first + 1);
    first..end.min(first + BLOCKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_uses_the_blocks_that_contain_it() {
        assert_eq!(blocks(Some(0..u64::MAX), 95, 10), 0..10);
        assert_eq!(blocks(Some(10..20), 95, 10), 1..2);
        assert_eq!(blocks(Some(9..21), 95, 10), 0..3);
        assert_eq!(blocks(Some(94..100), 95, 10), 9..10);
        assert_eq!(blocks(Some(200..300), 95, 10), 9..10);
        assert_eq!(blocks(None, 95, 10), 0..1);
        assert_eq!(blocks(Some(5..u64::MAX), u64::MAX, 2), 2..2 + BLOCKS_MAX);
    }
}
