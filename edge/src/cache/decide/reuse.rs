//! Reuse: whether a stored response may be served without validation (RFC 9111 4).

use super::admission::Admitted;
use crate::http::Fwd;
use crate::reason::Reason;
use crate::store::Head;

/// The decision about a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Reuse {
    /// The response is fresh and is served.
    Fresh,
    /// The response is stale and is served for this reason.
    Stale {
        reason: Reason,
        /// Whether the response is to be revalidated in the background.
        revalidate: bool,
    },
    /// The response has to be validated before it is served.
    Validate(Fwd),
}

/// The state of a resource, needed if its stored response is not fresh.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cache) struct Circumstances {
    /// Whether the last fetches of the resource failed.
    pub(in crate::cache) failing: bool,
    /// Whether the pause after failed fetches is not over, so that no fetch may begin.
    pub(in crate::cache) resting: bool,
    /// Whether a fetch that revalidates the response is in progress.
    pub(in crate::cache) updating: bool,
    /// Time past the end of its freshness for which the response may be served while a fetch
    /// revalidates it, in milliseconds.
    pub(in crate::cache) updating_ms: u64,
}

/// Decides whether a stored response may be served. `about` is called only if the response is not
/// fresh.
#[inline]
pub(in crate::cache) fn judge(
    head: &Head,
    admitted: &Admitted,
    now_ms: u64,
    about: impl FnOnce() -> Circumstances,
) -> Reuse {
    // If the clock was set back, the response does not become younger than when it was received.
    let now_ms = now_ms.max(head.received_ms);
    let fresh = now_ms < head.fresh_until_ms;
    match admitted.directives {
        None if fresh => Reuse::Fresh,
        Some(_) if !satisfies(head, admitted, now_ms) => Reuse::Validate(Fwd::Request),
        Some(_) if fresh => Reuse::Fresh,
        _ => stale(head, admitted, now_ms - head.fresh_until_ms, &about()),
    }
}

/// Whether the response meets the age and freshness that the client requires (RFC 9111 5.2.1.1 to
/// 5.2.1.4).
fn satisfies(head: &Head, admitted: &Admitted, now_ms: u64) -> bool {
    let Some(asked) = admitted.directives else {
        return true;
    };
    let (age_ms, left_ms) = (
        head.age_ms(now_ms),
        head.fresh_until_ms.saturating_sub(now_ms),
    );
    // A fresh immutable response needs no reload (RFC 8246 2).
    let unchanging = head.immutable && left_ms > 0;
    let of = |seconds: u32| u64::from(seconds) * 1000;
    let young = asked.max_age.is_none_or(|s| age_ms <= of(s)) || unchanging;
    !asked.no_cache && young && asked.min_fresh.is_none_or(|s| left_ms >= of(s))
}

/// Decides about a response that has been stale for `past_ms` (RFC 9111 4.2.4, RFC 5861).
fn stale(head: &Head, admitted: &Admitted, past_ms: u64, about: &Circumstances) -> Reuse {
    let revalidate = !about.updating && !about.resting;
    let max_stale = admitted.directives.and_then(|asked| asked.max_stale);
    let serve_stale = |reason, revalidate| Reuse::Stale { reason, revalidate };
    match () {
        () if past_ms < head.stale_while_revalidate_ms => {
            serve_stale(Reason::StaleWhileRevalidate, revalidate)
        }
        // While fetches fail, the stale response is served at once instead of after one more failed
        // fetch.
        () if about.failing && past_ms < head.stale_if_error_ms => {
            serve_stale(Reason::StaleIfError, revalidate)
        }
        () if head.strict => Reuse::Validate(Fwd::Stale),
        () if about.updating && past_ms < about.updating_ms => {
            serve_stale(Reason::StaleWhileUpdating, false)
        }
        () if max_stale.is_some_and(|s| past_ms <= u64::from(s) * 1000) => {
            serve_stale(Reason::MaxStale, false)
        }
        () => Reuse::Validate(Fwd::Stale),
    }
}

/// Whether a stale response may be served because the origin failed (RFC 5861 4). The response or
/// the request may permit it by `stale-if-error`.
pub(in crate::cache) fn serves_on_error(head: &Head, admitted: &Admitted, now_ms: u64) -> bool {
    let past_ms = now_ms.saturating_sub(head.fresh_until_ms);
    let asked = admitted.directives.and_then(|asked| asked.stale_if_error);
    let asked = asked.filter(|_| !head.strict);
    let asked_ms = asked.map_or(0, |seconds| u64::from(seconds) * 1000);
    past_ms < head.stale_if_error_ms.max(asked_ms)
}

