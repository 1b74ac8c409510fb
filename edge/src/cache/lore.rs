//! What is learned of a resource from its responses, beyond one object: whether its versions keep
//! changing under their readers, whether fetches of it keep failing.

use std::time::Duration;

use crate::fill::Unsettled;
use crate::store::Lore;

/// How long changes are remembered.
const REMEMBERED_MS: u64 = 10_000;
/// After a failed fetch nobody tries again for so long; four times as long after each further one,
/// up to the second.
const RETRY_MS: u64 = 25;
pub(super) const RETRY_MAX_MS: u64 = 1000;
/// Changes within that time by which a resource counts as unsettled.
const CHANGES: u8 = 2;

/// Another version was met while one was fresh. Which ones lately is remembered: between two
/// servers that disagree, versions come back.
pub(super) fn changed(lore: &mut Lore, [from, to]: [u64; 2], now_ms: u64) {
    if now_ms.saturating_sub(lore.since_ms) > REMEMBERED_MS {
        *lore = Lore {
            plain_until_ms: lore.plain_until_ms,
            length: lore.length,
            ..Lore::default()
        };
    }
    lore.since_ms = now_ms;
    lore.changes = lore.changes.saturating_add(1);
    lore.flapping |= to != 0 && lore.seen.contains(&to);
    for seen in [from, to] {
        if seen != 0 && !lore.seen.contains(&seen) {
            lore.seen.rotate_right(1);
            lore.seen[0] = seen;
        }
    }
}

/// How settled a resource is: versions that changed under its readers lately.
pub(super) fn unsettled(lore: &Lore, now_ms: u64) -> Unsettled {
    if lore.changes < CHANGES || now_ms.saturating_sub(lore.since_ms) > REMEMBERED_MS {
        return Unsettled::No;
    }
    match lore.flapping {
        true => Unsettled::Flapping,
        false => Unsettled::Changing,
    }
}

/// How long nobody is to try again, since fetches failed. A clock that was set back counts as no time.
pub(super) fn retry_in(lore: &Lore, now_ms: u64) -> Option<Duration> {
    let wait_ms = lore.retry_ms.saturating_sub(now_ms);
    let waits = lore.failures > 0 && (1..=RETRY_MAX_MS).contains(&wait_ms);
    waits.then(|| Duration::from_millis(wait_ms))
}

/// For a while what is stale is not asked about behind the answers that it gives.
pub(super) fn rest(lore: &mut Lore, now_ms: u64) {
    lore.retry_ms = now_ms + RETRY_MAX_MS;
}

/// Whether it is not to be asked about yet. A clock that was set back counts as no time.
pub(super) fn is_resting(lore: &Lore, now_ms: u64) -> bool {
    (1..=RETRY_MAX_MS).contains(&lore.retry_ms.saturating_sub(now_ms))
}

/// How long to wait before the try that follows so many in vain.
pub(super) fn backoff(tries: u32) -> Duration {
    let steps = tries.clamp(1, 5) - 1;
    Duration::from_millis((RETRY_MS << (2 * steps)).min(RETRY_MAX_MS))
}

/// A fetch failed. Others try again after a while that grows with each failure in a row: one for
/// all who wait. `fruitful`: it brought something worth while before.
pub(super) fn failed(lore: &mut Lore, fruitful: bool, now_ms: u64) {
    if retry_in(lore, now_ms).is_some() {
        return; // together with another: that is one failure
    }
    lore.failures = match fruitful {
        true => 1,
        false => lore.failures.saturating_add(1),
    };
    lore.retry_ms = now_ms + backoff(u32::from(lore.failures)).as_millis() as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_changes_within_ten_seconds_unsettle() {
        let mut lore = Lore::default();
        changed(&mut lore, [1, 2], 1000);
        assert_eq!(unsettled(&lore, 1000), Unsettled::No);
        changed(&mut lore, [2, 3], 5000);
        assert_eq!(unsettled(&lore, 5000), Unsettled::Changing);
        assert_eq!(unsettled(&lore, 5000 + REMEMBERED_MS + 1), Unsettled::No);
        changed(&mut lore, [3, 4], 50_000);
        assert_eq!(unsettled(&lore, 50_000), Unsettled::No, "it began anew");
    }

    #[test]
    fn a_version_that_comes_back_is_flapping() {
        let mut lore = Lore::default();
        changed(&mut lore, [1, 2], 0);
        changed(&mut lore, [2, 1], 10);
        assert_eq!(unsettled(&lore, 10), Unsettled::Flapping);
        // Without a validator no version can be told from another.
        let mut weak = Lore::default();
        changed(&mut weak, [0, 0], 0);
        changed(&mut weak, [0, 0], 10);
        assert_eq!(unsettled(&weak, 10), Unsettled::Changing);
    }

    #[test]
    fn retries_wait_longer_and_longer() {
        let mut lore = Lore::default();
        let mut wait = |fruitful| {
            let now_ms = lore.retry_ms + 1;
            failed(&mut lore, fruitful, now_ms);
            failed(&mut lore, false, now_ms);
            lore.retry_ms - now_ms
        };
        let waits: Vec<_> = (0..6).map(|_| wait(false)).collect();
        assert_eq!(waits, [25, 100, 400, 1000, 1000, 1000]);
        assert_eq!(wait(true), 25);
    }
}
