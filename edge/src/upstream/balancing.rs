//! One worker's balancer of an upstream, which learns of every exchange that begins and ends, and
//! the ejection of servers whose exchanges fail.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::eject::Eject;
use super::options::Options;
use super::state::{ServerState, UpstreamState};
use crate::balance::{self, Balancer, ChoiceContext, Outcome, Outliers};
use crate::sys::{Clock, Random};

/// One worker's balancer of an upstream.
pub(super) struct Balancing {
    balancer: RefCell<Box<dyn Balancer>>,
    clock: Clock,
    random: Random,
    ejecting: Option<Ejecting>,
    /// The ejected server that the next exchange tests.
    trial: Cell<Option<usize>>,
}

/// The end of an exchange with a server.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// Time of the end, if it is known.
    pub(super) at_us: Option<u64>,
    /// Whether the exchange tested a server that was ejected.
    pub(super) is_trial: bool,
}

/// Counts of failures, by which this worker ejects servers.
struct Ejecting {
    options: Eject,
    outliers: RefCell<Outliers>,
    state: Arc<UpstreamState>,
}

impl Balancing {
    /// Creates a balancer without servers.
    pub(super) fn new(options: &Options, clock: Clock, state: &Arc<UpstreamState>) -> Balancing {
        let ejecting = options.eject.as_ref().map(|eject| Ejecting {
            options: eject.clone(),
            outliers: RefCell::new(Outliers::new(eject.outliers.clone())),
            state: state.clone(),
        });
        Balancing {
            balancer: RefCell::new(balance::build(&options.balance, &[])),
            clock,
            random: Random::system(),
            ejecting,
            trial: Cell::new(None),
        }
    }

    /// Replaces the servers: the id and the weight of each.
    pub(super) fn set_servers(&self, ids: &[u64], weights: &[u32]) {
        let mut balancer = self.balancer.borrow_mut();
        balancer.set_ids(ids);
        balancer.set_weights(weights);
        if let Some(ejecting) = &self.ejecting {
            ejecting.outliers.borrow_mut().set_ids(ids);
        }
    }

    /// Replaces the weights of the servers.
    pub(super) fn set_weights(&self, weights: &[u32]) {
        self.balancer.borrow_mut().set_weights(weights);
    }

    /// Chooses one of the servers that are not excluded.
    pub(super) fn choose(
        &self,
        key: &dyn Fn() -> u64,
        excluded: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let context = ChoiceContext {
            key,
            now: &|| self.clock.monotonic_us(),
            random: &|| self.random.next_u64(),
            excluded,
        };
        self.balancer.borrow_mut().choose(&context)
    }

    /// Makes the next exchange with this server, which was ejected, its trial.
    pub(super) fn set_trial(&self, server: usize) {
        self.trial.set(Some(server));
    }

    /// Notes that an exchange with this server has begun. Returns whether the exchange is a trial.
    pub(super) fn begin(&self, server: usize) -> bool {
        self.balancer.borrow_mut().begin(server);
        self.trial.take() == Some(server)
    }

    /// Notes that an exchange with this server has ended.
    pub(super) fn end(&self, server: usize, state: &Arc<ServerState>, ended: Ended) {
        let (outcome, is_trial) = (ended.outcome, ended.is_trial);
        let now = || ended.at_us.unwrap_or_else(|| self.clock.monotonic_us());
        self.balancer.borrow_mut().end(server, outcome, &now);
        let Some(ejecting) = &self.ejecting else {
            if is_trial {
                state.return_to_use();
            }
            return;
        };
        let now_us = now();
        if is_trial {
            state.end_trial(outcome, &ejecting.options, now_us);
        }
        let cause = ejecting.outliers.borrow_mut().note(server, outcome, now_us);
        if let Some(cause) = cause {
            ejecting
                .state
                .eject(state, cause, &ejecting.options, now_us);
        }
    }

    #[cfg(test)]
    pub(super) fn replace(&self, balancer: Box<dyn Balancer>) {
        *self.balancer.borrow_mut() = balancer;
    }
}
