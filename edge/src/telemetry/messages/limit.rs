//! How often a place in the code may repeat itself: ten times in ten seconds, then the number of the rest.

use std::collections::HashMap;

use tracing::Level;
use tracing::callsite::Identifier;

/// Messages of one place that are told in one window.
const TOLD_MAX: u64 = 10;
/// A window, microseconds.
const WINDOW_US: u64 = 10_000_000;
/// Places that are looked after. The program has fewer, with all its libraries.
const PLACES_MAX: usize = 1024;

/// What was told lately, by place.
#[derive(Default)]
pub(super) struct Limit(HashMap<Identifier, Window>);

struct Window {
    began_us: u64,
    told: u64,
    held: Option<Held>,
}

/// What was not told.
pub(super) struct Held {
    pub(super) level: Level,
    pub(super) count: u64,
    /// The text of the last one.
    pub(super) last: String,
}

impl Limit {
    /// Whether a message of this place is told. If not, it is counted.
    pub(super) fn is_to_be_told(
        &mut self,
        place: &Identifier,
        level: Level,
        text: &str,
        now_us: u64,
    ) -> bool {
        if !self.0.contains_key(place) && self.0.len() >= PLACES_MAX {
            return true;
        }
        let window = self.0.entry(place.clone()).or_insert(Window {
            began_us: now_us,
            told: 0,
            held: None,
        });
        // What was held back has its line first: `ended` opens the next window.
        if window.held.is_none() && now_us.saturating_sub(window.began_us) >= WINDOW_US {
            (window.began_us, window.told) = (now_us, 0);
        }
        if window.told < TOLD_MAX {
            window.told += 1;
            return true;
        }
        match &mut window.held {
            Some(held) => {
                held.count += 1;
                text.clone_into(&mut held.last);
            }
            None => {
                window.held = Some(Held {
                    level,
                    count: 1,
                    last: text.to_owned(),
                });
            }
        }
        false
    }

    /// Whether a place may hold something back before its next message is told.
    pub(super) fn is_watching(&self) -> bool {
        self.0.values().any(|window| window.told >= TOLD_MAX)
    }

    /// What was held back in windows that have ended by now. `u64::MAX`: in all.
    pub(super) fn ended(&mut self, now_us: u64) -> Vec<Held> {
        let mut ended = Vec::new();
        for window in self.0.values_mut() {
            if now_us.saturating_sub(window.began_us) >= WINDOW_US {
                (window.began_us, window.told) = (now_us, 0);
                ended.extend(window.held.take());
            }
        }
        ended
    }
}
