//! Token buckets, as one number each (the generic cell rate algorithm): when the bucket will be full
//! again. What is taken moves that time on; it may lie ahead of now by as much as the bucket holds.

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Parts of the time ahead, one of which each that waits gets.
const SHARES: u64 = 32;

/// Tokens that are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// So many: at least one where one was asked for.
    pub tokens: u64,
    /// They may be used after so many nanoseconds.
    pub wait_ns: u64,
}

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

    /// Tokens that come in so many nanoseconds, rounded down.
    fn come(&self, time: u64) -> u64 {
        let tokens = u128::from(time) * u128::from(self.tokens) / u128::from(self.per_ns.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// From when on a bucket is full that was to be at `full_at`. It is never emptier than empty, and `ahead`
    /// nanoseconds of what is reserved: a time that is later comes from before a reload, when it was
    /// filled more slowly or held more.
    #[inline]
    fn full_at(&self, full_at: u64, now: u64, ahead: u64) -> u64 {
        let empty = now.saturating_add(self.cost(self.size));
        full_at.clamp(now, empty.saturating_add(ahead))
    }

    /// Takes tokens out of a bucket that is full at `full_at`, if they are there; else nothing, and
    /// the error is how many nanoseconds it takes until they are. `ahead` is how far what is reserved may
    /// lie ahead in this bucket: 0 where nothing ever is.
    ///
    /// # Errors
    /// The tokens are not there.
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

    /// Takes up to so many tokens, also such as are still to come. Nobody waits for longer than `ahead`: each
    /// gets a part of the time that is left until then, so the more wait, the less each gets, and
    /// there is something for whoever comes next.
    ///
    /// # Errors
    /// There is nothing left for this one; after how many nanoseconds to ask again.
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
        // What is in the bucket goes at once, to whoever asks first.
        let there = self.come(empty.saturating_sub(*full_at));
        let left = last - (*full_at).max(empty).min(last);
        // More than the bucket holds would come all at once, and late.
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
        (1..2_000_u64, 2_000..3 * SECOND, 1..100_u64).prop_map(|(tokens, per_ns, size)| Filling {
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
                match filling.take(&mut full_at, now, tokens, 0) {
                    Ok(()) => given.push((now, tokens)),
                    Err(wait) if tokens <= filling.size => {
                        // What it says is when they are there, and no earlier.
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
        fn what_is_reserved_keeps_to_the_rate_too(
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
                // Whoever gives up keeps others waiting no longer than this.
                prop_assert!(full_at <= now + ahead + filling.cost(filling.size));
            }
            let times: Vec<u64> = given.iter().map(|(at, _)| *at).collect();
            prop_assert!(times.is_sorted(), "in the order in which it was asked for");
            never_too_much(&filling, &given)?;
        }

        #[test]
        fn a_bucket_is_never_emptier_than_empty(
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

    /// What each of so many connections gets in two minutes, that ask for a piece, wait for it, and ask for the
    /// next; each begins a little later than the one before.
    fn two_minutes(filling: &Filling, piece: u64, connections: usize) -> Vec<[u64; 2]> {
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
    fn however_many_share_a_bucket_each_gets_about_as_much() {
        let filling = Filling {
            tokens: 256 << 10,
            per_ns: SECOND,
            size: 32 << 10,
        };
        for connections in [2, 31, 33, 40, 400] {
            let got = two_minutes(&filling, 32 << 10, connections);
            let fair = 60 * filling.tokens / connections as u64;
            for (which, [first, second]) in got.iter().enumerate() {
                // Who was first may have a whole piece more to begin with.
                let after = format!("{which} of {connections}: {first}, {second} of {fair}");
                assert!(first * 2 > fair, "{after}");
                assert!(second * 10 > fair * 8 && second * 10 < fair * 12, "{after}");
            }
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
        let mut take = |now| filling.take(&mut full_at, now, 1, 0);
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
        let taken = filling.take(&mut full_at, u64::MAX - 2, u64::MAX, 0);
        assert_eq!(taken, Ok(()));
        let reserved = filling.reserve(&mut full_at, u64::MAX, 1, 0);
        assert_eq!(reserved.map(|r| r.wait_ns), Ok(0));
    }
}
