//! The fill policy `lock`: like `whole`, but a request waits for another request's fetch only for a
//! limited time.

use std::time::Duration;

use super::common::{FillRules, View, wait};
use super::policy::{Flight, Joinable, Options, Plan};
use super::whole::Whole;
use crate::reason::Reason;

pub(super) struct Lock {
    whole: Whole,
    timeout: Duration,
    age: Duration,
}

impl Lock {
    pub(super) fn new(options: &Options) -> Lock {
        Lock {
            whole: Whole::new(options),
            timeout: options.lock_timeout,
            age: options.lock_age,
        }
    }
}

impl FillRules for Lock {
    fn block(&self) -> u64 {
        self.whole.block()
    }

    fn first(&self, view: &View<'_>) -> Plan {
        self.whole.first(view)
    }

    fn more(&self, view: &View<'_>) -> Plan {
        match view.next.and_then(|next| view.flight_over(next)) {
            Some(flight) => self.ride(view, flight),
            None => self.whole.more(view),
        }
    }

    fn ride(&self, view: &View<'_>, flight: &Flight) -> Plan {
        let situation = view.situation;
        let is_old = flight.idle >= self.age;
        let until_old = self.age.saturating_sub(flight.idle);
        let is_next = view.next == Some(view.want.start);
        if situation.begun {
            // Only if bytes of several responses may be combined can another flight add the rest.
            return match situation.joinable {
                // If the flight ends, another request may launch the next one. The policy is then
                // consulted about that one.
                Joinable::Yes if is_old && situation.leads => wait(self.age),
                Joinable::Yes if is_old && is_next => Plan::Restart(Reason::LockAge),
                Joinable::Yes => wait(until_old),
                _ => Plan::Wait(None),
            };
        }
        if is_old {
            return Plan::Replace(Reason::LockAge);
        }
        if !is_next {
            return Plan::Wait(None);
        }
        if situation.leads {
            return wait(until_old);
        }
        match self.timeout.checked_sub(situation.waited) {
            None | Some(Duration::ZERO) => Plan::Forward(Reason::LockTimeout),
            Some(rest) => wait(rest.min(until_old)),
        }
    }
}
