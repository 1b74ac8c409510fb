//! Responses to POST that also answer GET: those that name their target in Content-Location and
//! state their lifetime (RFC 9110 9.3.3).
//!
//! Such a response must reach the client of the POST in any case. It is stored and read from the
//! store without an await in between, and no other fetch adds bytes to it. A response that can't be
//! stored whole is forwarded unchanged.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::smallvec;

use super::forwarded::forwarded;
use super::shared_form;
use crate::cache::client_budget::{BudgetCharge, ClientBudget};
use crate::cache::context::Context;
use crate::cache::decide::shared_request::LeaderShare;
use crate::cache::decide::{shared_request, storing};
use crate::cache::fetch::flight::Flight;
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::hit::respond;
use crate::cache::lookup::{Known, keys};
use crate::cache::miss::ride::Ride;
use crate::fill::OPEN;
use crate::handler::{Head, Request, Response};
use crate::http::freshness::ExchangeTimes;
use crate::http::key::{Key, KeyHash};
use crate::http::wanted::Wanted;
use crate::http::{CacheStatus, Fields, Method, hop};
use crate::store::{Landing, TableKey};

/// Header fields of a POST that describe its content, and which a GET does not have.
const CONTENT_HEADERS: [&str; 5] = [
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "transfer-encoding",
];

/// The properties of a POST that are needed when its response arrives.
pub(in crate::cache) struct PostRequest {
    key: Key,
    hash: KeyHash,
    /// The header fields that were sent, also those that describe the POST's content: if Vary names
    /// them, they select the variant (RFC 9111 4.1).
    sent: Fields,
    /// Whether a response for the key was stored, or being fetched, when the request was sent.
    stored: bool,
    asked_ms: u64,
    /// The purge sequence number when the request was sent.
    asked_seq: u64,
}

/// Prepares for storing the response to a POST. `None` if the POST differs from a shared fetch in
/// more than its content. User-Agent and the headers of content negotiation of the POST are set to
/// the values of a shared fetch.
pub(in crate::cache) fn posted(
    context: &Rc<Context>,
    request: &mut Request,
) -> Option<PostRequest> {
    let rules = &context.rules;
    // If keys contain header fields, a POST invalidates by a purge rule, which would also cover its
    // own response.
    if !rules.requests.post || rules.key.needs_fields() || request.head.method != Method::Post {
        return None;
    }
    let mut fields = request.head.fields.clone();
    fields.retain(|name, value| !is_for_post(name, value, &request.head));
    if !shared_form::is_for_all(context, &request.head, &fields) {
        return None;
    }
    shared_form::level(context, &mut request.head.fields);
    let (store, hash) = (
        &context.store,
        context.keys.key(&context.rules.key, request),
    );
    Some(PostRequest {
        key: keys::key_text(&context.rules.key, request),
        hash,
        sent: request.head.fields.clone(),
        stored: store.enter(hash.0, |locked| locked.variants() > 0) || store.is_on_disk(hash.0),
        asked_ms: context.worker.clock.unix_ms(),
        asked_seq: context.store.moment(),
    })
}

/// Stores the response to a POST if it may answer GET, and serves it from the store.
pub(in crate::cache) fn store_post_response(
    context: &Rc<Context>,
    request: &Request,
    posted: &PostRequest,
    mut response: Response,
    status: CacheStatus,
) -> Response {
    match stored_post_response(context, request, posted, &mut response, status) {
        Some(served) => served,
        None => forwarded(response, status),
    }
}

/// Stores the response and returns the response that reads it from the store. `None` if it can't be
/// stored: then `response` is unchanged.
fn stored_post_response(
    context: &Rc<Context>,
    request: &Request,
    posted: &PostRequest,
    response: &mut Response,
    mut status: CacheStatus,
) -> Option<Response> {
    let storing::Storable { head, withheld, .. } =
        storable_post_response(context, request, posted, response)?;
    let names = head.vary.as_ref().map_or(&[][..], |vary| &vary.names);
    let chosen = shared_request::has_parts_of_a_client(&request.head, names, &context.rules);
    let landing = landing_for(context, posted, chosen)?;
    let (length, object) = (head.length?, landing.object().clone());
    let head = crate::store::Head {
        born_seq: landing.born_seq(),
        // GET and POST may get different content, so other fetches must not add bytes to this
        // object.
        joinable: false,
        ..head
    };
    let mut flight = flight_for(context, posted, landing);
    if flight.open(head.clone(), 0..length).is_err() {
        flight.retire();
        return None;
    }
    status.fwd_status = Some(response.status);
    status.stored = true;
    let answering = respond::answering(context, &head, status, context.worker.clock.unix_ms());
    // The ride begins before the flight, so that the flight always has a reader.
    let ride = Ride::complete(&object);
    let mut served = match respond::bare(&answering, &object, &Wanted::All) {
        Some(served) => served,
        None => respond::content(&answering, ride, Wanted::All),
    };
    served.upstream = response.upstream.take();
    for (name, value) in withheld.iter() {
        served.fields.append_bytes(name, value);
    }
    tokio::task::spawn_local(flight.receive(std::mem::take(&mut response.body)));
    Some(served)
}

