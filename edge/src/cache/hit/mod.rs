//! Hits: responses from a stored object whose wanted bytes are all in memory.

pub(in crate::cache) mod coded;
pub(in crate::cache) mod respond;

use std::rc::Rc;
use std::sync::Arc;

use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::want::{self, OfObject};
use crate::cache::lookup::Found;
use crate::cache::miss::demand::Demand;
use crate::cache::miss::ride::Ride;
use crate::fill::{self, ReadAhead};
use crate::handler::{Body, Choice, Request, Response};
use crate::http::Method;
use crate::http::wanted::Wanted;
use crate::store::{Object, TableKey};

/// Makes the response from a stored object whose wanted bytes are all in memory, `None` if some are
/// not.
#[inline]
pub(in crate::cache) fn hit(
    context: &Rc<Context>,
    request: &mut Request,
    admitted: &Admitted,
    found: &Found,
    now_ms: u64,
) -> Option<Response> {
    let Found {
        object,
        head,
        place,
        how,
    } = found;
    let mut answering = respond::answering(context, head, how.status(head, now_ms), now_ms);
    match coded::choose(context, &request.head, admitted, (object, head), *place) {
        Choice::Identity => {}
        Choice::Varying(fields) => answering.varying = Some(fields),
        Choice::Coded(encoded) => {
            return Some(respond::coded(&answering, &request.head, &encoded));
        }
    }
    if request.head.method == Method::Get
        && !admitted.less
        && let Some(response) = respond::small(&answering, object)
    {
        return Some(response);
    }
    let length = object.content_length(head);
    let wanted = answering.judged(want::judge(&request.head, head, length), &request.head);
    if let Some(response) = respond::bare(&answering, object, &wanted) {
        return Some(response);
    }
    if let Some(response) = respond::piece(&answering, object, &wanted) {
        note_piece(context, request, object, *place, &wanted);
        return Some(response);
    }
    if !wanted.is_at_hand(object) {
        return None;
    }
    let ride = match object.is_sparse() {
        false => {
            let length = object.content_length(head);
            settle(context, request, wanted.bytes(length));
            Ride::complete(object)
        }
        true => {
            // Blocks of this object may be evicted one by one, also while they are read.
            let first = wanted.first().unwrap_or(0..fill::OPEN);
            let request = Request {
                head: std::mem::take(&mut request.head),
                body: Body::Empty,
                peer: request.peer,
                interim: None,
            };
            let demand = Demand::new(context, request, first.clone(), *place, None);
            let mut ride = Ride::filling(object, first, demand);
            ride.begin();
            if context.options.fill.read_ahead != ReadAhead::None {
                ride.fetch_ahead();
            }
            ride
        }
    };
    Some(respond::content(&answering, ride, wanted))
}

/// Credits the client's budget with a part of a block, which may have been fetched for this client,
/// and marks the block as used.
fn note_piece(
    context: &Context,
    request: &Request,
    object: &Arc<Object>,
    place: TableKey,
    wanted: &Wanted,
) {
    let Some(range) = wanted.first() else {
        return;
    };
    settle(context, request, range.end - range.start);
    if object.is_sparse() {
        context.store.touch_block(place, object, range.start);
    }
}

/// Credits the client's budget with stored bytes that are sent to it.
fn settle(context: &Context, request: &Request, bytes: u64) {
    let client = request.peer.client;
    context.clients.budgets.settle(client, bytes);
}
