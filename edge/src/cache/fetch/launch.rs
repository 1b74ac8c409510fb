//! Launches flights: makes room for the bytes of one and sends its request to the origin.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::flight::Flight;
use super::leader_result::LeaderResult;
use crate::cache::client_budget::{BudgetCharge, ClientBudget};
use crate::cache::context::Context;
use crate::cache::lookup::{Known, keys};
use crate::cache::{decide, resource_history};
use crate::fill::OPEN;
use crate::handler::{Body, Head, Request};
use crate::http::vary::Codings;
use crate::store::{Landing, TableKey};

/// The request on whose behalf flights are launched.
pub(in crate::cache) struct Leader {
    pub(in crate::cache) context: Rc<Context>,
    pub(in crate::cache) request: Request,
    pub(in crate::cache) place: TableKey,
    pub(in crate::cache) codings: Option<Codings>,
    pub(in crate::cache) budget: Arc<ClientBudget>,
    pub(in crate::cache) result: LeaderResult,
}

/// Launches the flight for the bytes that `landing` claimed. Only what the key and the allow-list
/// contain is taken over from the leader's request.
pub(in crate::cache) fn launch(leader: &Leader, mut landing: Landing, known: &Known) {
    let context = &leader.context;
    let names = known.vary.as_deref().unwrap_or_default();
    if !landing.make_room() {
        return landing.give_back();
    }
    let range = landing.planned();
    let plain = range == (0..OPEN)
        || resource_history::avoids_ranges(&known.history, context.worker.clock.unix_ms());
    let ahead = match range.end {
        OPEN => context.options.fill.block,
        end => end - range.start,
    };
    let asked = (!plain).then_some(range);
    let request = &leader.request;
    let mut head = Head::new();
    keys::shared_target(context, &request.head, &mut head.target);
    head.authority.push_str(&request.head.authority);
    decide::flight_fields(
        &request.head.fields,
        names,
        leader.codings,
        &context.rules,
        &mut head.fields,
    );
    let may_take = decide::may_take(&request.head.fields, &context.rules);
    let sent = head.fields.clone();
    let stored = landing.object().revalidated();
    if let Some(stored) = &stored {
        decide::validation::ask(&stored.head, &mut head.fields);
    }
    if let Some(range) = &asked {
        head.fields.append("range", range_value(range));
    }
    let flight = Flight {
        charge: BudgetCharge::new(leader.budget.clone(), ahead),
        context: context.clone(),
        landing,
        asked,
        sent,
        validates: stored.is_some(),
        leader_result: leader.result.of_flight(may_take),
        skips: 0,
        brought: 0,
        known: known.history,
    };
    let request = Request {
        head,
        body: Body::Empty,
        // The upstream learns the address of the leader's client, as for a forwarded request.
        peer: request.peer,
        interim: None,
    };
    tokio::task::spawn_local(flight.fly(request));
}

/// The value of a Range header: `bytes=first-last`, or `bytes=first-` for the rest (RFC 9110
/// 14.1.2).
fn range_value(range: &Range<u64>) -> String {
    match range.end {
        OPEN => format!("bytes={}-", range.start),
        end => format!("bytes={}-{}", range.start, end - 1),
    }
}
