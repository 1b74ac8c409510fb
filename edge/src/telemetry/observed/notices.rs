//! The recent errors and events, in bounded memory.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::notice::{Happened, Notice};
use super::url_mask::UrlMask;
use crate::sys::Clock;

/// Notices of failed requests, and of everything else, that are kept. Together at most 2 MiB.
pub const NOTICES_MAX: usize = 512;
/// Time within which the same again is a repeat, in milliseconds.
const REPEAT_MS: u64 = 60_000;
/// Notices of one kind and reason within that time. Further ones count as repeats of the last one,
/// whatever they are about, so that one cause can't displace all others.
const ALIKE_MAX: usize = 8;
/// Longest message, in bytes. A longer one is cut and ends in `...`.
pub(super) const MESSAGE_MAX: usize = 512;
/// Kind of the notices of failed requests.
pub(super) const REQUEST_FAILED: &str = "request-failed";

/// The recent errors and events. Cheap to clone.
#[derive(Clone)]
pub struct Notices(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// Number of the last change; 0 before the first one. Set while `state` is locked.
    last: watch::Sender<u64>,
    mask: Mutex<Arc<UrlMask>>,
}

#[derive(Default)]
struct State {
    /// Failed requests, and all others. Each in the order of `changed`.
    requests: VecDeque<Notice>,
    others: VecDeque<Notice>,
}

/// The notices of the whole program.
static NOTICES: OnceLock<Notices> = OnceLock::new();

/// Returns a URL as it may be shown, by the rules of the whole program.
pub fn shown_url(url: &str) -> String {
    let mask = installed().map(Notices::mask).unwrap_or_default();
    mask.shown(url.as_bytes(), false)
}

/// Returns the notices of the whole program, if `Notices::install` was called.
pub fn installed() -> Option<&'static Notices> {
    NOTICES.get()
}

impl Notices {
    /// Creates an empty list.
    pub fn new(clock: Clock) -> Notices {
        Notices(Arc::new(Inner {
            clock,
            state: Mutex::default(),
            last: watch::Sender::new(0),
            mask: Mutex::default(),
        }))
    }

    /// Makes this the list of the whole program. Only the first call has an effect.
    pub fn install(&self) {
        let _ = NOTICES.set(self.clone());
    }

    /// Replaces the rules by which secrets in URLs are masked.
    pub fn set_mask(&self, mask: UrlMask) {
        *self.0.mask.lock() = Arc::new(mask);
    }

    /// Returns the rules by which secrets in URLs are masked.
    pub fn mask(&self) -> Arc<UrlMask> {
        self.0.mask.lock().clone()
    }

    /// Adds an event. `kind` and `reason` are words such as `purge` and `purged`; `message` must be escaped.
    pub fn event(&self, kind: &'static str, reason: &'static str, message: String) {
        self.add(Happened {
            kind,
            reason,
            message,
            ..Happened::default()
        });
    }

    /// Adds what happened, as a notice of its own or as a repeat.
    pub(super) fn add(&self, mut happened: Happened) {
        if happened.message.len() > MESSAGE_MAX {
            let end = happened.message.floor_char_boundary(MESSAGE_MAX - 3);
            happened.message.truncate(end);
            happened.message.push_str("...");
        }
        let now_ms = self.0.clock.unix_ms();
        let state = &mut *self.0.state.lock();
        let number = self.last() + 1;
        let list = match happened.kind {
            REQUEST_FAILED => &mut state.requests,
            _ => &mut state.others,
        };
        let notice = match repeated(list, &happened, now_ms).and_then(|at| list.remove(at)) {
            Some(known) => Notice {
                id: known.id,
                since: known.since,
                count: known.count.saturating_add(1),
                ..notice(happened, number, now_ms)
            },
            None => notice(happened, number, now_ms),
        };
        if list.len() >= NOTICES_MAX {
            list.pop_front();
        }
        list.push_back(notice);
        self.0.last.send_replace(number);
    }

    /// Returns up to `most` notices that were added or repeated after the change with this number, in
    /// the order of their last change. If there are more, the latest ones are returned.
    pub fn after(&self, number: u64, most: usize) -> Vec<Notice> {
        let state = self.0.state.lock();
        let is_new = |notice: &&Notice| notice.changed > number;
        let lists = [&state.requests, &state.others];
        let mut all: Vec<&Notice> = lists
            .into_iter()
            .flat_map(|list| list.iter().rev().take_while(is_new).take(most))
            .collect();
        all.sort_unstable_by_key(|notice| notice.changed);
        let skipped = all.len().saturating_sub(most);
        all.into_iter().skip(skipped).cloned().collect()
    }

