//! Limits the messages of each place in the code to ten in ten seconds, and counts the others.

use std::collections::HashMap;

use tracing::Level;
use tracing::callsite::Identifier;

/// Most messages of one place that are logged in one window.
const LOGGED_MAX: u64 = 10;
/// Length of a window, in microseconds.
const WINDOW_US: u64 = 10_000_000;
/// Most places that are tracked. The program, including its libraries, has fewer.
const PLACES_MAX: usize = 1024;

/// The current window of each place in the code that logs messages.
#[derive(Default)]
pub(super) struct Limit(HashMap<Identifier, Window>);

struct Window {
    began_us: u64,
    logged: u64,
    suppressed: Option<Suppressed>,
}

/// The messages of one place and window that were not logged.
pub(super) struct Suppressed {
    pub(super) level: Level,
    pub(super) count: u64,
    /// Text of the last of these messages.
    pub(super) last: String,
}

impl Limit {
    /// Returns whether a message of this place may be logged. If not, the message is counted.
    pub(super) fn allows(
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
            logged: 0,
            suppressed: None,
        });
        // A window with suppressed messages is not restarted here: `ended` first reports them, and
        // then restarts it.
        if window.suppressed.is_none() && now_us.saturating_sub(window.began_us) >= WINDOW_US {
            (window.began_us, window.logged) = (now_us, 0);
        }
        if window.logged < LOGGED_MAX {
            window.logged += 1;
            return true;
        }
        match &mut window.suppressed {
            Some(suppressed) => {
                suppressed.count += 1;
                text.clone_into(&mut suppressed.last);
            }
            None => {
                window.suppressed = Some(Suppressed {
                    level,
                    count: 1,
                    last: text.to_owned(),
                });
            }
        }
        false
    }

    /// Whether some place in the code has used up its current window, so that its next message may
    /// have to be suppressed.
    pub(super) fn is_watching(&self) -> bool {
        self.0.values().any(|window| window.logged >= LOGGED_MAX)
    }

    /// Takes the messages that were suppressed in windows that have ended by `now_us`. `u64::MAX`
    /// means all windows.
    pub(super) fn ended(&mut self, now_us: u64) -> Vec<Suppressed> {
        let mut ended = Vec::new();
        for window in self.0.values_mut() {
            if now_us.saturating_sub(window.began_us) >= WINDOW_US {
                (window.began_us, window.logged) = (now_us, 0);
                ended.extend(window.suppressed.take());
            }
        }
        ended
    }
}
