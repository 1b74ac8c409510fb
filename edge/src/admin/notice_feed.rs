//! The notices of a stream: the recent errors and events that are new or repeated.

use std::fmt::Write;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::telemetry::{Notices, json_text};

/// Most notices of one part of a stream. Together they take at most a few hundred KiB.
const NOTICES_PER_PART: usize = 64;
/// Shortest time between two parts, in which repeats of a notice only raise its count.
const PAUSE: Duration = Duration::from_millis(250);

/// The notices that a stream sends.
pub(super) struct NoticeFeed {
    notices: Notices,
    changes: watch::Receiver<u64>,
    /// Number of the last change that was sent.
    sent: u64,
    /// Has a tick for each part.
    pace: Interval,
}

impl NoticeFeed {
    /// Creates a feed of the notices that were added or repeated after the change with this number. A number that is yet to
    /// come is from an earlier process, and stands for the last one.
    pub(super) fn after(notices: &Notices, number: u64) -> NoticeFeed {
        let mut pace = interval(PAUSE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        NoticeFeed {
            notices: notices.clone(),
            changes: notices.changes(),
            sent: number.min(notices.last()),
            pace,
        }
    }

    /// Waits for changes and for room in `queue`, and returns the events about the next notices. `None` when the client has
    /// left. Cancelling this loses no notice.
    pub(super) async fn next(&mut self, queue: &mpsc::Sender<Bytes>) -> Option<Bytes> {
        let sent = self.sent;
        self.changes.wait_for(|last| *last > sent).await.ok()?;
        drop(queue.reserve().await.ok()?);
        self.pace.tick().await;
        Some(self.take())
    }

    /// Returns the events about the next notices, the one that changed first at the beginning.
    fn take(&mut self) -> Bytes {
        let mut part = String::new();
        let changed = self.notices.after(self.sent, usize::MAX);
        for notice in changed.iter().take(NOTICES_PER_PART) {
            self.sent = notice.changed;
            // Writing to a String can't fail.
            let _ = write!(part, "event: notice\ndata: {}\n\n", json_text(notice));
        }
        part.into()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::sys::Clock;

    fn noted(notices: &Notices, n: usize) {
        notices.event("server", "ejected", format!("server {n} is ejected"));
    }

    fn count(part: &Bytes) -> usize {
        String::from_utf8_lossy(part)
            .matches("event: notice\ndata: {\"id\":")
            .count()
    }

    #[tokio::test]
    async fn each_change_is_sent_once_in_bounded_parts_at_a_bounded_rate() {
        let clock = Clock::manual(1000);
        let notices = Notices::new(clock.clone());
        (0..7).for_each(|n| noted(&notices, n));
        let began = Instant::now();
        let mut feed = NoticeFeed::after(&notices, 5);
        let (queue, mut taken) = mpsc::channel(1);
        let part = feed.next(&queue).await.expect("a part");
        assert_eq!(count(&part), 2);
        // Repeats in the pause are one event.
        (0..5).for_each(|_| noted(&notices, 6));
        let part = feed.next(&queue).await.expect("a part");
        assert_eq!(count(&part), 1);
        assert!(String::from_utf8_lossy(&part).contains("\"count\":6"));
        assert!(began.elapsed() >= PAUSE);
        for n in 0..NOTICES_PER_PART + 3 {
            // Later than a minute, so that no two notices are alike.
            clock.advance_us(60_000_000);
            noted(&notices, n);
        }
        assert_eq!(
            count(&feed.next(&queue).await.expect("a part")),
            NOTICES_PER_PART
        );
        // Without room in the queue, notices wait.
        queue.try_send(Bytes::new()).expect("room");
        assert!(
            tokio::time::timeout(2 * PAUSE, feed.next(&queue))
                .await
                .is_err()
        );
        assert!(taken.recv().await.is_some());
        assert_eq!(count(&feed.next(&queue).await.expect("a part")), 3);
        noted(&notices, 0);
        drop(taken);
        assert!(feed.next(&queue).await.is_none());
    }

    #[tokio::test]
    async fn a_number_of_an_earlier_process_stands_for_the_last_change() {
        let notices = Notices::new(Clock::manual(1000));
        noted(&notices, 0);
        let mut feed = NoticeFeed::after(&notices, 1000);
        noted(&notices, 1);
        let (queue, _taken) = mpsc::channel(1);
        assert_eq!(count(&feed.next(&queue).await.expect("a part")), 1);
    }
}
