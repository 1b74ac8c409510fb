//! Requests that are passed to the origin, and what their responses change in the cache.

pub(in crate::cache) mod forwarded;
mod post_response;
mod shared_form;

use std::rc::Rc;
use std::sync::Arc;

use self::forwarded::forwarded;

use self::post_response::PostRequest;
use crate::cache::context::Context;
use crate::cache::decide::{self, shared_request, storing};
use crate::cache::lookup::keys;
use crate::handler::{Answer, Body, Request, Response};
use crate::http::freshness::ExchangeTimes;
use crate::http::{CacheStatus, Fwd, Method, Outcome, hop};
use crate::store::{Phase, RULES_MAX, Rule, Store, TableKey};

/// The changes that the response to a passed request may make in the cache.
enum Effect {
    Nothing,
    /// The request is unsafe: stored responses for its target may be outdated (RFC 9111 4.4). Its
    /// own response may also answer GET.
    Unsafe(Request, Option<PostRequest>),
    /// The response to HEAD, sent at this time (Unix ms), updates the stored response to GET (RFC
    /// 9111 4.3.5).
    Head(Request, u64),
}

/// Passes the request to the origin.
pub(in crate::cache) fn pass(
    context: &Rc<Context>,
    mut request: Request,
    status: CacheStatus,
) -> Answer {
    if request.head.method.is_safe() {
        // An origin may act on such headers although they are not in the key, so a stored response
        // could be poisoned by them. They are removed even if the response is not shared.
        let fields = &mut request.head.fields;
        fields.retain(|name, _| !hop::is_unkeyed(name) || shared_form::is_named(context, name));
    }
    let effect = effect(context, &mut request, status);
    let answer = context.origin.handler.handle(request);
    let context = context.clone();
    answer.map(move |result| match (result, status.outcome) {
        (Ok(response), _) => Ok(apply(&context, effect, response, status)),
        (Err(fault), Outcome::Fwd(fwd)) => Err(fault.after(fwd)),
        (Err(fault), _) => Err(fault),
    })
}

fn effect(context: &Rc<Context>, request: &mut Request, status: CacheStatus) -> Effect {
    match request.head.method {
        Method::Get | Method::Options | Method::Trace => Effect::Nothing,
        Method::Head => {
            // A HEAD that bypasses the cache by configuration, or that differs from a shared fetch,
            // may get a private response.
            let head = &request.head;
            let method = status.outcome == Outcome::Fwd(Fwd::Method);
            if !method || !shared_form::is_for_all(context, head, &head.fields) {
                return Effect::Nothing;
            }
            shared_form::level(context, &mut request.head.fields);
            Effect::Head(without_body(request), context.worker.clock.unix_ms())
        }
        _ => {
            let posted = post_response::posted(context, request);
            Effect::Unsafe(without_body(request), posted)
        }
    }
}

fn apply(
    context: &Rc<Context>,
    effect: Effect,
    response: Response,
    status: CacheStatus,
) -> Response {
    match effect {
        Effect::Nothing => {}
        Effect::Unsafe(request, posted) => {
            if context.rules.requests.invalidates(&request.head.method) {
                invalidate(context, &request, &response);
            }
            if let Some(posted) = posted {
                return post_response::store_post_response(
                    context, &request, &posted, response, status,
                );
            }
        }
        Effect::Head(request, asked_ms) => compare(context, &request, &response, asked_ms),
    }
    forwarded(response, status)
}

/// Invalidates what a successful unsafe request may have changed: the responses for its target and
/// for the URLs that its response names (RFC 9111 4.4). All variants are removed, and fetches in
/// progress are not stored.
fn invalidate(context: &Rc<Context>, request: &Request, response: &Response) {
    if !(200..400).contains(&response.status) {
        return;
    }
    clear(context, request);
    for name in ["location", "content-location"] {
        let reference = response.fields.get(name);
        if let Some(target) = reference.and_then(|value| keys::target_of(request, value)) {
            let mut head = request.head.clone();
            head.target = target;
            clear(
                context,
                &Request {
                    head,
                    body: Body::Empty,
                    peer: request.peer,
                    interim: None,
                },
            );
        }
    }
}