    /// Returns the number of the last change; 0 before the first one.
    pub fn last(&self) -> u64 {
        *self.0.last.borrow()
    }

    /// Returns a receiver that learns the number of each change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.last.subscribe()
    }
}

fn notice(happened: Happened, number: u64, now_ms: u64) -> Notice {
    Notice {
        id: number,
        changed: number,
        time: now_ms,
        since: now_ms,
        kind: happened.kind,
        reason: happened.reason,
        message: happened.message.into(),
        url: happened.url.map(String::into_boxed_str),
        client: happened.client,
        count: 1,
    }
}

/// Returns the position of the notice that is repeated, if there is one.
fn repeated(list: &VecDeque<Notice>, new: &Happened, now_ms: u64) -> Option<usize> {
    let is_failure = new.kind == REQUEST_FAILED;
    let (mut alike, mut last_alike) = (0, None);
    for (at, old) in list.iter().enumerate().rev() {
        if now_ms.abs_diff(old.time) >= REPEAT_MS {
            break;
        }
        if (old.kind, old.reason) != (new.kind, new.reason) {
            continue;
        }
        let same = match is_failure {
            true => path(old.url.as_deref()) == path(new.url.as_deref()),
            false => *old.message == *new.message,
        };
        if same {
            return Some(at);
        }
        last_alike = last_alike.or(Some(at));
        alike += 1;
    }
    last_alike.filter(|_| alike >= ALIKE_MAX)
}

/// Returns a URL without its query.
fn path(url: Option<&str>) -> &str {
    let url = url.unwrap_or_default();
    url.split_once('?').map_or(url, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: &'static str, url: &str) -> Happened {
        Happened {
            kind: REQUEST_FAILED,
            reason,
            message: "a request failed".to_owned(),
            url: Some(url.to_owned()),
            client: None,
        }
    }

    #[test]
    fn repeats_within_a_minute_are_counted() {
        let clock = Clock::manual(100);
        let notices = Notices::new(clock.clone());
        notices.add(failure("a", "/x?1"));
        notices.event("server", "ejected", "a server is ejected".to_owned());
        clock.advance_us(1_000_000);
        notices.add(failure("a", "/x?2"));
        let all = notices.after(0, 10);
        let seen: Vec<_> = all
            .iter()
            .map(|n| (n.id, n.changed, n.reason, n.count))
            .collect();
        assert_eq!(seen, [(2, 2, "ejected", 1), (1, 3, "a", 2)]);
        assert_eq!((all[1].since, all[1].time), (100_000, 101_000));
        assert_eq!(all[1].url.as_deref(), Some("/x?2"));
        assert_eq!(notices.after(2, 10).len(), 1);
        assert!(notices.after(3, 10).is_empty());
        clock.advance_us(60_000_000);
        notices.add(failure("a", "/x?2"));
        assert_eq!(notices.after(3, 10)[0].id, 4);
        assert_eq!(notices.last(), 4);
    }

    #[test]
    fn one_cause_displaces_no_others() {
        let notices = Notices::new(Clock::manual(100));
        notices.add(failure("b", "/other"));
        for n in 0..10_000 {
            notices.add(failure("a", &format!("/{n}")));
        }
        let all = notices.after(0, 1000);
        assert_eq!(all.len(), 1 + ALIKE_MAX);
        assert_eq!(all.iter().map(|n| n.count).sum::<u64>(), 10_001);
        assert_eq!(all[0].reason, "b");
    }

    #[test]
    fn the_number_and_size_of_notices_are_bounded() {
        let clock = Clock::manual(100);
        let notices = Notices::new(clock.clone());
        notices.event("reload", "reloaded", "é".repeat(2000));
        for n in 0..2 * NOTICES_MAX {
            clock.advance_us(60_000_000);
            notices.add(failure("a", &n.to_string()));
        }
        let all = notices.after(0, usize::MAX);
        assert_eq!(all.len(), NOTICES_MAX + 1);
        assert!(all[0].message.len() <= MESSAGE_MAX && all[0].message.ends_with("..."));
        assert_eq!(notices.after(0, 3)[2].id, 2 * NOTICES_MAX as u64 + 1);
    }
}
