//! What stands before a route: who may ask, how often and how fast, and with which signature.
//!
//! The cheap questions come first: the client's address, then how often it has asked, then the signature, which
//! takes a hash to check. So whoever guesses signatures is limited like anyone else.

mod bucket;
mod limit;
mod networks;
mod pace;
mod shared;
pub mod signed;
mod table;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::handler::{Answer, Fault, Handler, Pending, Request};
use crate::http::{Method, Network};
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::Counters;

pub use bucket::{Filling, SECOND};
pub use limit::{Limit, memory};
pub use shared::{Shared, keys};

use pace::Pacer;
use table::{ClientId, Which};

/// What stands before one route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Networks whose addresses may ask; none: all.
    pub allow: Vec<Network>,
    /// Networks whose addresses may not, also if they are allowed.
    pub deny: Vec<Network>,
    /// Networks from which a PURGE goes past all this.
    pub purge: Vec<Network>,
    /// How often and how fast an address may ask.
    pub limit: Option<Limit>,
    /// Signed URLs, where none but these are answered.
    pub signed: Option<signed::Options>,
}

impl Options {
    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        let nobody_is_denied = self.allow.is_empty() && self.deny.is_empty();
        nobody_is_denied && self.limit.is_none() && self.signed.is_none()
    }
}

/// One worker's gate before a handler.
pub struct Gate {
    shared: Arc<Shared>,
    clock: Clock,
    counters: Arc<Counters>,
    inner: Rc<dyn Handler>,
}

impl Gate {
    /// Before `inner`.
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

    fn admit(&self, request: &mut Request) -> Result<(), Fault> {
        let client = request.peer.client;
        self.know(client)?;
        self.count(client)?;
        self.verify(request)
    }

    /// Whether the address may ask at all.
    fn know(&self, client: IpAddr) -> Result<(), Fault> {
        if self.shared.lets_in(client) {
            return Ok(());
        }
        self.counters.requests_denied.add(1);
        Err(Reason::AddressDenied.into())
    }

    /// Whether it may ask now.
    fn count(&self, client: IpAddr) -> Result<(), Fault> {
        let Some((table, filling)) = self.shared.requests() else {
            return Ok(());
        };
        let now = self.clock.monotonic_us().saturating_mul(1000);
        let looked = table.with(ClientId::of(client), Which::Requests, now, |full_at| {
            filling.take(full_at, now, 1, 0)
        });
        self.counters.limits_forgotten.add(looked.forgot.into());
        looked.result.map_err(|wait| {
            self.counters.requests_limited.add(1);
            Fault {
                retry_after_s: u32::try_from(wait.div_ceil(SECOND)).unwrap_or(u32::MAX),
                ..Reason::TooManyRequests.into()
            }
        })
    }

    /// Whether its URL is signed. The signature does not go further: what is stored for a URL is for all
    /// who have a signature for it.
    fn verify(&self, request: &mut Request) -> Result<(), Fault> {
        let Some((options, keys)) = self.shared.signed() else {
            return Ok(());
        };
        let (head, client) = (&mut request.head, request.peer.client);
        let now_s = self.clock.unix_ms() / 1000;
        // A signature says nothing of the method: it is a right to read.
        let checked = match head.method {
            Method::Get | Method::Head => signed::check(&head.target, client, now_s, options, keys),
            _ => Err(Reason::SignatureWrong),
        };
        match checked {
            Ok(target) => {
                head.target = target;
                Ok(())
            }
            Err(cause) => {
                self.counters.requests_unsigned.add(1);
                Err(cause.into())
            }
        }
    }

    /// What is stored is stored without a signature, so it is purged without it too, whether or not the URL comes
    /// as readers have it.
    fn without_signature(&self, request: &mut Request) {
        let Some((options, _)) = self.shared.signed() else {
            return;
        };
        let target = &mut request.head.target;
        if let Ok(claim) = signed::take_apart(target, &options.names, options.prefix) {
            *target = claim.target;
        }
    }

    /// The answer, no faster than this client may have it.
    fn slowed(&self, answer: Answer, client: IpAddr) -> Answer {
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
        match answer {
            Answer::Ready(response) => Answer::Ready(response.map(|response| pacer.slow(response))),
            Answer::Later(Pending { response, interim }) => Answer::Later(Pending {
                response: Box::pin(async move { response.await.map(|whole| pacer.slow(whole)) }),
                interim,
            }),
        }
    }
}

impl Handler for Gate {
    fn handle(&self, mut request: Request) -> Answer {
        let client = request.peer.client;
        if self.shared.purges(client) && is_purge(&request.head.method) {
            self.without_signature(&mut request);
            return self.inner.handle(request);
        }
        match self.admit(&mut request) {
            Ok(()) => self.slowed(self.inner.handle(request), client),
            Err(fault) => Answer::Ready(Err(fault)),
        }
    }
}

fn is_purge(method: &Method) -> bool {
    matches!(method, Method::Other(token) if &**token == "PURGE")
}

#[cfg(test)]
mod tests;
