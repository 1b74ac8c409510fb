//! Hits: responses from a stored object whose wanted bytes are all in memory.

pub(in crate::cache) mod coded;
pub(in crate::cache) mod respond;

use std::rc::Rc;
use std::sync::Arc;

use self::respond::ResponseInput;
use crate::cache::context::Context;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::want::{self, WantedOf};
use crate::cache::lookup::Found;
use crate::cache::miss::demand::Demand;
use crate::cache::miss::ride::Ride;
use crate::cache::references;
use crate::fill::{self, ReadAhead};
use crate::handler::{Body, Choice, Head as RequestHead, Receipt, Request, Response};
use crate::http::wanted::Wanted;
use crate::http::{CacheStatus, Method};
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
        table_key,
        freshness,
    } = found;
    let mut answering = respond::answering(context, head, freshness.status(head, now_ms), now_ms);
    match coded::choose(context, &request.head, admitted, (object, head), *table_key) {
        Choice::Identity => {}
        Choice::Varying(fields) => answering.varying = Some(fields),
        Choice::Coded(encoded) => {
            references::hit(context, found, None, now_ms);
            return Some(respond::coded(&answering, &request.head, &encoded));
        }
    }
    if request.head.method == Method::Get
        && !admitted.less
        && let Some(response) = respond::small(&answering, object)
    {
        references::hit(context, found, None, now_ms);
        return Some(response);
    }
    let length = object.content_length(head);
    let wanted = answering.judged(want::judge(&request.head, head, length), &request.head);
    let first = wanted.first();
    let response = from_memory(context, request, found, &answering, wanted)?;
    references::hit(context, found, first, now_ms);
    Some(response)
}

/// Makes the response with the wanted bytes, `None` if some of them are not in memory.
fn from_memory(
    context: &Rc<Context>,
    request: &mut Request,
    found: &Found,
    answering: &ResponseInput<'_>,
    wanted: Wanted,
) -> Option<Response> {
    let Found {
        object, table_key, ..
    } = found;
    if let Some(response) = respond::bare(answering, object, &wanted) {
        return Some(response);
    }
    if let Some(mut response) = respond::piece(answering, object, &wanted) {
        response.receipt = receipt(context, request);
        touch_piece(context, object, *table_key, &wanted);
        return Some(response);
    }
    if !wanted.is_in_memory(object) {
        return None;
    }
    let ride = match object.is_sparse() {
        false => {
            let mut response = respond::content(answering, Ride::complete(object), wanted);
            response.receipt = receipt(context, request);
            return Some(response);
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
            let demand = Demand::new(context, request, first.clone(), *table_key, None);
            let mut ride = Ride::filling(object, first, demand);
            ride.begin();
            if context.options.fill.read_ahead != ReadAhead::None {
                ride.fetch_ahead();
            }
            ride
        }
    };
    Some(respond::content(answering, ride, wanted))
}

/// The response that would be made from a stored object, without its content.
pub(in crate::cache) struct Previewed {
    pub(in crate::cache) response: Response,
    pub(in crate::cache) status: CacheStatus,
    /// Whether all wanted bytes are stored, in memory or on a volume.
    pub(in crate::cache) is_stored: bool,
}

/// Makes the head of the response to a request from a stored object. Forms of the content in other
/// codings are left out of account.
pub(in crate::cache) fn preview(
    context: &Context,
    request: &RequestHead,
    found: &Found,
    now_ms: u64,
) -> Previewed {
    let (object, head) = (&found.object, &*found.head);
    let status = found.freshness.status(head, now_ms);
    let answering = respond::answering(context, head, status, now_ms);
    let wanted = want::judge(request, head, object.content_length(head));
    let bare = respond::bare(&answering, object, &wanted);
    Previewed {
        is_stored: bare.is_some() || wanted.is_stored_in(object),
        response: bare.unwrap_or_else(|| respond::unread(&answering, object, wanted)),
        status,
    }
}

/// Marks the block of a range within one page as used.
fn touch_piece(context: &Context, object: &Arc<Object>, table_key: TableKey, wanted: &Wanted) {
    if let Some(range) = wanted.first()
        && object.is_sparse()
    {
        context.store.touch_block(table_key, object, range.start);
    }
}

/// Returns the receipt that credits the client's budget with the stored bytes that it receives, since
/// they may have been fetched for this client.
fn receipt(context: &Context, request: &Request) -> Option<Arc<dyn Receipt>> {
    context.clients.budgets.receipt(request.peer.client)
}
