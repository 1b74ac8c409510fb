//! Hedging: if the head of a response to a shared fetch is late, a second request is sent to another
//! server in good condition, and the first head that arrives is used.

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
use crate::http::{Method, range};
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
        let exchanged = first_success(first, pin!(again.exchange(&mut tries))).await?;
        Ok((exchanged, late.at_us))
    }
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

/// Returns the result of the future that succeeds first, or the error of the last one that fails.
async fn first_success<T, E>(
    first: impl Future<Output = Result<T, E>> + Unpin,
    second: impl Future<Output = Result<T, E>> + Unpin,
) -> Result<T, E> {
    let (mut first, mut second) = (Some(first), Some(second));
    std::future::poll_fn(move |cx| {
        let polled = poll_one(&mut first, second.is_none(), cx);
        match polled {
            Poll::Pending => poll_one(&mut second, first.is_none(), cx),
            ready => ready,
        }
    })
    .await
}

/// Polls a future that has not failed yet. Its error counts only if it is the last one.
fn poll_one<T, E>(
    future: &mut Option<impl Future<Output = Result<T, E>> + Unpin>,
    is_last: bool,
    cx: &mut std::task::Context<'_>,
) -> Poll<Result<T, E>> {
    let Some(running) = future else {
        return Poll::Pending;
    };
    match std::pin::Pin::new(running).poll(cx) {
        Poll::Ready(Err(_)) if !is_last => {
            *future = None;
            Poll::Pending
        }
        polled => polled,
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
