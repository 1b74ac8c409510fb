//! Revalidation in the background, while a stale response is served (RFC 5861).

use std::rc::Rc;

use super::demand::{Demand, FLIGHTS_MAX};
use super::ride::Ride;
use crate::cache::context::Context;
use crate::cache::lookup::Found;
use crate::fill::OPEN;
use crate::handler::{Body, Request};
use crate::http::Method;

/// Revalidates a stale response in the background while it is served, unless another fetch already
/// does.
pub(in crate::cache) fn revalidate_in_background(
    context: &Rc<Context>,
    request: &Request,
    found: &Found,
) {
    let store = &context.store;
    if context.worker.counters.flights_now.get() >= FLIGHTS_MAX {
        return; // while it is stale, another request will see to it
    }
    let Some(spare) = store.create(&found.object.key) else {
        return;
    };
    let begun = store.enter(found.table_key.primary, |locked| {
        let object = &found.object;
        let first =
            locked.holds(found.table_key.variant, object) && object.revalidation().is_none();
        if first {
            object.revalidate_with(found.head.clone(), &spare);
        }
        first
    });
    if !begun {
        return;
    }
    // The content codings to request follow from the client's request with its Range: a response
    // that is fetched in parts has no content coding, so its revalidation must request none.
    let history = store.enter(found.table_key.primary, |locked| locked.history());
    let codings = context.codings(request, &history, context.worker.clock.unix_ms());
    let mut head = request.head.clone();
    head.method = Method::Get;
    head.fields
        .retain(|name, _| !matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]));
    head.fields.remove("range");
    let request = Request {
        head,
        body: Body::Empty,
        peer: request.peer,
        interim: None,
    };
    let mut demand = Demand::new(context, request, 0..OPEN, found.table_key, None);
    demand.leader.codings = codings;
    tokio::task::spawn_local(async move {
        Ride::to_head(&spare, 0..OPEN, demand).await;
    });
}
