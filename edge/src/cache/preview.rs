//! A preview: the cache's decision about a request, without a fetch and without any effect on other requests.

use std::rc::Rc;
use std::sync::Arc;

use super::context::Context;
use super::decide::admission::{self, Admitted};
use super::hit;
use super::lookup::{self, Freshness, Lookup, Peeked, keys};
use super::purge::method;
use super::refusal::{may_be_stored, refuse_fetch};
use crate::handler::{Answer, Fault, Handler, Request, Response};
use crate::http::key::KeyHash;
use crate::http::{CacheStatus, Fwd};
use crate::reason::Reason;
use crate::store::Object;

/// The course that a request would take through the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The stored response is fresh and has all wanted bytes.
    Hit,
    /// The stored response is stale and is served nevertheless.
    Stale,
    /// Some of the wanted bytes are missing and are fetched.
    Partial,
    /// The request waits for the response of a fetch in progress.
    Join,
    /// The stored response is validated first.
    Revalidate,
    /// The response is fetched.
    Miss,
    /// The head of the response is read from a volume first. The further course depends on it.
    Recall,
    /// The request is forwarded separately.
    Pass,
    /// Nothing usable is stored, and the client wants nothing else (`only-if-cached`).
    NotCached,
    /// The request has passed this process before.
    Loop,
    /// The request purges.
    Purge,
}

impl Course {
    /// The name of the course in the admin API.
    pub const fn text(self) -> &'static str {
        match self {
            Course::Hit => "hit",
            Course::Stale => "stale",
            Course::Partial => "partial",
            Course::Join => "join",
            Course::Revalidate => "revalidate",
            Course::Miss => "miss",
            Course::Recall => "recall",
            Course::Pass => "pass",
            Course::NotCached => "not-cached",
            Course::Loop => "loop",
            Course::Purge => "purge",
        }
    }
}

/// The decision of a cache about a request.
pub struct Forecast {
    /// The course of the request.
    pub course: Course,
    /// The parameters of Cache-Status that are known before the response.
    pub status: Option<CacheStatus>,
    /// Whether the response is known now.
    pub is_answered: bool,
    /// The primary key as text, and its hash.
    pub key: (String, KeyHash),
    /// The names in the Vary of the resource's responses.
    pub vary: Vec<Box<str>>,
    /// The variant that the request selects; 0 without Vary.
    pub variant: u128,
    /// The object that the table has for the request, usable or not.
    pub object: Option<Arc<Object>>,
}

/// Receives a forecast.
type Report = dyn Fn(Forecast);

/// A handler that reports what a cache would do, and answers as far as the answer is known.
pub struct Preview {
    context: Rc<Context>,
    report: Rc<Report>,
}

/// The course, the known part of Cache-Status, and the answer if it is known.
type Judged = (Course, Option<CacheStatus>, Option<Result<Response, Fault>>);

impl Preview {
    /// Creates a preview of a cache.
    pub(in crate::cache) fn new(context: &Rc<Context>, report: Rc<Report>) -> Preview {
        Preview {
            context: context.clone(),
            report,
        }
    }

    fn judge(&self, request: &Request, forecast: &mut Forecast) -> Judged {
        let context = &*self.context;
        let no_body = request.body.is_empty();
        let admitted = match admission::admit(&request.head, no_body, &context.rules) {
            Ok(admitted) => admitted,
            Err(_) if request.head.method.is_purge() => {
                let refused = !method::is_permitted(context, request);
                let reason = Reason::PurgeNotAllowed;
                let answer = refused.then(|| Ok(method::refused(reason)));
                return (Course::Purge, None, answer);
            }
            Err(status) => return (Course::Pass, Some(status), None),
        };
        let key = forecast.key.1;
        let now_ms = context.worker.clock.unix_ms();
        let peeked = lookup::peek(context, request, &admitted, key, now_ms);
        let Peeked {
            looked,
            variant,
            vary,
            object,
        } = peeked;
        forecast.vary = vary.map_or_else(Vec::new, |names| names.to_vec());
        (forecast.variant, forecast.object) = (variant, object);
        let mut may_answer = may_be_stored(&looked);
        if let Lookup::Stored(found) = &looked {
            let previewed = hit::preview(context, &request.head, found, now_ms);
            if previewed.is_stored {
                let course = match found.freshness {
                    Freshness::Stale { .. } => Course::Stale,
                    _ => Course::Hit,
                };
                return (course, Some(previewed.status), Some(Ok(previewed.response)));
            }
            may_answer = false;
        }
        if let Some(refused) = refuse_fetch(request, &admitted, may_answer) {
            return match refused {
                Ok(response) => (Course::NotCached, response.cache, Some(Ok(response))),
                Err(fault) => (Course::Loop, None, Some(Err(fault))),
            };
        }
        let (course, status) = fetched(context, request, &admitted, &looked);
        (course, status, None)
    }
}

/// Returns the course of a request that is no hit.
fn fetched(
    context: &Context,
    request: &Request,
    admitted: &Admitted,
    looked: &Lookup,
) -> (Course, Option<CacheStatus>) {
    let (course, fwd) = match looked {
        Lookup::Pass(status) => return (Course::Pass, Some(*status)),
        Lookup::Recalled(_) | Lookup::Missing { on_disk: true, .. } => {
            return (Course::Recall, None);
        }
        Lookup::InFlight(joined) => {
            let mut status = CacheStatus::fwd(joined.fwd);
            status.collapsed = true;
            return (Course::Join, Some(status));
        }
        Lookup::Stored(_) => return (Course::Partial, Some(CacheStatus::fwd(Fwd::Partial))),
        Lookup::Stale(fwd) => (Course::Revalidate, *fwd),
        Lookup::Missing { fwd, .. } => (Course::Miss, *fwd),
        Lookup::New(joined) => (Course::Miss, joined.fwd),
    };
    match lookup::must_be_passed(context, request, admitted) {
        Some(status) => (Course::Pass, Some(status)),
        None => (course, Some(CacheStatus::fwd(fwd))),
    }
}

impl Handler for Preview {
    fn handle(&self, request: Request) -> Answer {
        let context = &*self.context;
        let key = keys::key_text(&context.rules.key, &request);
        let hash = context.keys.key(&context.rules.key, &request);
        let mut forecast = Forecast {
            course: Course::Pass,
            status: None,
            is_answered: false,
            key: (key.to_string(), hash),
            vary: Vec::new(),
            variant: 0,
            object: None,
        };
        let (course, status, answer) = self.judge(&request, &mut forecast);
        (forecast.course, forecast.status) = (course, status);
        forecast.is_answered = answer.is_some();
        (self.report)(forecast);
        Answer::Ready(answer.unwrap_or_else(|| Ok(Response::new(200))))
    }
}