fn clear(context: &Rc<Context>, request: &Request) {
    let (key, keys) = (
        context.keys.key(&context.rules.key, request),
        &context.rules.key,
    );
    let (scheme, head) = (request.peer.scheme, &request.head);
    let resource = keys.resource(scheme, &head.authority, head.path(), head.query());
    let (rule, now_ms) = (Rule::Resource(resource.0), context.worker.clock.unix_ms());
    let durable = context.stores.each(|(store, _)| {
        clear_in(store, key.0);
        // Half of the rules are reserved for purges by operators. If the other half is in use, only
        // the responses under the request's own key are removed.
        let hidden = keys.needs_fields() || store.is_loading();
        let purged = (hidden && store.rules() < RULES_MAX / 2)
            .then(|| store.purge(&rule, false, now_ms).ok())
            .flatten();
        purged.and_then(|number| store.durable_purge(&rule, None, number))
    });
    if let Some(durable) = durable.into_iter().flatten().next() {
        context.stores.log_in_background(durable);
    }
}

/// Updates the stored response to GET by the response to a HEAD. If both describe the same content,
/// the stored response is freshened, otherwise it becomes stale (RFC 9111 4.3.5).
fn compare(context: &Rc<Context>, request: &Request, response: &Response, asked_ms: u64) {
    if response.status != 200 {
        return;
    }
    let (key, now_ms) = (
        context.keys.key(&context.rules.key, request),
        context.worker.clock.unix_ms(),
    );
    let store = &context.store;
    let found = store.enter(key.0, |locked| {
        let names = locked.vary().map_or(&[][..], |names| names);
        if shared_request::has_parts_of_a_client(&request.head, names, &context.rules) {
            // The response may be about the client.
            return None;
        }
        let variant = match locked.vary() {
            None => 0,
            Some(names) => {
                let normal = context.rules.normal(None);
                decide::variant(key, names, &request.head.fields, normal)
            }
        };
        let object = locked.find(variant)?;
        let primary = key.0;
        Some((object, TableKey { primary, variant }))
    });
    let Some((object, table_key)) = found else {
        return;
    };
    let Phase::Open(head) = object.phase() else {
        return;
    };
    let exchanged = ExchangeTimes {
        request_ms: asked_ms,
        response_ms: now_ms,
    };
    let sent = &request.head.fields;
    let fresh = storing::same_as(&head, response)
        .then(|| storing::freshened(key, sent, &head, response, exchanged, &context.rules));
    match fresh {
        // If the fresh head has another Vary, or may not be stored, the stored response becomes
        // stale, and the next GET revalidates it.
        Some(Ok(storing::Storable {
            head: mut fresh, ..
        })) if fresh.vary == head.vary => {
            fresh.born_seq = head.born_seq;
            if let Some(charge) = store.charge_head(fresh.memory()) {
                store.renew(table_key, &object, fresh.into(), charge);
            }
        }
        _ => store.expire(table_key, &object, &head, now_ms),
    }
}

/// Removes all variants of a key, in memory and on volumes.
fn clear_in(store: &Arc<Store>, primary: u128) {
    store.enter(primary, |locked| {
        // All variants are removed in one critical section, so that none is recalled meanwhile.
        // Their heads are also deleted by id, since the index does not have records that are being
        // written.
        for (variant, _) in locked.all() {
            store.forget_head(TableKey { primary, variant });
        }
        store.forget_on_disk(primary);
        locked.clear();
    });
}

/// Copies a request without its body.
fn without_body(request: &Request) -> Request {
    Request {
        head: request.head.clone(),
        body: Body::Empty,
        peer: request.peer,
        interim: None,
    }
}