/// Makes the head to store for the response to a POST. `None` unless it is a whole 200 of
/// acceptable size that names its target in Content-Location and states its lifetime.
fn storable_post_response(
    context: &Rc<Context>,
    request: &Request,
    posted: &PostRequest,
    response: &Response,
) -> Option<storing::Storable> {
    let mut locations = response.fields.get_all("content-location");
    let own = keys::target_of(request, locations.next()?);
    let fits = |length| length <= context.object_max;
    if response.status != 200
        || own.as_deref() != Some(&*request.head.target)
        || locations.next().is_some()
        || !response.declared_length().is_some_and(fits)
    {
        return None;
    }
    let exchanged = ExchangeTimes {
        request_ms: posted.asked_ms,
        response_ms: context.worker.clock.unix_ms(),
    };
    let content = storing::content_of(response);
    let (sent, rules) = (&posted.sent, &context.rules);
    let asked = (None, &content);
    storing::store_as(posted.hash, sent, response, asked, exchanged, rules)
        .ok()
        .filter(|stored| stored.explicit)
}

/// Creates an object for the response to a POST. `None` without room, or if anything was purged
/// since the POST was sent. If the response was chosen by headers of the client that its Vary does
/// not name, such as Accept, it must not replace a stored response: then the result is `None` too.
fn landing_for(context: &Rc<Context>, posted: &PostRequest, chosen: bool) -> Option<Landing> {
    if chosen && posted.stored {
        return None;
    }
    let store = &context.store;
    let object = store.create_since(posted.key.text(), posted.asked_seq)?;
    let table_key = TableKey {
        primary: posted.hash.0,
        variant: 0,
    };
    let inserted = store.enter(table_key.primary, |locked| {
        let may_insert = !chosen || locked.variants() == 0;
        if may_insert {
            locked.insert(table_key.variant, object.clone(), store.weight(&object.key));
        }
        may_insert
    });
    if !inserted {
        return None;
    }
    let now_us = context.worker.clock.monotonic_us();
    let whole = || (smallvec![0..OPEN], ());
    let ((), mut landings) = store.arrange(&object, table_key, now_us, |_| whole());
    landings.pop()
}

/// Makes a flight for a POST that was sent already. A flight without readers goes on only while its
/// client budget lasts. The budget of this flight is used up from the start, so the flight ends when its last reader
/// leaves.
fn flight_for(context: &Rc<Context>, posted: &PostRequest, landing: Landing) -> Flight {
    let exhausted = Arc::<ClientBudget>::default();
    exhausted.fetch(u64::MAX);
    Flight {
        charge: BudgetCharge::new(exhausted, 0),
        context: context.clone(),
        landing,
        asked: None,
        sent: posted.sent.clone(),
        validates: false,
        leader_share: LeaderShare::default(),
        leader_result: LeaderResult::new(None),
        skips: 0,
        known: Known::default(),
        changes: None,
    }
}

/// Whether a header of a POST makes no difference to a GET of the same URL: a header that describes the POST's content,
/// or an Origin equal to the URL's origin, which browsers send with every POST.
fn is_for_post(name: &[u8], value: &[u8], head: &Head) -> bool {
    let own_origin = || {
        let host = value.splitn(2, |&b| b == b'/').nth(1);
        let host = host.and_then(|rest| rest.strip_prefix(b"/"));
        host.is_some_and(|host| host.eq_ignore_ascii_case(head.authority.as_bytes()))
    };
    hop::is_in(&CONTENT_HEADERS, name) || (name.eq_ignore_ascii_case(b"origin") && own_origin())
}
