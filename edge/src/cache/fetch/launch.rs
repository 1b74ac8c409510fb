//! Launches flights: makes room for a flight's bytes and sends its request to the origin.

use std::rc::Rc;
use std::sync::Arc;

use super::flight::Flight;
use super::leader_result::LeaderResult;
use crate::cache::client_budget::{BudgetCharge, ClientBudget};
use crate::cache::context::Context;
use crate::cache::decide::shared_request::{Launcher, shared_request};
use crate::cache::lookup::Known;
use crate::cache::resource_history;
use crate::fill::OPEN;
use crate::handler::{Body, Peer, Request};
use crate::http::vary::Codings;
use crate::store::{Landing, Phase, TableKey};

/// The request on whose behalf flights are launched.
pub(in crate::cache) struct Leader {
    pub(in crate::cache) context: Rc<Context>,
    pub(in crate::cache) request: Request,
    pub(in crate::cache) table_key: TableKey,
    pub(in crate::cache) codings: Option<Codings>,
    pub(in crate::cache) budget: Arc<ClientBudget>,
    pub(in crate::cache) result: LeaderResult,
}

/// Launches the flight for the bytes that `landing` claimed. Only what the key and the allow-list
/// contain is taken over from the leader's request.
pub(in crate::cache) fn launch(leader: &Leader, mut landing: Landing, known: &Known) {
    let context = &leader.context;
    let Some(range) = landing.make_room() else {
        return landing.give_back();
    };
    let now_ms = context.worker.clock.unix_ms();
    let plain = range == (0..OPEN) || resource_history::avoids_ranges(&known.history, now_ms);
    let ahead = match range.end {
        OPEN => context.options.fill.block,
        end => end - range.start,
    };
    let asked = (!plain).then_some(range);
    let stored = landing.object().revalidated();
    let is_chosen = stored.is_some() || matches!(landing.object().phase(), Phase::Open(_));
    let needed = stored.is_some() && resource_history::needs_headers(&known.history, now_ms);
    // A validation carries nothing of a client, unless the origin has refused such a validation.
    let neutral = match stored.is_some() {
        true => !needed,
        false => resource_history::distrusts_clients(&known.history, now_ms),
    };
    let launcher = Launcher {
        request: &leader.request.head,
        names: known.vary.as_deref().unwrap_or_default(),
        codings: leader.codings,
        rules: &context.rules,
        neutral,
        needed,
        chooses: !is_chosen && !neutral && !known.history.distrusts_choices,
    };
    let stored_head = stored.as_ref().map(|stored| &*stored.head);
    let shared = shared_request(&launcher, stored_head, asked.as_ref());
    let peer = Peer {
        shared: launcher.neutral || !context.rules.forwards_address(),
        ..leader.request.peer
    };
    let flight = Flight {
        charge: BudgetCharge::new(leader.budget.clone(), ahead),
        context: context.clone(),
        landing,
        asked,
        sent: shared.sent,
        validates: stored.is_some(),
        leader_share: shared.leader_share,
        leader_result: leader.result.clone(),
        skips: 0,
        known: known.clone(),
        changes: None,
    };
    let request = Request {
        head: shared.head,
        body: Body::Empty,
        peer,
        interim: None,
    };
    tokio::task::spawn_local(flight.run(request));
}
