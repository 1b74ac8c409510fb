//! Hedging: if the head of a response to a shared fetch is late, a second request is sent to another
//! server in good condition, and the first head that arrives is used. A head that reports a failure
//! waits for the other one.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use smallvec::smallvec;

use super::forward::{Exchanged, Forward};
use super::hedge_budget::HedgeBudget;
use super::retry::{Sent, Tries};
use crate::handler::Fault;
use crate::http::{Method, Status, range};
use crate::sys::clock::timer_now;

impl Forward {
    /// Sends the request as `exchange` does. A shared fetch is hedged if the options permit that.
    pub(super) async fn exchange_hedged(&self) -> Result<Exchanged, Fault> {
        let budget = self.upstream.hedges.as_ref();
        let Some(budget) = budget.filter(|budget| self.may_hedge(budget)) else {
            return self.exchange(&mut Tries::default()).await;
        };
        budget.add_request();
        // Boxed, since its two exchanges would enlarge the future of every request.
        let (exchanged, sent_us) = Box::pin(self.race(budget)).await?;
        let now_us = self.upstream.clock.monotonic_us();
        budget.note(now_us.saturating_sub(sent_us));
        // The other request may have noted its server later.
        self.record.server.set(exchanged.0.stream.peer());
        Ok(exchanged)
    }

    /// Whether the request is a fetch for several clients, of no more bytes than permitted as far as
    /// that is known.
    fn may_hedge(&self, budget: &HedgeBudget) -> bool {
        self.peer.shared
            && self.head.method == Method::Get
            && self.upload.is_empty()
            && range_bytes(self.head.fields.get("range")) <= budget.max_size()
    }

    /// Sends the request, and if its response is late, to another server as well. Also returns the
    /// time at which the request was sent whose response could be late.
    async fn race(&self, budget: &HedgeBudget) -> Result<(Exchanged, u64), Fault> {
        let sent = Rc::<Cell<Option<Sent>>>::default();
        let mut tries = Tries::watched(sent.clone());
        let mut first = pin!(self.exchange(&mut tries));
        let waited = match budget.after_us() {
            Some(after) => until_late(first.as_mut(), &sent, Duration::from_micros(after)).await,
            None => Ok(first.as_mut().await),
        };
        let late = match waited {
            Ok(exchanged) => return exchanged.map(with_time),
            Err(late) => late,
        };
        if !self.upstream.pool.has_equal(late.server) || !budget.take() {
            return first.await.map(with_time);
        }
        self.upstream.counters.upstream_hedges.add(1);
        let again = self.again(self.head.clone());
        let mut tries = Tries::default();
        tries.failed = smallvec![late.server];
        let is_good = |(_, received, _): &Exchanged| !self.is_error(received.status);
        let second = pin!(again.exchange(&mut tries));
        let Settled { used, unused } = first_good(first, second, is_good).await;
        if let Some((mut lease, received, sent_us)) = unused {
            self.note_outcome(&mut lease, received.status, sent_us);
            self.upstream.pool.discard(lease);
        }
        Ok((used?, late.at_us))
    }

    /// Whether a response with this status reports a failure of its server, so that another server's
    /// response is better.
    fn is_error(&self, status: Status) -> bool {
        matches!(status, 500 | 502..=504) || self.upstream.options.retry.on.covers_status(status)
    }
}

/// The results of two futures of which one is used.
#[derive(Debug, PartialEq)]
struct Settled<T, E> {
    used: Result<T, E>,
    /// The value of the other future, if it had ended with one.
    unused: Option<T>,
}

/// Returns the exchange and the time at which its request was sent.
fn with_time(exchanged: Exchanged) -> (Exchanged, u64) {
    let sent_us = exchanged.2;
    (exchanged, sent_us)
}

/// Waits for the result of a request, of which `sent` has the latest sending, or until `after` has
/// passed since this sending, which is then the error. The time before a request is sent, in which
/// it waits for a connection, says nothing about its server.
async fn until_late<T>(
    mut request: Pin<&mut impl Future<Output = T>>,
    sent: &Cell<Option<Sent>>,
    after: Duration,
) -> Result<T, Sent> {
    let (mut timer, mut timed) = (pin!(tokio::time::sleep(after)), None);
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(result) = request.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        let Some(latest) = sent.get() else {
            return Poll::Pending;
        };
        if timed.replace(latest) != Some(latest) {
            timer.as_mut().reset(timer_now() + after);
        }
        timer.as_mut().poll(cx).map(|()| Err(latest))
    })
    .await
}

