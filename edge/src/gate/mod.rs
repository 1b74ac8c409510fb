//! Gates check a request before a route handles it: the client's address, its TLS certificate, its
//! request rate, the method, and the signature of a signed URL.
//!
//! Address and certificate come first, then the rate, so that a client that guesses methods or signatures is
//! rate-limited. The signature, which requires a hash, comes last.

mod bucket;
mod checks;
mod limit;
mod methods;
mod networks;
mod options;
mod pace;
mod preview;
mod shared;
pub mod signed;
mod table;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::handler::{Answer, Handler, Request};
use crate::http::ClientId;
use crate::sys::Clock;
use crate::telemetry::Counters;

pub use bucket::{BucketRate, SECOND};
pub use checks::Check;
pub use limit::{Limit, memory};
pub use methods::TraceGate;
pub use options::Options;
pub use preview::Preview;
pub use shared::Shared;

use checks::CHECKS;
use pace::Pacer;
use table::{BucketKind, Table};

/// A handler that checks requests and passes admitted ones to another handler. Each worker has one
/// gate per route.
pub struct Gate {
    shared: Arc<Shared>,
    clock: Clock,
    counters: Arc<Counters>,
    inner: Rc<dyn Handler>,
}

impl Gate {
    /// Creates a gate that passes admitted requests to `inner`.
    pub fn new(
        shared: Arc<Shared>,
        clock: Clock,
        counters: Arc<Counters>,
        inner: Rc<dyn Handler>,
    ) -> Gate {
        Gate {
            shared,
            clock,
            counters,
            inner,
        }
    }

    /// Checks a request. If it is refused, returns the answer.
    #[inline]
    fn refuse(&self, request: &mut Request) -> Option<Answer> {
        let client = request.peer.client;
        for check in CHECKS {
            let charge = |table: &Table, rate| self.charge(client, table, rate);
            if let Err(refused) = self.shared.check(check, request, &self.clock, charge) {
                self.count(check);
                return Some(refused.answer(&self.shared));
            }
        }
        None
    }

    /// Takes a request from the client's bucket. The error is the time in nanoseconds until the bucket has enough.
    fn charge(&self, client: IpAddr, table: &Table, rate: BucketRate) -> Result<(), u64> {
        let now = self.clock.monotonic_us().saturating_mul(1000);
        let looked = table.with(ClientId::of(client), BucketKind::Requests, now, |full_at| {
            rate.take(full_at, now, 1, 0)
        });
        self.counters.limits_forgotten.add(looked.replaced.into());
        looked.result
    }

    /// Counts a request that this check refused.
    fn count(&self, check: Check) {
        let counters = &self.counters;
        match check {
            Check::Address => counters.requests_denied.add(1),
            Check::Certificate => counters.requests_uncertified.add(1),
            Check::Rate => counters.requests_limited.add(1),
            Check::Signature => counters.requests_unsigned.add(1),
            Check::Method => {}
        }
    }

    /// Limits the bandwidth of the response to the rate configured per client.
    fn limit_bandwidth(&self, answer: Answer, client: IpAddr) -> Answer {
        let Some((table, filling)) = self.shared.bytes() else {
            return answer;
        };
        let pacer = Pacer {
            table: table.clone(),
            filling,
            client: ClientId::of(client),
            clock: self.clock.clone(),
            counters: self.counters.clone(),
        };
        answer.map(move |result| result.map(|response| pacer.slow(response)))
    }
}

impl Handler for Gate {
    fn handle(&self, mut request: Request) -> Answer {
        let client = request.peer.client;
        if self.shared.skips(&mut request) {
            return self.inner.handle(request);
        }
        match self.refuse(&mut request) {
            None => self.limit_bandwidth(self.inner.handle(request), client),
            Some(refused) => refused,
        }
    }
}

#[cfg(test)]
mod tests;
