//! Passive ejection: servers whose exchanges fail get no requests for a while.

use std::sync::Arc;

use super::condition::Tested;
use super::eject::Eject;
use super::state::{ServerState, UpstreamState};
use crate::balance::{Cause, Failure, Outcome};

impl UpstreamState {
    /// Ejects a server, unless too many are ejected already.
    pub(super) fn eject(
        &self,
        server: &Arc<ServerState>,
        cause: Cause,
        options: &Eject,
        now_us: u64,
    ) {
        // The lock makes sure that two workers do not eject the last servers at the same time.
        let slots = self.slots();
        let present = slots.iter().filter(|slot| slot.effective_weight() > 0);
        let (mut count, mut ejected) = (0, 0);
        for slot in present {
            count += 1;
            ejected += usize::from(slot.condition().is_ejected());
        }
        let most = (count as f64 * options.at_most) as usize;
        if ejected >= most {
            return;
        }
        let condition = server.condition();
        let time = condition.eject(options.time, cause.to_string(), now_us);
        drop(slots);
        if let Some(time) = time {
            server.note_change();
            let (upstream, address, for_s) =
                (server.upstream(), server.address(), time.as_secs_f64());
            tracing::warn!(target: "sluice::event::server::ejected", %upstream, server = %address, %cause, for_s, "a server is ejected");
        }
    }
}

impl ServerState {
    /// Ends the ejection of a server. An exchange that began before a reload may have caused it,
    /// although the configuration now permits none.
    pub(super) fn return_to_use(&self) {
        self.condition().forget(false, true);
        self.note_change();
    }

    /// Ends the trial of an ejected server.
    pub(super) fn end_trial(&self, outcome: Outcome, options: &Eject, now_us: u64) {
        let tested = self.condition().end_trial(outcome, options.time, now_us);
        self.note_change();
        let (upstream, address) = (self.upstream(), self.address());
        match tested {
            Some(Tested::Back) => {
                tracing::info!(target: "sluice::event::server::returned", %upstream, server = %address, "an ejected server works again");
            }
            Some(Tested::Ejected(time)) => {
                let (cause, for_s) = (Failure(outcome), time.as_secs_f64());
                tracing::warn!(target: "sluice::event::server::ejected-again", %upstream, server = %address, %cause, for_s, "an ejected server failed again");
            }
            None => {}
        }
    }
}
