//! The checks of a gate, in their order. Handlers and previews make the same checks.

use super::bucket::{BucketRate, SECOND};
use super::shared::Shared;
use super::table::Table;
use super::{methods, signed};
use crate::handler::{Answer, Fault, HeadParts, Peer, Request};
use crate::http::Method;
use crate::reason::Reason;
use crate::sys::Clock;

/// One check of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The client's address.
    Address,
    /// The client's TLS certificate.
    Certificate,
    /// The client's rate of requests.
    Rate,
    /// The method.
    Method,
    /// The signature of the URL.
    Signature,
}

/// All checks, in the order in which they are made.
pub const CHECKS: [Check; 5] = [
    Check::Address,
    Check::Certificate,
    Check::Rate,
    Check::Method,
    Check::Signature,
];

impl Check {
    /// Returns the name of the check, as previews report it.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Address => "address",
            Check::Certificate => "certificate",
            Check::Rate => "requests",
            Check::Method => "method",
            Check::Signature => "signature",
        }
    }
}

/// The refusal of a request by a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The request fails with this fault.
    Fault(Fault),
    /// The route does not take the method.
    Method,
}

impl Refused {
    fn of(reason: Reason) -> Refused {
        Refused::Fault(reason.into())
    }

    /// Returns the reason of the refusal.
    pub(super) fn reason(self) -> Reason {
        match self {
            Refused::Fault(fault) => fault.reason,
            Refused::Method => Reason::MethodNotAllowed,
        }
    }

    /// Returns the answer to the refused request.
    pub(super) fn answer(self, shared: &Shared) -> Answer {
        Answer::Ready(match self {
            Refused::Fault(fault) => Err(fault),
            Refused::Method => Ok(methods::not_allowed(shared.allow_methods())),
        })
    }
}

impl Shared {
    /// Whether the options configure this check.
    pub fn makes(&self, check: Check) -> bool {
        let options = self.options();
        match check {
            Check::Address => options.allow.is_some() || !options.deny.is_empty(),
            Check::Certificate => options.client_certificate,
            Check::Rate => self.requests().is_some(),
            Check::Method => options.allow_methods.is_some(),
            Check::Signature => options.signed_urls.is_some(),
        }
    }

    /// Makes one check of a request. The check of the signature removes the signature from the target, because all
    /// clients with a valid signature share one stored response. `charge` takes a request from the client's bucket, or
    /// only looks at it. Its error is the time in nanoseconds until the bucket has enough.
    #[inline]
    pub(super) fn check(
        &self,
        check: Check,
        request: &mut Request,
        clock: &Clock,
        charge: impl FnOnce(&Table, BucketRate) -> Result<(), u64>,
    ) -> Result<(), Refused> {
        let peer = &request.peer;
        match check {
            Check::Address if !self.admits(peer.client) => Err(Refused::of(Reason::AddressDenied)),
            Check::Certificate if !self.is_certified(peer) => {
                Err(Refused::of(Reason::CertificateRequired))
            }
            Check::Rate => match self.requests() {
                None => Ok(()),
                Some((table, rate)) => charge(table, rate).map_err(too_many),
            },
            Check::Method => match self.allow_methods() {
                Some(allowed) if !allowed.contains(&request.head.method) => Err(Refused::Method),
                _ => Ok(()),
            },
            Check::Signature => {
                let client = request.peer.client;
                self.check_signature(&mut request.head, client, clock)
            }
            Check::Address | Check::Certificate => Ok(()),
        }
    }

    /// Whether the client has a certificate, if the route needs one. The TLS handshake has verified the certificate, by
    /// the authorities of the request's host: otherwise the request would have been misdirected (421).
    #[inline]
    fn is_certified(&self, peer: &Peer) -> bool {
        !self.options().client_certificate || peer.tls.is_some_and(|session| session.certified())
    }

    fn check_signature(
        &self,
        head: &mut HeadParts,
        client: std::net::IpAddr,
        clock: &Clock,
    ) -> Result<(), Refused> {
        let Some((options, keys)) = self.signed() else {
            return Ok(());
        };
        let now_s = clock.unix_ms() / 1000;
        // A signature does not cover the method, so it grants reading only.
        let checked = match head.method {
            Method::Get | Method::Head => signed::check(&head.target, client, now_s, options, keys),
            _ => Err(Reason::SignatureWrong),
        };
        head.target = checked.map_err(Refused::of)?;
        Ok(())
    }

    /// Whether a request skips all checks: a PURGE from a network that may send it. Its signature is removed from the
    /// URL, if it has one, because the cache stores URLs without signatures.
    #[inline]
    pub(super) fn skips(&self, request: &mut Request) -> bool {
        if !(self.may_purge(request.peer.client) && request.head.method.is_purge()) {
            return false;
        }
        if let Some((options, _)) = self.signed() {
            let target = &mut request.head.target;
            if let Ok(claim) = signed::take_apart(target, &options.names, options.prefix) {
                *target = claim.target;
            }
        }
        true
    }
}

/// Returns the refusal of a request whose client has to wait for this many nanoseconds.
fn too_many(wait_ns: u64) -> Refused {
    Refused::Fault(Fault {
        retry_after_s: u32::try_from(wait_ns.div_ceil(SECOND)).unwrap_or(u32::MAX),
        ..Reason::TooManyRequests.into()
    })
}
