//! The file with all errors and events, one JSON object per line.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;

use super::json::json_text;
use super::notice::Notice;
use super::notices::{NOTICES_MAX, Notices};
use crate::telemetry::access_options::{AccessOptions, AccessTarget};
use crate::telemetry::access_writer::AccessWriter;

/// Shortest time between two lines about one notice that is repeated, in milliseconds.
const AGAIN_MS: u64 = 10_000;
/// Longest time for writing the last lines.
const END_WAIT: Duration = Duration::from_secs(2);

/// The writer of the file, and what it has written.
pub(super) struct EventsFile {
    writer: AccessWriter,
    /// Number of the last change that was looked at.
    seen: u64,
    /// The notices that were repeated since their last line, with the time of that line.
    repeated: HashMap<u64, u64>,
    /// The notices that were written last, with the times of their last lines, the latest one last.
    written: VecDeque<(u64, u64)>,
}

impl EventsFile {
    /// Opens the file and starts the thread that writes it.
    ///
    /// # Errors
    ///
    /// The file can't be opened, or the thread can't be started.
    pub(super) fn open(path: &Path) -> io::Result<EventsFile> {
        let options = AccessOptions {
            target: AccessTarget::File(path.to_owned()),
            ..AccessOptions::default()
        };
        Ok(EventsFile {
            writer: AccessWriter::start_for("events", "the file of events", &options)?,
            seen: 0,
            repeated: HashMap::new(),
            written: VecDeque::new(),
        })
    }

    /// Reopens the file by its name, after log rotation has moved it away.
    pub(super) fn reopen(&self) {
        self.writer.reopen();
    }

    /// Writes the notices that are new, and those that were repeated if their last line is old enough.
    /// `at_end`: all that were repeated.
    pub(super) fn write(&mut self, notices: &Notices, now_ms: u64, at_end: bool) {
        let changed = notices.after(self.seen, usize::MAX);
        for notice in &changed {
            self.seen = self.seen.max(notice.changed);
            let last = self.written.iter().rev().find(|(id, _)| *id == notice.id);
            // A notice whose last line is forgotten is written again at once.
            let last_ms = last.map_or(0, |(_, ms)| *ms);
            self.repeated.insert(notice.id, last_ms);
        }
        let is_due = |last_ms: u64| at_end || now_ms.abs_diff(last_ms) >= AGAIN_MS;
        if !self.repeated.values().any(|last_ms| is_due(*last_ms)) {
            return;
        }
        let due: Vec<Notice> = (notices.after(0, usize::MAX).into_iter())
            .filter(|notice| self.repeated.get(&notice.id).is_some_and(|ms| is_due(*ms)))
            .collect();
        let text: String = due.iter().map(|notice| json_text(notice) + "\n").collect();
        // If the queue is full, the lines are tried again in the next round.
        if !self.writer.pass_on(text.into_bytes(), due.len() as u64) {
            // Notices that are not kept any more can't be written.
            self.repeated
                .retain(|id, _| due.iter().any(|notice| notice.id == *id));
            return;
        }
        self.repeated.retain(|_, last_ms| !is_due(*last_ms));
        self.written
            .extend(due.iter().map(|notice| (notice.id, now_ms)));
        let excess = self.written.len().saturating_sub(4 * NOTICES_MAX);
        self.written.drain(..excess);
    }

    /// Writes what is left, and waits until it is in the file.
    pub(super) fn finish(mut self, notices: &Notices, now_ms: u64) {
        self.write(notices, now_ms, true);
        if !self.writer.finish(END_WAIT) {
            tracing::warn!("the last events could not be written in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Clock, disk};

    #[test]
    fn a_repeated_notice_is_written_again_only_after_a_while_and_at_the_end() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("events.jsonl");
        let clock = Clock::manual(1000);
        let notices = Notices::new(clock.clone());
        let mut file = EventsFile::open(&path)?;
        let event = || notices.event("server", "ejected", "a server is ejected".to_owned());
        event();
        file.write(&notices, clock.unix_ms(), false);
        for _ in 0..100 {
            event();
            file.write(&notices, clock.unix_ms(), false);
        }
        clock.advance_us(10_000_000);
        file.write(&notices, clock.unix_ms(), false);
        file.write(&notices, clock.unix_ms(), false);
        event();
        file.write(&notices, clock.unix_ms(), false);
        file.finish(&notices, clock.unix_ms());
        let text = disk::read_text(&path, 1 << 20)?;
        let counts: Vec<_> = text
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON")["count"].clone()
            })
            .collect();
        assert_eq!(counts, [1, 101, 102]);
        Ok(())
    }
}
