//! The interface of a balancer.

/// The facts about a request on which the choice of its server may depend.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Computes the hash of the requested URL. A function, since few balancers need it.
    pub key: &'a dyn Fn() -> u64,
    /// Number of servers that were tried for this request before.
    pub attempt: usize,
    /// Whether a server must not be chosen: it failed this request, is full, or another one is
    /// preferred.
    pub excluded: &'a dyn Fn(usize) -> bool,
}

impl Ask<'_> {
    /// Whether this server may be chosen.
    pub fn allows(&self, server: usize) -> bool {
        !(self.excluded)(server)
    }

    /// Returns the same facts with other servers excluded.
    pub fn excluding<'b>(&'b self, excluded: &'b dyn Fn(usize) -> bool) -> Ask<'b> {
        Ask {
            key: self.key,
            attempt: self.attempt,
            excluded,
        }
    }
}

/// Result of an exchange with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server sent a response head.
    Answered {
        /// Status of the response.
        status: u16,
        /// Microseconds from sending the request to the complete head.
        head_us: u64,
    },
    /// No connection to the server could be opened.
    ConnectFailed,
    /// The server did not accept the connection, respond, or continue its response in time.
    TimedOut,
    /// The connection broke, or the response is not valid HTTP.
    Broken,
    /// The client left, or the exchange was abandoned for another reason for which the server is
    /// not responsible.
    Cancelled,
}

/// Chooses among the servers of an upstream, which are known by their index and weight.
///
/// A balancer does no I/O and reads no clock. Each worker has its own balancer, so nothing is
/// shared.
pub trait Balancer {
    /// Returns the server for a request, one that `ask` allows, or `None` if it allows none.
    fn choose(&mut self, ask: &Ask<'_>) -> Option<usize>;

    /// Notes that an exchange with this server has begun. Called after `choose`, and also without
    /// it for a request that waited in the queue until this server had room.
    fn begin(&mut self, server: usize);

    /// Notes that an exchange with this server has ended. Called once for each `begin`.
    fn end(&mut self, server: usize, outcome: Outcome);
}
