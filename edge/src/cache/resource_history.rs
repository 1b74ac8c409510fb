//! The history of a resource, beyond one object: whether its versions keep changing under their
//! readers, and whether its fetches keep failing.

use std::time::Duration;

use crate::fill::Unsettled;
use crate::store::ResourceHistory;

/// Time for which ranges of a resource are not requested after they proved unusable, in
/// milliseconds.
pub(in crate::cache) const NO_RANGES_MS: u64 = 300_000;
/// Time for which version changes are remembered, in milliseconds.
const REMEMBERED_MS: u64 = 10_000;
/// Pause after a failed fetch, in milliseconds. After each further failure the pause is four times
/// as long, up to `RETRY_MAX_MS`.
const RETRY_MS: u64 = 25;
pub(in crate::cache) const RETRY_MAX_MS: u64 = 1000;
/// Number of version changes within `REMEMBERED_MS` that make a resource unsettled.
const CHANGES: u8 = 2;

/// Notes that a fetch found another version while the stored one was fresh. Recent versions are
/// remembered: if two servers disagree, versions come back.
pub(in crate::cache) fn changed(history: &mut ResourceHistory, [from, to]: [u64; 2], now_ms: u64) {
    if now_ms.saturating_sub(history.since_ms) > REMEMBERED_MS {
        *history = ResourceHistory {
            no_ranges_until_ms: history.no_ranges_until_ms,
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

/// Whether requests to the origin should have no Range.
pub(in crate::cache) fn avoids_ranges(history: &ResourceHistory, now_ms: u64) -> bool {
    now_ms < history.no_ranges_until_ms
}

/// Returns whether the resource's version keeps changing.
pub(in crate::cache) fn unsettled(history: &ResourceHistory, now_ms: u64) -> Unsettled {
    if history.changes < CHANGES || now_ms.saturating_sub(history.since_ms) > REMEMBERED_MS {
        return Unsettled::No;
    }
    match history.flapping {
        true => Unsettled::Flapping,
        false => Unsettled::Changing,
    }
}

/// Returns the rest of the pause after failed fetches. A pause that seems too long is ignored,
/// since then the clock was set back.
pub(in crate::cache) fn retry_in(history: &ResourceHistory, now_ms: u64) -> Option<Duration> {
    let wait_ms = history.retry_ms.saturating_sub(now_ms);
    let waits = history.failures > 0 && (1..=RETRY_MAX_MS).contains(&wait_ms);
    waits.then(|| Duration::from_millis(wait_ms))
}

/// Begins a pause in which stale responses are served without being revalidated in the background.
pub(in crate::cache) fn rest(history: &mut ResourceHistory, now_ms: u64) {
    history.retry_ms = now_ms + RETRY_MAX_MS;
}

/// Whether the pause of revalidations in the background lasts. A pause that seems too long is
/// ignored, since then the clock was set back.
pub(in crate::cache) fn is_resting(history: &ResourceHistory, now_ms: u64) -> bool {
    (1..=RETRY_MAX_MS).contains(&history.retry_ms.saturating_sub(now_ms))
}

/// Returns the pause after this number of failed tries.
pub(in crate::cache) fn backoff(tries: u32) -> Duration {
    let steps = tries.clamp(1, 5) - 1;
    Duration::from_millis((RETRY_MS << (2 * steps)).min(RETRY_MAX_MS))
}

/// Notes a failed fetch, which begins a pause for all waiting requests. `fruitful` says that the
/// fetch made progress: then earlier failures don't count.
pub(in crate::cache) fn failed(history: &mut ResourceHistory, fruitful: bool, now_ms: u64) {
    if retry_in(history, now_ms).is_some() {
        return; // together with another: that is one failure
    }
    history.failures = match fruitful {
        true => 1,
        false => history.failures.saturating_add(1),
    };
    history.retry_ms = now_ms + backoff(u32::from(history.failures)).as_millis() as u64;
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
