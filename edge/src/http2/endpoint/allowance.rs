//! Bounds work that brings a peer nothing: a count that such work uses up, and that time and useful work restore.
//!
//! The frames of the known floods are all permitted singly: PING, SETTINGS, PRIORITY, RST_STREAM, empty DATA, tiny
//! WINDOW_UPDATE. An ordinary client sends a few of them per request, so a client that sends many more than its requests
//! explain is disconnected with ENHANCE_YOUR_CALM (RFC 9113 10.5).

use crate::http2::violation::{ErrorCode, Violation};

/// Bounds of an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The allowance at first, and at most.
    pub most: u32,
    /// Amount that each second restores.
    pub per_second: u32,
}

/// The rest of an allowance.
#[derive(Clone, Copy, Debug)]
pub(in crate::http2) struct Allowance {
    left: u32,
    rate: Rate,
    /// Time up to which the restored amount is included.
    at_ms: u64,
}

impl Allowance {
    pub(in crate::http2) fn new(rate: Rate, now_ms: u64) -> Allowance {
        Allowance {
            left: rate.most,
            rate,
            at_ms: now_ms,
        }
    }

    /// Uses up a part of the allowance.
    ///
    /// # Errors
    ///
    /// Less than that is left.
    #[inline]
    pub(in crate::http2) fn spend(
        &mut self,
        amount: u32,
        now_ms: u64,
        text: &'static str,
    ) -> Result<(), Violation> {
        if self.left < amount {
            self.restore(now_ms);
        }
        match self.left.checked_sub(amount) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Violation::Connection(ErrorCode::ENHANCE_YOUR_CALM, text)),
        }
    }

    /// Uses up a part of the allowance, or all of it if that is less.
    pub(in crate::http2) fn charge(&mut self, amount: u32) {
        self.left = self.left.saturating_sub(amount);
    }

    /// Adds what time has restored since the last call.
    fn restore(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let restored = passed_ms.saturating_mul(u64::from(self.rate.per_second)) / 1000;
        if restored > 0 {
            self.at_ms = now_ms;
            self.earn(u32::try_from(restored).unwrap_or(u32::MAX));
        }
    }

    /// Restores a part because of useful work.
    #[inline]
    pub(in crate::http2) fn earn(&mut self, amount: u32) {
        self.left = self.left.saturating_add(amount).min(self.rate.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        most: 10,
        per_second: 4,
    };

    #[test]
    fn time_and_useful_work_restore_an_allowance() {
        let mut allowance = Allowance::new(RATE, 1000);
        assert_eq!(allowance.spend(10, 1000, "flood"), Ok(()));
        let spent = allowance.spend(1, 1249, "flood");
        assert_eq!(
            spent.map_err(|v| v.code()),
            Err(ErrorCode::ENHANCE_YOUR_CALM)
        );
        assert_eq!(allowance.spend(1, 1250, "flood"), Ok(()));
        allowance.earn(3);
        assert_eq!(allowance.spend(1, 1250, "flood"), Ok(()));
        allowance.charge(1);
        assert_eq!(allowance.spend(1, 1250, "flood"), Ok(()));
        allowance.charge(5);
        assert!(allowance.spend(1, 1250, "flood").is_err());
        assert!(allowance.spend(11, 1_000_000, "flood").is_err());
        assert_eq!(allowance.spend(10, 1_000_000, "flood"), Ok(()));
        // A clock that goes back restores nothing.
        assert!(allowance.spend(1, 0, "flood").is_err());
    }

    #[test]
    fn a_steady_flood_gets_the_rate_and_no_more() {
        let mut allowance = Allowance::new(RATE, 0);
        let accepted = (0..10_000).filter(|ms| allowance.spend(1, *ms, "flood").is_ok());
        let accepted = accepted.count();
        assert!((48..=50).contains(&accepted), "{accepted}");
    }
}
