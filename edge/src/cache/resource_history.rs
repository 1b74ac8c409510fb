//! The history of a resource, beyond one object: whether its versions keep changing under their
//! readers, and whether its fetches keep failing.

use std::time::Duration;

use crate::fill::Unsettled;
use crate::reason::Reason;
use crate::store::{Refusal, ResourceHistory, Setback};

/// Time for which ranges of a resource are not requested after they proved unusable, in
/// milliseconds.
pub(in crate::cache) const NO_RANGES_MS: u64 = 300_000;
/// Time for which fetches of a resource carry nothing of a client after the origin refused one that
/// did, in milliseconds.
const NEUTRAL_MS: u64 = 10_000;
/// Time for which requests are forwarded after the origin refused a neutral fetch, in milliseconds.
const REFUSED_MS: u64 = 1000;
/// Time for which version changes are remembered, in milliseconds.
const REMEMBERED_MS: u64 = 10_000;
/// Pause after a failed fetch, in milliseconds. After each further failure the pause is four times
/// as long, up to `RETRY_MAX_MS`.
const RETRY_MS: u64 = 25;
pub(in crate::cache) const RETRY_MAX_MS: u64 = 1000;
/// Number of partial responses much shorter than requested after which no ranges are requested.
const SHORT_PARTS_MAX: u8 = 2;
/// Number of version changes within `REMEMBERED_MS` that make a resource unsettled.
const CHANGES_UNSETTLED: u8 = 2;

/// Notes that a fetch found another version while the stored one was fresh. Recent versions are
/// remembered: if two servers disagree, versions come back.
pub(in crate::cache) fn changed(history: &mut ResourceHistory, [from, to]: [u64; 2], now_ms: u64) {
    if now_ms.saturating_sub(history.since_ms) > REMEMBERED_MS {
        *history = ResourceHistory {
            no_ranges_until_ms: history.no_ranges_until_ms,
            short_parts: history.short_parts,
            neutral_until_ms: history.neutral_until_ms,
            distrusts_choices: history.distrusts_choices,
            refusal: history.refusal,
            needs_headers_until_ms: history.needs_headers_until_ms,
            length: history.length,
            ..ResourceHistory::default()
        };
    }
    history.since_ms = now_ms;
    history.changes = history.changes.saturating_add(1);
    history.flapping |= to != 0 && history.seen.contains(&to);
    for seen in [from, to] {
        if seen != 0 && !history.seen.contains(&seen) {
            history.seen.rotate_right(1);
            history.seen[0] = seen;
        }
    }
}

/// Notes a partial response that was much shorter than requested, or one that was not. After several
/// short ones in a row, the resource is requested without Range.
pub(in crate::cache) fn note_part(history: &mut ResourceHistory, is_short: bool, now_ms: u64) {
    history.short_parts = match is_short {
        true => history.short_parts.saturating_add(1),
        false => 0,
    };
    if history.short_parts >= SHORT_PARTS_MAX {
        history.short_parts = 0;
        history.no_ranges_until_ms = now_ms + NO_RANGES_MS;
    }
}

/// Whether requests to the origin should have no Range.
pub(in crate::cache) fn avoids_ranges(history: &ResourceHistory, now_ms: u64) -> bool {
    now_ms < history.no_ranges_until_ms
}

/// Begins a time in which fetches carry nothing of a client. From now on they leave out Accept and
/// Accept-Language unless Vary names them: otherwise a response without usable content, such as a
/// rarely requested 404, would never be confirmed.
pub(in crate::cache) fn distrust_clients(history: &mut ResourceHistory, now_ms: u64) {
    history.neutral_until_ms = now_ms + NEUTRAL_MS;
    history.distrusts_choices = true;
}

/// Whether fetches should carry nothing of a client. A time that seems too long is ignored, since
/// then the clock was set back.
pub(in crate::cache) fn distrusts_clients(history: &ResourceHistory, now_ms: u64) -> bool {
    (1..=NEUTRAL_MS).contains(&history.neutral_until_ms.saturating_sub(now_ms))
}

/// Returns whether the resource's version keeps changing.
pub(in crate::cache) fn unsettled(history: &ResourceHistory, now_ms: u64) -> Unsettled {
    if history.changes < CHANGES_UNSETTLED
        || now_ms.saturating_sub(history.since_ms) > REMEMBERED_MS
    {
        return Unsettled::No;
    }
    match history.flapping {
        true => Unsettled::Flapping,
        false => Unsettled::Changing,
    }
}

/// Returns the rest of the pause after failed fetches of a range. A pause that seems too long is
/// ignored, since then the clock was set back.
pub(in crate::cache) fn retry_in(setback: &Setback, now_ms: u64) -> Option<Duration> {
    pause(setback.failures, setback.retry_ms, now_ms)
}

fn pause(failures: u8, retry_ms: u64, now_ms: u64) -> Option<Duration> {
    let wait_ms = retry_ms.saturating_sub(now_ms);
    let waits = failures > 0 && (1..=RETRY_MAX_MS).contains(&wait_ms);
    waits.then(|| Duration::from_millis(wait_ms))
}

/// Begins a pause in which stale responses are served without being revalidated in the background.
pub(in crate::cache) fn rest(history: &mut ResourceHistory, now_ms: u64) {
    history.retry_ms = now_ms + RETRY_MAX_MS;
}

