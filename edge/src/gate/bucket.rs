//! Token buckets for rate limits. Each bucket is stored as one number (the generic cell rate
//! algorithm): the time at which the bucket is full again. Taking tokens moves that time into the
//! future, at most by the time that a full refill takes.

/// Nanoseconds per second.
pub const SECOND: u64 = 1_000_000_000;

/// Divisor of the time for which tokens can still be reserved: one caller of [`BucketRate::reserve`]
/// gets at most the tokens refilled in this part of that time.
const SHARES: u64 = 32;

/// Tokens of a bucket reserved for one caller, who may use them after `wait_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Number of reserved tokens: at least one if at least one was requested.
    pub tokens: u64,
    /// Nanoseconds until the tokens may be used.
    pub wait_ns: u64,
}

/// Refill rate and size of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRate {
    /// Number of tokens refilled in each period of `per_ns`.
    pub tokens: u64,
    /// Period in nanoseconds in which `tokens` tokens are refilled.
    pub per_ns: u64,
    /// Capacity of the bucket in tokens.
    pub size: u64,
}

impl BucketRate {
    /// Returns the nanoseconds in which this many tokens are refilled, rounded up so that the rate
    /// is never exceeded.
    #[inline]
    pub fn cost(&self, tokens: u64) -> u64 {
        let time = u128::from(tokens) * u128::from(self.per_ns);
        let time = time.div_ceil(u128::from(self.tokens.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Returns the number of tokens refilled in this many nanoseconds, rounded down.
    fn come(&self, time: u64) -> u64 {
        let tokens = u128::from(time) * u128::from(self.tokens) / u128::from(self.per_ns.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// Bounds `full_at` (the time at which the bucket is full) to that of an empty bucket with
    /// `ahead` nanoseconds of reservations. `full_at` can be later if a reload has made the bucket
    /// smaller or its refill faster.
    #[inline]
    fn full_at(&self, full_at: u64, now: u64, ahead: u64) -> u64 {
        let empty = now.saturating_add(self.cost(self.size));
        full_at.clamp(now, empty.saturating_add(ahead))
    }

    /// Takes tokens out of the bucket that is full at `full_at`, if it has enough. `ahead` is the
    /// longest time for which tokens of this bucket can be reserved: 0 if they never are.
    ///
    /// # Errors
    /// The bucket has too few tokens. The error is the number of nanoseconds until it has enough.
    #[inline]
    pub fn take(&self, full_at: &mut u64, now: u64, tokens: u64, ahead: u64) -> Result<(), u64> {
        *full_at = self.full_at(*full_at, now, ahead);
        let next = full_at.saturating_add(self.cost(tokens));
        let most = now.saturating_add(self.cost(self.size));
        match next <= most {
            true => {
                *full_at = next;
                Ok(())
            }
            false => Err(next - most),
        }
    }

    /// Reserves up to this many tokens, including tokens that are refilled later. No caller waits
    /// longer than `ahead` nanoseconds. The more callers wait, the fewer tokens each gets, so some
    /// are always left for the next caller.
    #[inline]
    pub fn reserve(
        &self,
        full_at: &mut u64,
        now: u64,
        tokens: u64,
        ahead: u64,
    ) -> Result<Reserved, u64> {
        *full_at = self.full_at(*full_at, now, ahead);
        let empty = now.saturating_add(self.cost(self.size));
        let last = empty.saturating_add(ahead);
        // Tokens that are in the bucket already are given to the first caller, even if they are
        // more than a caller's share of later tokens.
        let there = self.come(empty.saturating_sub(*full_at));
        let left = last - (*full_at).max(empty).min(last);
        // One reservation is at most the bucket's size: the caller sends reserved bytes at once,
        // and a larger number would be a burst above the limit.
        let part = self.come(left / SHARES).clamp(1, self.size.max(1));
        let tokens = tokens.min(there.max(part));
        let next = full_at.saturating_add(self.cost(tokens));
        if next > last {
            return Err((ahead / 2).max(1));
        }
        *full_at = next;
        Ok(Reserved {
            tokens,
            wait_ns: next.saturating_sub(empty),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    /// Returns the largest number of tokens that a bucket may give in an interval of `time`
    /// nanoseconds.
    fn allowed(filling: &BucketRate, time: u64) -> u64 {
        let come = u128::from(time) * u128::from(filling.tokens) / u128::from(filling.per_ns);
        // A token may have been partly refilled when the interval began, and is complete within it.
        filling.size + 1 + u64::try_from(come).expect("a small number")
    }

    fn never_too_much(filling: &BucketRate, given: &[(u64, u64)]) -> Result<(), TestCaseError> {
        for (first, (from, _)) in given.iter().enumerate() {
            let mut sum = 0;
            for (at, tokens) in &given[first..] {
                sum += tokens;
                prop_assert!(sum <= allowed(filling, at - from), "{sum} in {}", at - from);
            }
        }
        Ok(())
    }

    fn fillings() -> impl Strategy<Value = BucketRate> {
        (1..2_000_u64, 2_000..3 * SECOND, 1..100_u64).prop_map(|(tokens, per_ns, size)| {
            BucketRate {
                tokens,
                per_ns,
                size,
            }
        })
    }

    proptest! {
        #[test]
        fn no_interval_has_more_than_the_bucket_and_its_refill(
            filling in fillings(),
            steps in prop::collection::vec((0..SECOND / 2, 1..5_u64), 1..80),
        ) {
            let (mut full_at, mut now, mut given) = (0, 7 * SECOND, Vec::new());
            for (pause, tokens) in steps {
                now += pause;
                match filling.take(&mut full_at, now, tokens, 0) {
                    Ok(()) => given.push((now, tokens)),
                    Err(wait) if tokens <= filling.size => {
                        // The bucket has enough tokens exactly after the wait that the error
                        // reports, and not one nanosecond earlier.
                        let mut copy = full_at;
                        prop_assert!(wait > 0);
                        prop_assert!(filling.take(&mut copy, now + wait - 1, tokens, 0).is_err());
                        prop_assert!(filling.take(&mut copy, now + wait, tokens, 0).is_ok());
                    }
                    Err(_) => {}
                }
            }
            never_too_much(&filling, &given)?;
        }

        #[test]
        fn reserved_tokens_obey_the_rate(
            filling in fillings(),
            steps in prop::collection::vec((0..SECOND / 2, 1..5_u64), 1..80),
            ahead in 0..9 * SECOND,
        ) {
            let (mut full_at, mut now, mut given) = (0, 7 * SECOND, Vec::new());
            for (pause, tokens) in steps {
                now += pause;
                let before = full_at.max(now);
                match filling.reserve(&mut full_at, now, tokens, ahead) {
                    Ok(reserved) => {
                        prop_assert!((1..=tokens).contains(&reserved.tokens));
                        prop_assert!(reserved.wait_ns <= ahead);
                        given.push((now + reserved.wait_ns, reserved.tokens));
                    }
                    Err(wait) => prop_assert!(full_at == before && wait >= ahead / 2),
                }
                // A caller may reserve tokens and never use them. Other callers wait for such
                // tokens at most for this time.
                prop_assert!(full_at <= now + ahead + filling.cost(filling.size));
            }
            let times: Vec<u64> = given.iter().map(|(at, _)| *at).collect();
            prop_assert!(times.is_sorted(), "in the order in which it was asked for");
            never_too_much(&filling, &given)?;
        }

        #[test]
        fn a_bucket_never_has_less_than_no_tokens(
            filling in fillings(),
            full_at in any::<u64>(),
            ahead in 0..9 * SECOND,
        ) {
            let now = 7 * SECOND;
            let (mut taken_at, mut reserved_at) = (full_at, full_at);
            if let Err(wait) = filling.take(&mut taken_at, now, 1, 0) {
                prop_assert!(wait <= filling.cost(1));
                prop_assert!(filling.take(&mut taken_at, now + wait, 1, 0).is_ok());
            }
            let wait = match filling.reserve(&mut reserved_at, now, 1, ahead) {
                Ok(reserved) => reserved.wait_ns,
                Err(_) => filling.cost(1) + ahead,
            };
            prop_assert!(filling.reserve(&mut reserved_at, now + wait, 1, ahead).is_ok() || ahead == 0);
            prop_assert!(reserved_at <= now + wait + ahead + filling.cost(filling.size));
        }
    }

    /// Simulates connections that share a bucket, and returns the bytes that each receives in the
    /// first and in the second minute. Each connection reserves up to `piece` bytes, waits until it
    /// may send them, and reserves again.
    fn two_minutes(filling: &BucketRate, piece: u64, connections: usize) -> Vec<[u64; 2]> {
        const AHEAD: u64 = 4 * SECOND;
        const BEGIN: u64 = 7 * SECOND;
        let turns = (0..connections).map(|which| Reverse((BEGIN + which as u64, which, 0)));
        let mut turns: BinaryHeap<_> = turns.collect();
        let (mut full_at, mut got) = (0, vec![[0; 2]; connections]);
        while let Some(Reverse((now, which, came))) = turns.pop() {
            let minute = ((now - BEGIN) / (60 * SECOND)) as usize;
            let Some(sum) = got[which].get_mut(minute) else {
                break;
            };
            *sum += came;
            let (wait, comes) = match filling.reserve(&mut full_at, now, piece, AHEAD) {
                Ok(reserved) => (reserved.wait_ns, reserved.tokens),
                Err(wait) => (wait, 0),
            };
            turns.push(Reverse((now + wait.max(1), which, comes)));
        }
        got
    }

    #[test]
    fn all_connections_that_share_a_bucket_get_similar_shares() {
        let filling = BucketRate {
            tokens: 256 << 10,
            per_ns: SECOND,
            size: 32 << 10,
        };
        for connections in [2, 31, 33, 40, 400] {
            let got = two_minutes(&filling, 32 << 10, connections);
            let fair = 60 * filling.tokens / connections as u64;
            for (which, [first, second]) in got.iter().enumerate() {
                // The first connection may find a full bucket, so in the first minute only the
                // lower bound is checked.
                let after = format!("{which} of {connections}: {first}, {second} of {fair}");
                assert!(first * 2 > fair, "{after}");
                assert!(second * 10 > fair * 8 && second * 10 < fair * 12, "{after}");
            }
        }
    }

    #[test]
    fn a_full_bucket_gives_its_tokens_at_once_and_then_one_by_one() {
        let filling = BucketRate {
            tokens: 10,
            per_ns: SECOND,
            size: 3,
        };
        let (mut full_at, now) = (0, 100 * SECOND);
        let mut take = |now| filling.take(&mut full_at, now, 1, 0);
        assert_eq!([take(now), take(now), take(now)], [Ok(()); 3]);
        assert_eq!(take(now), Err(SECOND / 10));
        assert_eq!(take(now + SECOND / 10), Ok(()));
        assert!(take(now + SECOND / 10).is_err());
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let filling = BucketRate {
            tokens: 1,
            per_ns: 3600 * SECOND,
            size: u64::MAX,
        };
        let mut full_at = u64::MAX - 1;
        let taken = filling.take(&mut full_at, u64::MAX - 2, u64::MAX, 0);
        assert_eq!(taken, Ok(()));
        let reserved = filling.reserve(&mut full_at, u64::MAX, 1, 0);
        assert_eq!(reserved.map(|r| r.wait_ns), Ok(0));
    }
}
