//! The head of a request. Each worker reuses the memory of earlier heads.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use crate::http::key::without_default_port;
use crate::http::{Fields, Method, RequestId, Scheme, TraceContext, Version};
use crate::tls::ClientCertificate;

/// The head of a request in the canonical form that route, key and origin use.
///
/// A request is moved from handler to handler, so its head is a pointer to the parts. The parts come from a small
/// pool of the worker and return to it.
#[derive(Debug)]
pub struct Head(ManuallyDrop<Box<HeadParts>>);

/// The fields of a head, in memory that is reused.
#[derive(Clone, Debug)]
pub struct HeadParts {
    /// The request method.
    pub method: Method,
    /// Absolute path and query in origin-form (RFC 9112 3.2.1), with dot segments removed; at least `/` (or `*` for
    /// OPTIONS). Visible ASCII without `#` and backslash.
    pub target: String,
    /// The target as the client sent it, if different from `target`.
    pub received_target: Option<Box<str>>,
    /// Host in lower case (RFC 9110 7.2), and the port if it is not the scheme's default. Empty for HTTP/1.0 without
    /// Host.
    pub authority: String,
    /// The protocol version of the request.
    pub version: Version,
    /// The header lines as received, including Host and framing headers.
    pub fields: Fields,
    /// Whether the client asks for a tunnel, such as by Upgrade in HTTP/1.1 (RFC 9110 7.8).
    pub wants_tunnel: bool,
    /// The certificate of the client's TLS session, if the client has one.
    pub certificate: Option<Rc<ClientCertificate>>,
    /// The request's id, if requests have ids. A fetch that several clients share has none before it is sent.
    pub id: Option<RequestId>,
    /// The request's trace, if requests have traces. A shared fetch has that of the request that launched it.
    pub trace: Option<Rc<TraceContext>>,
}

thread_local! {
    /// The emptied parts of dropped heads, for reuse.
    #[allow(
        clippy::vec_box,
        reason = "parts stay in their box, so that a head from the pool needs no allocation"
    )]
    static POOL: RefCell<Vec<Box<HeadParts>>> = const { RefCell::new(Vec::new()) };
}

/// Most heads that each worker keeps for reuse, and the size in bytes of the largest head that is kept.
const POOLED_MAX: usize = 64;
const POOLED_BYTES_MAX: usize = 8 << 10;

impl Head {
    /// Returns an empty head of a GET request.
    #[inline]
    pub fn new() -> Head {
        let pooled = POOL.try_with(|pool| pool.borrow_mut().pop()).ok().flatten();
        Head(ManuallyDrop::new(pooled.unwrap_or_default()))
    }
}

impl HeadParts {
    /// Returns the target as the client sent it.
    pub fn target_as_received(&self) -> &str {
        self.received_target.as_deref().unwrap_or(&self.target)
    }

    /// Returns the path: the target up to the first `?`.
    pub fn path(&self) -> &str {
        self.target
            .split_once('?')
            .map_or(&self.target, |(path, _)| path)
    }

    /// Returns the query: the target after the first `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// Removes the scheme's default port from the authority, so that origins, keys and logs see one
    /// spelling of it (RFC 9110 4.2.3, RFC 3986 6.2.3).
    #[inline]
    pub fn normalize_authority(&mut self, scheme: Scheme) {
        let length = without_default_port(scheme, &self.authority).len();
        self.authority.truncate(length);
    }

    /// Resets this to the empty head of a GET request, and keeps the memory.
    #[inline]
    fn clear(&mut self) {
        self.method = Method::Get;
        self.target.clear();
        self.received_target = None;
        self.authority.clear();
        self.version = Version::Http11;
        self.fields.clear();
        self.wants_tunnel = false;
        self.certificate = None;
        self.id = None;
        self.trace = None;
    }
}

impl Default for HeadParts {
    fn default() -> HeadParts {
        HeadParts {
            method: Method::Get,
            target: String::new(),
            received_target: None,
            authority: String::new(),
            version: Version::Http11,
            fields: Fields::new(),
            wants_tunnel: false,
            certificate: None,
            id: None,
            trace: None,
        }
    }
}

impl Deref for Head {
    type Target = HeadParts;

    #[inline]
    fn deref(&self) -> &HeadParts {
        &self.0
    }
}

impl DerefMut for Head {
    #[inline]
    fn deref_mut(&mut self) -> &mut HeadParts {
        &mut self.0
    }
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

impl Clone for Head {
    fn clone(&self) -> Head {
        Head(ManuallyDrop::new(Box::new(HeadParts::clone(self))))
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        // SAFETY: the head is being dropped, so nothing uses its parts after this.
        let mut parts = unsafe { ManuallyDrop::take(&mut self.0) };
        if parts.fields.memory() + parts.target.capacity() > POOLED_BYTES_MAX {
            return;
        }
        parts.clear();
        // While a thread ends, the thread-local pool may already have been destroyed. Then the parts are freed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_MAX {
                pool.push(parts);
            }
        });
    }
}
