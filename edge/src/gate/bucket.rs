//! Token buckets, as one number each (the generic cell rate algorithm): when the bucket will be full
//! again. What is taken moves that time on; it may lie ahead of now by as much as the bucket holds.

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// What fills a bucket, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Tokens that come …
    pub tokens: u64,
    /// … in this time, nanoseconds.
    pub per_ns: u64,
    /// Tokens that it holds.
    pub size: u64,
}

impl Filling {
    /// Nanoseconds in which so many tokens come, rounded up: never more comes than was said.
    #[inline]
    pub fn cost(&self, tokens: u64) -> u64 {
        let time = u128::from(tokens) * u128::from(self.per_ns);
        let time = time.div_ceil(u128::from(self.tokens.max(1)));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Takes tokens out of a bucket that is full at `full_at`, if they are there; else nothing, and
    /// the error is how many nanoseconds it takes until they are.
    #[inline]
    pub fn take(&self, full_at: &mut u64, now: u64, tokens: u64) -> Result<(), u64> {
        let next = (*full_at).max(now).saturating_add(self.cost(tokens));
        let most = now.saturating_add(self.cost(self.size));
        match next <= most {
            true => {
                *full_at = next;
                Ok(())
            }
            false => Err(next - most),
        }
    }

    /// Takes tokens, also those that are still to come: they may be used after so many nanoseconds. If
    /// that were more than `longest`, nothing is taken, and the error is after how many to ask again.
    #[inline]
    pub fn reserve(
        &self,
        full_at: &mut u64,
        now: u64,
        tokens: u64,
        longest: u64,
    ) -> Result<u64, u64> {
        let next = (*full_at).max(now).saturating_add(self.cost(tokens));
        let wait = next.saturating_sub(now.saturating_add(self.cost(self.size)));
        // Who has nothing before him waits as long as it takes.
        if wait > longest && *full_at > now {
            return Err(wait - longest / 2);
        }
        *full_at = next;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Most that a bucket may give in a time.
    fn allowed(filling: &Filling, time: u64) -> u64 {
        let come = u128::from(time) * u128::from(filling.tokens) / u128::from(filling.per_ns);
        // One for the token that was under way when the time began.
        filling.size + 1 + u64::try_from(come).expect("a small number")
    }

    fn never_too_much(filling: &Filling, given: &[(u64, u64)]) -> Result<(), TestCaseError> {
        for (first, (from, _)) in given.iter().enumerate() {
            let mut sum = 0;
            for (at, tokens) in &given[first..] {
                sum += tokens;
                prop_assert!(sum <= allowed(filling, at - from), "{sum} in {}", at - from);
            }
        }
        Ok(())
    }

    fn fillings() -> impl Strategy<Value = Filling> {
        (1..2_000_u64, 1..3 * SECOND, 1..100_u64).prop_map(|(tokens, per_ns, size)| Filling {
            tokens,
            per_ns,
            size,
        })
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_bucket_and_what_came(
            filling in fillings(),
            steps in prop::collection::vec((0..SECOND / 2, 1..5_u64), 1..80),
        ) {
            let (mut full_at, mut now, mut given) = (0, 7 * SECOND, Vec::new());
            for (pause, tokens) in steps {
                now += pause;
                match filling.take(&mut full_at, now, tokens) {
                    Ok(()) => given.push((now, tokens)),
                    Err(wait) if tokens <= filling.size => {
                        // What it says is when they are there, and no earlier.
                        let mut copy = full_at;
                        prop_assert!(wait > 0);
                        prop_assert!(filling.take(&mut copy, now + wait - 1, tokens).is_err());
                        prop_assert!(filling.take(&mut copy, now + wait, tokens).is_ok());
                    }
                    Err(_) => {}
                }
            }
            never_too_much(&filling, &given)?;
        }

        #[test]
        fn what_is_reserved_keeps_to_the_rate_too(
            filling in fillings(),
            steps in prop::collection::vec((0..SECOND / 2, 1..5_u64), 1..80),
            longest in 0..9 * SECOND,
        ) {
            let (mut full_at, mut now, mut given) = (0, 7 * SECOND, Vec::new());
            for (pause, tokens) in steps {
                now += pause;
                let before = full_at;
                match filling.reserve(&mut full_at, now, tokens, longest) {
                    Ok(wait) => given.push((now + wait, tokens)),
                    Err(wait) => prop_assert!(full_at == before && wait >= longest / 2),
                }
                // Whoever gives up keeps others waiting no longer than this.
                let ahead = longest.max(filling.cost(tokens));
                prop_assert!(full_at <= now + ahead + filling.cost(filling.size));
            }
            let times: Vec<u64> = given.iter().map(|(at, _)| *at).collect();
            prop_assert!(times.is_sorted(), "in the order in which it was asked for");
            // Tokens larger than the bucket come late, and then all at once.
            let wide = Filling { size: filling.size + 5, ..filling };
            never_too_much(&wide, &given)?;
        }
    }

    #[test]
    fn a_full_bucket_gives_what_it_holds_and_then_one_by_one() {
        let filling = Filling {
            tokens: 10,
            per_ns: SECOND,
            size: 3,
        };
        let (mut full_at, now) = (0, 100 * SECOND);
        let mut take = |now| filling.take(&mut full_at, now, 1);
        assert_eq!([take(now), take(now), take(now)], [Ok(()); 3]);
        assert_eq!(take(now), Err(SECOND / 10));
        assert_eq!(take(now + SECOND / 10), Ok(()));
        assert!(take(now + SECOND / 10).is_err());
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let filling = Filling {
            tokens: 1,
            per_ns: 3600 * SECOND,
            size: u64::MAX,
        };
        let mut full_at = u64::MAX - 1;
        assert_eq!(filling.take(&mut full_at, u64::MAX - 2, u64::MAX), Ok(()));
        assert_eq!(filling.reserve(&mut full_at, u64::MAX, 1, 0), Ok(0));
    }
}
