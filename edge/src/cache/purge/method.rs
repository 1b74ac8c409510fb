//! The method PURGE: a request that purges the stored responses for its own target.

use std::net::IpAddr;
use std::time::Duration;

use super::{Enforced, KeyRuleHistory, purge_by, resources};
use crate::cache::context::Context;
use crate::handler::{Answer, Fault, Head, Request, Response};
use crate::http::key;
use crate::http::purge::{self, Purge, Purged};
use crate::http::{CacheStatus, Fwd, Scheme, Status};
use crate::reason::Reason;
use crate::telemetry::shown_url;

/// Header of a PURGE request. With the value `soft`, responses become stale instead of being
/// removed.
const MODE_HEADER: &str = "sluice-purge";
/// Longest time that a PURGE waits for the disks.
const LOG_WAIT: Duration = Duration::from_secs(10);
const NOT_LOGGED: &str =
    "the purge is in force, but may be undone by a restart: the disks take too long\n";

/// Answers a PURGE. Only addresses that are configured for it may purge.
pub(in crate::cache) fn answer(context: &Context, request: &Request) -> Answer {
    let (response, enforced) = match is_permitted(context, request) {
        true => purge_own(context, request),
        false => (refused(Reason::PurgeNotAllowed), Enforced::default()),
    };
    if enforced.durable.is_empty() {
        return Answer::Ready(Ok(about_purging(response)));
    }
    Answer::later(async move {
        let logging = tokio::task::spawn_blocking(move || enforced.log());
        let response = match tokio::time::timeout(LOG_WAIT, logging).await {
            Ok(Ok(Ok(()))) => response,
            Ok(Ok(Err(why))) => Response::text(503, format!("{why}\n")),
            Ok(Err(_)) | Err(_) => Response::text(503, NOT_LOGGED),
        };
        Ok(about_purging(response))
    })
}

/// Whether the client of a PURGE may purge.
pub(in crate::cache) fn is_permitted(context: &Context, request: &Request) -> bool {
    let mut networks = context.rules.purge_from.iter();
    networks.any(|network| network.contains(request.peer.client))
}

/// The response to a PURGE that is refused. The access log shows the reason.
pub(in crate::cache) fn refused(reason: Reason) -> Response {
    let status = Fault::from(reason).status();
    let mut response = Response::text(status, format!("{reason}\n"));
    response.fault = Some(reason);
    response
}

/// Purges the target of a request, and notes this as a change.
fn purge_own(context: &Context, request: &Request) -> (Response, Enforced) {
    let (head, peer) = (&request.head, &request.peer);
    let (response, enforced) = match mode(head) {
        Some(soft) => purge_target(context, head, peer.scheme, soft),
        None => {
            let text = "Sluice-Purge is soft, or left out\n";
            (Response::text(400, text), Enforced::default())
        }
    };
    note(peer.scheme, head, peer.client, response.status);
    (response, enforced)
}

/// Returns whether the purge is soft; `None` if the header is invalid.
fn mode(head: &Head) -> Option<bool> {
    match head.fields.get(MODE_HEADER) {
        None => Some(false),
        Some(value) => value.eq_ignore_ascii_case(b"soft").then_some(true),
    }
}

/// Adds a purge to the log and the events, as the admin API does with its own.
fn note(scheme: Scheme, head: &Head, client: IpAddr, status: Status) {
    let url = shown_url(&format!(
        "{}://{}{}",
        scheme.as_str(),
        head.authority,
        head.target
    ));
    let soft = if mode(head) == Some(true) {
        ", soft"
    } else {
        ""
    };
    match status {
        200 => {
            tracing::info!(target: "sluice::event::purge::purged", who = %client, %client, status, "purge: url {url}{soft}");
        }
        _ => {
            tracing::info!(target: "sluice::event::change::ordered", who = %client, %client, status, "purge: url {url}{soft}");
        }
    }
}

fn purge_target(
    context: &Context,
    head: &Head,
    scheme: Scheme,
    soft: bool,
) -> (Response, Enforced) {
    let (host, path, query) = (&head.authority, head.path(), head.query());
    let rules =
        |key_rules: &KeyRuleHistory| Ok(resources(scheme, host, path, query, &key_rules.all()));
    match purge_by(&context.stores, soft, context.worker.clock.unix_ms(), rules) {
        Ok(enforced) => {
            let url = key::Key::new(scheme, host, path, query).to_string();
            let purged = Purged {
                cache: None,
                sequence: enforced.sequence,
                rule: Purge::Url(url),
                soft,
                matched: None,
            };
            let answer = purge::Answer {
                purged: vec![purged],
            };
            let mut response = Response::text(200, answer.to_json());
            response.fields.set("content-type", "application/json");
            (response, enforced)
        }
        Err(refusal) => {
            let text = format!("{refusal}\n");
            (Response::text(refusal.status(), text), Enforced::default())
        }
    }
}

fn about_purging(mut response: Response) -> Response {
    response.fields.append("cache-control", "no-store");
    response.cache = Some(CacheStatus::fwd(Fwd::Method).because(Reason::Purge));
    response
}