/// Whether a status is that of a failing origin (RFC 5861 4).
pub(in crate::cache) fn is_failure(status: u16) -> bool {
    matches!(status, 500 | 502..=504)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::cache_control::RequestDirectives;

    /// A head received at 0 and fresh for 100 s.
    fn head() -> Head {
        Head {
            fresh_until_ms: 100_000,
            stale_while_revalidate_ms: 10_000,
            stale_if_error_ms: 50_000,
            ..Head::default()
        }
    }

    fn asking(value: &str) -> Admitted {
        Admitted {
            directives: Some(RequestDirectives::parse(value.as_bytes())),
            ..Admitted::default()
        }
    }

    fn reuse(head: &Head, value: &str, at_s: u64, about: Circumstances) -> Reuse {
        let admitted = match value {
            "" => Admitted::default(),
            value => asking(value),
        };
        judge(head, &admitted, at_s * 1000, || about)
    }

    #[test]
    fn a_fresh_response_is_served_unless_the_client_requires_a_fresher_one() {
        let at = |value, s| reuse(&head(), value, s, Circumstances::default());
        let asked = Reuse::Validate(Fwd::Request);
        for (value, at_s, expected) in [
            ("", 99, Reuse::Fresh),
            ("max-stale", 50, Reuse::Fresh),
            ("max-age=50", 50, Reuse::Fresh),
            ("max-age=49", 50, asked),
            ("min-fresh=50", 50, Reuse::Fresh),
            ("min-fresh=51", 50, asked),
            ("no-cache", 50, asked),
            ("max-age=0", 1, asked),
        ] {
            assert_eq!(at(value, at_s), expected, "{value} at {at_s}");
        }
        let immutable = Head {
            immutable: true,
            ..head()
        };
        let reload = reuse(&immutable, "max-age=0", 50, Circumstances::default());
        assert_eq!(reload, Reuse::Fresh);
        let forced = reuse(&immutable, "no-cache", 50, Circumstances::default());
        assert_eq!(forced, asked);
    }

    #[test]
    fn a_stale_response_is_served_only_if_something_permits_it() {
        let quiet = Circumstances::default();
        let failing = Circumstances {
            failing: true,
            ..quiet
        };
        let resting = Circumstances {
            resting: true,
            ..failing
        };
        let updating = Circumstances {
            updating: true,
            updating_ms: 30_000,
            ..quiet
        };
        let stale = |reason, revalidate| Reuse::Stale { reason, revalidate };
        let validate = Reuse::Validate(Fwd::Stale);
        for (value, at_s, about, expected) in [
            ("", 100, quiet, stale(Reason::StaleWhileRevalidate, true)),
            (
                "",
                109,
                updating,
                stale(Reason::StaleWhileRevalidate, false),
            ),
            ("", 110, quiet, validate),
            ("", 129, updating, stale(Reason::StaleWhileUpdating, false)),
            ("", 130, updating, validate),
            ("", 149, failing, stale(Reason::StaleIfError, true)),
            ("", 149, resting, stale(Reason::StaleIfError, false)),
            ("", 150, failing, validate),
            ("max-stale=20", 120, quiet, stale(Reason::MaxStale, false)),
            ("max-stale=20", 121, quiet, validate),
            ("max-stale", 100_000, quiet, stale(Reason::MaxStale, false)),
            ("no-cache", 105, quiet, Reuse::Validate(Fwd::Request)),
        ] {
            assert_eq!(
                reuse(&head(), value, at_s, about),
                expected,
                "{value} at {at_s}"
            );
        }
        let strict = Head {
            strict: true,
            stale_while_revalidate_ms: 0,
            stale_if_error_ms: 0,
            ..head()
        };
        for about in [quiet, failing, updating] {
            assert_eq!(reuse(&strict, "max-stale", 101, about), validate);
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_fresh() {
        let stale = Head {
            received_ms: 1_000_000,
            fresh_until_ms: 1_000_000,
            ..Head::default()
        };
        let quiet = Circumstances::default();
        assert_eq!(reuse(&stale, "", 999, quiet), Reuse::Validate(Fwd::Stale));
    }

    #[test]
    fn a_stale_response_is_served_for_a_failing_origin_within_its_limit() {
        assert!(serves_on_error(&head(), &Admitted::default(), 149_000));
        assert!(!serves_on_error(&head(), &Admitted::default(), 150_000));
        assert!(serves_on_error(
            &head(),
            &asking("stale-if-error=60"),
            159_000
        ));
        let strict = Head {
            strict: true,
            stale_if_error_ms: 0,
            ..head()
        };
        assert!(!serves_on_error(
            &strict,
            &asking("stale-if-error=60"),
            101_000
        ));
        assert!(is_failure(500) && is_failure(504) && !is_failure(501) && !is_failure(404));
    }

    proptest! {
        #[test]
        fn strict_responses_are_never_served_stale(
            past_s in 0..200_u64, failing: bool, updating: bool, stale in prop::option::of(0..300_u32),
        ) {
            let strict = Head {
                strict: true, stale_while_revalidate_ms: 0, stale_if_error_ms: 0, ..head()
            };
            let admitted = Admitted {
                directives: Some(RequestDirectives { max_stale: stale, ..RequestDirectives::default() }),
                ..Admitted::default()
            };
            let about = Circumstances { failing, updating, updating_ms: u64::MAX, resting: false };
            let reused = judge(&strict, &admitted, 100_000 + past_s * 1000, || about);
            prop_assert_eq!(reused, Reuse::Validate(Fwd::Stale));
        }
    }
}
