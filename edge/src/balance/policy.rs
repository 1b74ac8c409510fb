//! The interface of a balancer.

/// Returns the current time in microseconds of a monotonic clock. A function, since few balancers
/// need it.
pub type Now<'a> = &'a dyn Fn() -> u64;

/// The facts about a request on which the choice of its server may depend.
#[derive(Clone, Copy)]
pub struct ChoiceContext<'a> {
    /// Computes the hash of the requested URL. A function, since few balancers need it.
    pub key: &'a dyn Fn() -> u64,
    /// Returns the current time.
    pub now: Now<'a>,
    /// Returns a random number.
    pub random: &'a dyn Fn() -> u64,
    /// Whether a server must not be chosen: it failed this request, is full, or another one is
    /// preferred.
    pub excluded: &'a dyn Fn(usize) -> bool,
}

impl ChoiceContext<'_> {
    /// Whether this server may be chosen.
    pub fn allows(&self, server: usize) -> bool {
        !(self.excluded)(server)
    }

    /// Returns the same facts with other servers excluded.
    pub fn excluding<'b>(&'b self, excluded: &'b dyn Fn(usize) -> bool) -> ChoiceContext<'b> {
        ChoiceContext {
            key: self.key,
            now: self.now,
            random: self.random,
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
        /// Microseconds from sending the request to the end of the response, or `None` if the end
        /// was not received.
        total_us: Option<u64>,
    },
    /// No connection to the server could be opened.
    ConnectFailed,
    /// The server did not respond, or continue its response, in time.
    TimedOut,
    /// The connection broke, or the response is not valid HTTP.
    Broken,
    /// The client left, or the exchange was abandoned for another reason for which the server is
    /// not responsible.
    Cancelled,
}

/// Chooses among the servers of an upstream, which are known by their index and weight. A server of
/// weight 0 is absent: it is never chosen, but its exchanges in progress still end.
///
/// A balancer does no I/O and reads no clock. Each worker has its own balancer, so nothing is
/// shared.
pub trait Balancer {
    /// Replaces the weights of the servers. There may be more of them than before, never fewer.
    fn set_weights(&mut self, weights: &[u32]);

    /// Replaces the ids of the servers: numbers that stay the same, also after a restart, for which
    /// the indices of servers may differ. Called before `set_weights`, with as many entries.
    fn set_ids(&mut self, _ids: &[u64]) {}

    /// Returns the server for a request: one that `context` allows and that is not absent, or `None` if
    /// there is none.
    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize>;

    /// Notes that an exchange with this server has begun. Called after `choose`, and also without
    /// it for a request that waited in the queue until this server had room.
    fn begin(&mut self, server: usize);

    /// Notes that an exchange with this server has ended. Called once for each `begin`.
    fn end(&mut self, server: usize, outcome: Outcome, now: Now<'_>);
}
