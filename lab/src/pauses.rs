//! Random pauses in tests, which show whether a test depends on the speed of the machine.
//!
//! With the environment variable `SLUICE_TEST_PAUSES=MS/ONE_IN`, every call of [`point`] pauses the calling thread for
//! `MS` milliseconds with a probability of one in `ONE_IN`, at most twice for each thread. A test that fails with pauses
//! would also fail, though rarely, on a machine that stops for this long.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

/// Most pauses of one thread. Each test has a thread of its own, and so has each origin.
const MOST: u32 = 2;

/// Duration and frequency of the pauses, if they are switched on.
static PAUSES: LazyLock<Option<(Duration, u64)>> = LazyLock::new(|| {
    let text = std::env::var("SLUICE_TEST_PAUSES").ok()?;
    let parsed = parse(&text);
    assert!(
        parsed.is_some(),
        "SLUICE_TEST_PAUSES={text:?} is not MS/ONE_IN"
    );
    parsed
});

thread_local! {
    static PAUSED: Cell<u32> = const { Cell::new(0) };
}

fn parse(text: &str) -> Option<(Duration, u64)> {
    let (milliseconds, one_in) = text.split_once('/')?;
    let one_in = one_in.parse().ok().filter(|one_in| *one_in > 0)?;
    Some((Duration::from_millis(milliseconds.parse().ok()?), one_in))
}

/// Marks a point at which a test, or the test origin, may be paused for any time.
pub fn point() {
    let Some((duration, one_in)) = *PAUSES else {
        return;
    };
    let paused = PAUSED.get();
    // Each `RandomState` has keys of its own, so its hash of nothing is a random number.
    if paused < MOST && RandomState::new().hash_one(()).is_multiple_of(one_in) {
        PAUSED.set(paused + 1);
        thread::sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_a_duration_and_a_frequency() {
        assert_eq!(parse("4000/5"), Some((Duration::from_secs(4), 5)));
        for wrong in ["", "4000", "4000/0", "/5", "-1/5", "4000/5/5"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
