//! Launching a flight: the room for what it brings, and what it asks the origin.

use std::ops::Range;

use super::client_budget::BudgetCharge;
use super::decide;
use super::demand::Demand;
use super::flight::Flight;
use crate::fill::OPEN;
use crate::handler::{Body, Head, Request};
use crate::store::Landing;

/// Launches the flight that brings what `landing` claimed, on behalf of a request: of that only
/// what the key holds and what the allow-list names is sent.
pub(super) fn launch(demand: &Demand, mut landing: Landing) {
    let cache = demand.cache.clone();
    let (names, history) = cache.0.store.enter(landing.table_key().primary, |locked| {
        (locked.vary().cloned(), locked.history())
    });
    let names = names.as_deref().unwrap_or_default();
    if !landing.make_room() {
        return landing.give_back();
    }
    let range = landing.range();
    let plain = range == (0..OPEN) || history.avoids_ranges(cache.0.clock.unix_ms());
    let ahead = match range.end {
        OPEN => cache.0.options.fill.block,
        end => end - range.start,
    };
    let asked = (!plain).then_some(range);
    let request = &demand.request;
    let mut head = Head::new();
    cache.shared_target(&request.head, &mut head.target);
    head.authority.push_str(&request.head.authority);
    decide::flight_fields(
        &request.head.fields,
        names,
        demand.codings,
        &cache.0.rules,
        &mut head.fields,
    );
    let sent = head.fields.clone();
    if let Some(stored) = landing.object().revalidated() {
        decide::validation::ask(&stored.head, &mut head.fields);
    }
    if let Some(range) = &asked {
        head.fields.append("range", range_value(range));
    }
    let flight = Flight {
        charge: BudgetCharge::new(demand.budget.clone(), ahead),
        cache,
        landing,
        asked,
        sent,
        leader_result: demand.leader_result.clone(),
        skips: 0,
        brought: 0,
        known: history,
    };
    let request = Request {
        head,
        body: Body::Empty,
        // Of the launching client only its address is told, as for a request of its own.
        peer: request.peer,
        interim: None,
    };
    tokio::task::spawn_local(flight.fly(request));
}

/// `bytes=first-last`, or to the end (RFC 9110 14.1.2).
fn range_value(range: &Range<u64>) -> String {
    match range.end {
        OPEN => format!("bytes={}-", range.start),
        end => format!("bytes={}-{}", range.start, end - 1),
    }
}
