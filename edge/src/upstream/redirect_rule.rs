//! The redirects that a route follows.

use std::rc::Rc;

use super::worker::UpstreamWorker;

/// The redirects that a route follows, of which those to its own upstream are always part.
pub struct Redirects {
    /// Most redirects that are followed for one request.
    pub(super) times: u8,
    /// The upstreams of other hosts to which redirects may lead.
    pub(super) to: Vec<Rc<UpstreamWorker>>,
}
