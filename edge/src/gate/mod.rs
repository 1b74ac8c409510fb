//! Gates check a request before a route handles it: the client's address, its TLS certificate, its
//! request rate, the method, and the signature of a signed URL.
//!
//! Address and certificate come first, then the rate, so that a client that guesses methods or signatures is
//! rate-limited. The signature, which requires a hash, comes last.

mod bucket;
mod limit;
mod methods;
mod networks;
mod options;
mod pace;
mod shared;
pub mod signed;
mod table;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::handler::{Answer, Fault, Handler, Request};
use crate::http::{ClientId, Method};
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::Counters;

pub use bucket::{BucketRate, SECOND};
pub use limit::{Limit, memory};
pub use methods::TraceGate;
pub use options::Options;
pub use shared::Shared;

use pace::Pacer;
use table::BucketKind;

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
    fn refuse(&self, request: &mut Request) -> Option<Answer> {
        let client = request.peer.client;
        let checked = self
            .check_address(client)
            .and_then(|()| self.check_certificate(request))
            .and_then(|()| self.check_rate(client));
        let checked = match (checked, self.shared.allow_methods()) {
            (Ok(()), Some(allowed)) if !allowed.contains(&request.head.method) => {
                return Some(Answer::Ready(Ok(methods::not_allowed(Some(allowed)))));
            }
            (Ok(()), _) => self.check_signature(request),
            (refused, _) => refused,
        };
        checked.err().map(|fault| Answer::Ready(Err(fault)))
    }

    /// Refuses a client whose address is not admitted.
    fn check_address(&self, client: IpAddr) -> Result<(), Fault> {
        if self.shared.admits(client) {
            return Ok(());
        }
        self.counters.requests_denied.add(1);
        Err(Reason::AddressDenied.into())
    }

    /// Refuses a client without a certificate. The TLS handshake has verified the certificate of a client with one, by
    /// the authorities of the request's host: otherwise the request would have been misdirected (421).
    fn check_certificate(&self, request: &Request) -> Result<(), Fault> {
        let needed = self.shared.options().client_certificate;
        if !needed || request.peer.tls.is_some_and(|session| session.certified()) {
            return Ok(());
        }
        self.counters.requests_uncertified.add(1);
        Err(Reason::CertificateRequired.into())
    }

    /// Refuses a request if its client has exceeded the request rate.
    fn check_rate(&self, client: IpAddr) -> Result<(), Fault> {
        let Some((table, filling)) = self.shared.requests() else {
            return Ok(());
        };
        let now = self.clock.monotonic_us().saturating_mul(1000);
        let looked = table.with(ClientId::of(client), BucketKind::Requests, now, |full_at| {
            filling.take(full_at, now, 1, 0)
        });
        self.counters.limits_forgotten.add(looked.replaced.into());
        looked.result.map_err(|wait| {
            self.counters.requests_limited.add(1);
            Fault {
                retry_after_s: u32::try_from(wait.div_ceil(SECOND)).unwrap_or(u32::MAX),
                ..Reason::TooManyRequests.into()
            }
        })
    }

    /// Checks the URL's signature and removes it from the URL, because all clients with a valid
    /// signature share one stored response.
    fn check_signature(&self, request: &mut Request) -> Result<(), Fault> {
        let Some((options, keys)) = self.shared.signed() else {
            return Ok(());
        };
        let (head, client) = (&mut request.head, request.peer.client);
        let now_s = self.clock.unix_ms() / 1000;
        // A signature does not cover the method, so it grants reading only.
        let checked = match head.method {
            Method::Get | Method::Head => signed::check(&head.target, client, now_s, options, keys),
            _ => Err(Reason::SignatureWrong),
        };
        match checked {
            Ok(target) => {
                head.target = target;
                Ok(())
            }
            Err(reason) => {
                self.counters.requests_unsigned.add(1);
                Err(reason.into())
            }
        }
    }

    /// Removes the signature from the URL of a PURGE, if it has one, because the cache stores URLs
    /// without signatures.
    fn without_signature(&self, request: &mut Request) {
        let Some((options, _)) = self.shared.signed() else {
            return;
        };
        let target = &mut request.head.target;
        if let Ok(claim) = signed::take_apart(target, &options.names, options.prefix) {
            *target = claim.target;
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
        if self.shared.may_purge(client) && request.head.method.is_purge() {
            self.without_signature(&mut request);
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
