//! The fill policy `lock`: like `whole`, but a request waits for another request's fetch only for a
//! limited time.

use std::time::Duration;

use super::common::{Filling, View, wait};
use super::policy::{Flight, Options, Plan};
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

impl Filling for Lock {
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
        if situation.begun || view.next != Some(view.want.start) {
            return Plan::Wait(None);
        }
        if flight.idle >= self.age {
            return Plan::Replace(Reason::LockAge);
        }
        let until_old = self.age - flight.idle;
        if situation.leads {
            return wait(until_old);
        }
        match self.timeout.checked_sub(situation.waited) {
            None | Some(Duration::ZERO) => Plan::Forward(Reason::LockTimeout),
            Some(rest) => wait(rest.min(until_old)),
        }
    }
}