/// Notes that the origin refused a neutral fetch of this variant. For `REFUSED_MS`, requests are
/// forwarded once each. `incomplete` says that the fetch left out a header that the origin may need.
pub(in crate::cache) fn refused(
    history: &mut ResourceHistory,
    variant: u128,
    reason: Reason,
    incomplete: bool,
    now_ms: u64,
) {
    history.refusal = Some(Refusal {
        variant,
        until_ms: now_ms + REFUSED_MS,
        reason,
        incomplete,
    });
}

/// Returns the refusal because of which requests for this variant are forwarded. A time that seems
/// too long is ignored, since then the clock was set back.
pub(in crate::cache) fn refusal(
    history: &ResourceHistory,
    variant: u128,
    now_ms: u64,
) -> Option<Refusal> {
    let lasts = |refusal: &Refusal| {
        refusal.variant == variant
            && (1..=REFUSED_MS).contains(&refusal.until_ms.saturating_sub(now_ms))
    };
    history.refusal.filter(lasts)
}

/// Begins a time in which validations carry `forward_headers`, because the origin refused one
/// without them.
pub(in crate::cache) fn need_headers(history: &mut ResourceHistory, now_ms: u64) {
    history.needs_headers_until_ms = now_ms + NEUTRAL_MS;
}

/// Whether validations carry `forward_headers`.
pub(in crate::cache) fn needs_headers(history: &ResourceHistory, now_ms: u64) -> bool {
    (1..=NEUTRAL_MS).contains(&history.needs_headers_until_ms.saturating_sub(now_ms))
}

/// Whether no revalidation begins in the background, since a fetch has failed or was refused. A
/// pause that seems too long is ignored, since then the clock was set back.
pub(in crate::cache) fn is_resting(history: &ResourceHistory, variant: u128, now_ms: u64) -> bool {
    (1..=RETRY_MAX_MS).contains(&history.retry_ms.saturating_sub(now_ms))
        || refusal(history, variant, now_ms).is_some()
}

/// Returns the pause after this number of failed tries.
pub(in crate::cache) fn backoff(tries: u32) -> Duration {
    let steps = tries.clamp(1, 5) - 1;
    Duration::from_millis((RETRY_MS << (2 * steps)).min(RETRY_MAX_MS))
}

/// Notes a failed fetch of a resource of which no other fetch can add bytes.
pub(in crate::cache) fn failed(history: &mut ResourceHistory, fruitful: bool, now_ms: u64) {
    count_failure(
        &mut history.failures,
        &mut history.retry_ms,
        fruitful,
        now_ms,
    );
}

/// Notes a failed fetch of a range, which begins a pause for all requests that wait for its bytes.
pub(in crate::cache) fn set_back(setback: &mut Setback, fruitful: bool, now_ms: u64) {
    count_failure(
        &mut setback.failures,
        &mut setback.retry_ms,
        fruitful,
        now_ms,
    );
}

/// Counts a failed fetch. `fruitful` says that the fetch made progress: then earlier failures don't
/// count.
fn count_failure(failures: &mut u8, retry_ms: &mut u64, fruitful: bool, now_ms: u64) {
    if pause(*failures, *retry_ms, now_ms).is_some() {
        return; // together with another: that is one failure
    }
    *failures = match fruitful {
        true => 1,
        false => failures.saturating_add(1),
    };
    *retry_ms = now_ms + backoff(u32::from(*failures)).as_millis() as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_changes_within_ten_seconds_make_a_resource_unsettled() {
        let mut history = ResourceHistory::default();
        changed(&mut history, [1, 2], 1000);
        assert_eq!(unsettled(&history, 1000), Unsettled::No);
        changed(&mut history, [2, 3], 5000);
        assert_eq!(unsettled(&history, 5000), Unsettled::Changing);
        assert_eq!(unsettled(&history, 5000 + REMEMBERED_MS + 1), Unsettled::No);
        changed(&mut history, [3, 4], 50_000);
        assert_eq!(
            unsettled(&history, 50_000),
            Unsettled::No,
            "the count starts over"
        );
    }

    #[test]
    fn a_version_that_comes_back_is_flapping() {
        let mut history = ResourceHistory::default();
        changed(&mut history, [1, 2], 0);
        changed(&mut history, [2, 1], 10);
        assert_eq!(unsettled(&history, 10), Unsettled::Flapping);
        // Versions without a validator have the id 0, so they can't be recognized.
        let mut weak = ResourceHistory::default();
        changed(&mut weak, [0, 0], 0);
        changed(&mut weak, [0, 0], 10);
        assert_eq!(unsettled(&weak, 10), Unsettled::Changing);
    }

    #[test]
    fn two_short_parts_in_a_row_end_the_requests_with_range() {
        let mut history = ResourceHistory::default();
        for is_short in [true, false, true] {
            note_part(&mut history, is_short, 1000);
            assert!(!avoids_ranges(&history, 1000));
        }
        note_part(&mut history, true, 1000);
        assert!(avoids_ranges(&history, 1000 + NO_RANGES_MS - 1));
        assert!(!avoids_ranges(&history, 1000 + NO_RANGES_MS));
    }

    #[test]
    fn pauses_before_retries_grow() {
        let mut history = ResourceHistory::default();
        let mut wait = |fruitful| {
            let now_ms = history.retry_ms + 1;
            failed(&mut history, fruitful, now_ms);
            failed(&mut history, false, now_ms);
            history.retry_ms - now_ms
        };
        let waits: Vec<_> = (0..6).map(|_| wait(false)).collect();
        assert_eq!(waits, [25, 100, 400, 1000, 1000, 1000]);
        assert_eq!(wait(true), 25);
    }
}
