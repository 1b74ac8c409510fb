//! The method PURGE: a request that purges the stored responses for its own target.

use std::time::Duration;

use super::{Enforced, KeyRuleHistory, purge_by, resources};
use crate::cache::context::Context;
use crate::handler::{Answer, Fault, Head, Request, Response};
use crate::http::key;
use crate::http::purge::{self, Purge, Purged};
use crate::http::{CacheStatus, Fwd, Scheme};
use crate::reason::Reason;

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
        true => purge_own(context, &request.head, request.peer.scheme),
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

fn purge_own(context: &Context, head: &Head, scheme: Scheme) -> (Response, Enforced) {
    let nothing = |status, text: String| (Response::text(status, text), Enforced::default());
    let soft = match head.fields.get(MODE_HEADER) {
        None => false,
        Some(value) if value.eq_ignore_ascii_case(b"soft") => true,
        Some(_) => return nothing(400, "Sluice-Purge is soft, or left out\n".to_owned()),
    };
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
            // Without the query, which may contain secrets.
            let url = format!("{}://{host}{path}", scheme.as_str());
            tracing::info!(target: "sluice::event::purge::purged", %url, soft, "a client purged a URL");
            (response, enforced)
        }
        Err(refusal) => nothing(refusal.status(), format!("{refusal}\n")),
    }
}

fn about_purging(mut response: Response) -> Response {
    response.fields.append("cache-control", "no-store");
    response.cache = Some(CacheStatus::fwd(Fwd::Method).because(Reason::Purge));
    response
}