/// Returns the first good value. If there is none, waits for both futures and returns the value that
/// came first, or the last error if both fail.
async fn first_good<T, E>(
    first: impl Future<Output = Result<T, E>> + Unpin,
    second: impl Future<Output = Result<T, E>> + Unpin,
    is_good: impl Fn(&T) -> bool,
) -> Settled<T, E> {
    let (mut first, mut second) = (Some(first), Some(second));
    let mut kept = None;
    std::future::poll_fn(move |cx| {
        for turn in 0..2 {
            let polled = match turn {
                0 => poll_running(&mut first, cx),
                _ => poll_running(&mut second, cx),
            };
            let Some(result) = polled else {
                continue;
            };
            let is_last = first.is_none() && second.is_none();
            let is_good = result.as_ref().is_ok_and(&is_good);
            if is_good || is_last {
                return Poll::Ready(settle(kept.take(), result, is_good));
            }
            kept = Some(result);
        }
        Poll::Pending
    })
    .await
}

/// Chooses between the result that came first, if there is one, and the last one.
fn settle<T, E>(
    kept: Option<Result<T, E>>,
    last: Result<T, E>,
    is_last_good: bool,
) -> Settled<T, E> {
    let (used, unused) = match kept {
        Some(Ok(value)) if is_last_good => (last, Some(value)),
        Some(Ok(value)) => (Ok(value), last.ok()),
        Some(Err(_)) | None => (last, None),
    };
    Settled { used, unused }
}

/// Polls a future that has not ended yet. Returns its result when it ends.
fn poll_running<T>(
    future: &mut Option<impl Future<Output = T> + Unpin>,
    cx: &mut std::task::Context<'_>,
) -> Option<T> {
    let running = future.as_mut()?;
    match Pin::new(running).poll(cx) {
        Poll::Ready(result) => {
            *future = None;
            Some(result)
        }
        Poll::Pending => None,
    }
}

/// Returns the number of bytes that a Range header with one range asks for; 0 if that is unknown.
fn range_bytes(value: Option<&[u8]>) -> u64 {
    let specs = value.and_then(range::parse);
    let bytes = specs.map(|specs| match specs.resolve(u64::MAX, 0) {
        range::Resolved::Satisfiable(ranges) => ranges.iter().map(|r| r.end - r.start).sum(),
        _ => 0,
    });
    bytes.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    use super::*;

    type Result = std::result::Result<Status, &'static str>;

    /// Returns the result for two futures of which one ends at the second poll.
    fn settled(early: Result, late: Result, is_early_first: bool) -> Settled<Status, &'static str> {
        let is_good = |status: &Status| *status < 500;
        let mut polls = 0;
        let late = pin!(std::future::poll_fn(move |_| {
            polls += 1;
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(late),
            }
        }));
        let mut cx = Context::from_waker(Waker::noop());
        let mut settling: Pin<Box<dyn Future<Output = _> + '_>> = match is_early_first {
            true => Box::pin(first_good(ready(early), late, is_good)),
            false => Box::pin(first_good(late, ready(early), is_good)),
        };
        for _ in 0..2 {
            if let Poll::Ready(settled) = settling.as_mut().poll(&mut cx) {
                return settled;
            }
        }
        panic!("both have ended");
    }

    #[test]
    fn a_head_that_reports_a_failure_waits_for_a_better_one() {
        for is_early_first in [true, false] {
            for (early, late, used, unused) in [
                (Ok(200), Ok(200), Ok(200), None),
                (Ok(503), Ok(200), Ok(200), Some(503)),
                (Ok(503), Ok(500), Ok(503), Some(500)),
                (Ok(503), Err("late"), Ok(503), None),
                (Err("early"), Ok(503), Ok(503), None),
                (Err("early"), Ok(200), Ok(200), None),
                (Err("early"), Err("late"), Err("late"), None),
            ] {
                let settled = settled(early, late, is_early_first);
                assert_eq!(settled, Settled { used, unused });
            }
        }
    }

    #[test]
    fn a_good_head_waits_for_no_other() {
        let mut cx = Context::from_waker(Waker::noop());
        let never = || pin_box(pending());
        for (first, second) in [
            (pin_box(ready(Ok(200))), never()),
            (never(), pin_box(ready(Ok(200)))),
        ] {
            let settling = pin!(first_good(first, second, |_| true));
            assert!(settling.poll(&mut cx).is_ready());
        }
    }

    fn pin_box(
        future: impl Future<Output = Result> + 'static,
    ) -> Pin<Box<dyn Future<Output = Result>>> {
        Box::pin(future)
    }
}
