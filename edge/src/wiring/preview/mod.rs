//! Previews: says what would happen to a request. The request passes the handlers of its route, in which previews stand
//! in place of the gate, the cache and the upstream. Nothing is sent, stored or counted.

mod notes;
mod parts;
pub(super) mod request;
mod servers;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;

use notes::Notes;
use parts::Previews;

use super::handlers::{chain, https_port};
use super::inspect::object::object_state;
use super::servers::upstream_state;
use super::snapshot::{self, Snapshot};
use super::upstreams::States;
use crate::admin::{AnswerState, Explanation, KeyState, PolicyState, Question};
use crate::cache::purge::Keys;
use crate::cache::{Course, Forecast};
use crate::config::{self, Plan, RouteHandler, RoutePlan, SitePlan};
use crate::gate;
use crate::handler::{Answer, Fault, Pending, Request, Response};
use crate::http::{CacheStatus, Scheme};
use crate::reason::Reason;
use crate::route::Router;
use crate::store::Store;
use crate::sys::Clock;

/// Memory of the empty store that stands for a cache of a configuration that does not run, in bytes.
const EMPTY_STORE: u64 = 1 << 20;

/// The state on which the decisions about a request depend.
struct Ground<'a> {
    plan: &'a Plan,
    router: &'a Router<usize>,
    gates: &'a [Arc<gate::Shared>],
    stores: BTreeMap<String, Arc<Store>>,
    /// The servers of the running Sluice.
    upstreams: Option<&'a States>,
    clock: &'a Clock,
    /// Whether the stores are those of the running Sluice.
    is_live: bool,
}

/// Explains what would happen now to a request.
///
/// # Errors
///
/// The question is invalid. The text says why.
pub(super) fn explain(
    snapshot: &Snapshot,
    clock: &Clock,
    question: &Question,
) -> Result<Explanation, String> {
    let stores = snapshot.stores.iter();
    let stores = stores.map(|(name, stored)| (name.clone(), stored.store.clone()));
    let ground = Ground {
        plan: &snapshot.plan,
        router: &snapshot.router,
        gates: &snapshot.gates,
        stores: stores.collect(),
        upstreams: Some(&snapshot.upstreams),
        clock,
        is_live: true,
    };
    ground.explain(question)
}

/// Explains what would happen to a request with this configuration, as far as that does not depend on stored responses.
///
/// # Errors
///
/// The question is invalid, or a file with keys can't be read. The text says why.
pub fn explain_plan(plan: &Plan, question: &Question) -> Result<Explanation, String> {
    let gates = snapshot::gates(plan, None).map_err(|error| format!("{error:#}"))?;
    let stores = plan.caches.iter().map(|(name, options)| {
        let mut options = snapshot::store_options(options, 1);
        options.memory = EMPTY_STORE;
        let sequence = Arc::new(AtomicU64::new(1));
        (name.clone(), Store::named(&options, &Keys, sequence))
    });
    let ground = Ground {
        plan,
        router: &snapshot::router(plan),
        gates: &gates,
        stores: stores.collect(),
        upstreams: None,
        clock: &Clock::system(),
        is_live: false,
    };
    ground.explain(question)
}

impl Ground<'_> {
    fn explain(&self, question: &Question) -> Result<Explanation, String> {
        let (url, asked) = request::request(question, self.plan)?;
        let mut explanation = Explanation {
            live: self.is_live,
            url: url.to_string(),
            method: question.method.clone(),
            client: question.client.clone(),
            ..Explanation::default()
        };
        match asked {
            Ok(request) => self.follow(request, &mut explanation),
            Err(refusal) => {
                explanation.decision = "refused".to_owned();
                explanation.reason = Some(refusal.reason.to_string());
                explanation.answer = Some(answer_state(&refusal.response()));
            }
        }
        Ok(explanation)
    }

    /// Describes what happens to a valid request.
    fn follow(&self, request: Request, explanation: &mut Explanation) {
        explanation.client = request.peer.client.to_string();
        let (authority, target) = (&request.head.authority, &request.head.target);
        let index = self.router.find(authority, target).copied();
        let Some((site, route)) = index.and_then(|index| self.plan.route(index)) else {
            let response = Fault::from(Reason::NoRoute).response();
            explanation.decision = "no-route".to_owned();
            explanation.reason = Some(Reason::NoRoute.to_string());
            explanation.answer = Some(answer_state(&response));
            return;
        };
        self.describe_route(site, route, explanation);
        let is_redirected = request.peer.scheme == Scheme::Http
            && !request.head.method.is_purge()
            && https_port(self.plan, site).is_some();
        let (notes, target) = (Rc::<Notes>::default(), request.head.target.clone());
        let result = self.pass(request, (site, route), &notes);
        let notes = notes.take();
        explanation.gates = notes.gates;
        explanation.rewritten = notes.target.filter(|seen| *seen != target);
        let fault = match &result {
            Ok(response) => response.fault,
            Err(fault) => Some(fault.reason),
        };
        let response = result.unwrap_or_else(Fault::response);
        explanation.reason = fault.map(|reason| reason.to_string());
        explanation.decision = match route.handler {
            _ if is_redirected => "https",
            _ if notes.is_refused => "gate",
            _ if notes.forecast.is_some() => "",
            _ if notes.is_forwarded => "forward",
            RouteHandler::Files(_) => "files",
            _ if fault.is_some() => "refused",
            RouteHandler::Redirect(_) => "redirect",
            RouteHandler::Respond(_) => "respond",
            // TraceGate has answered.
            RouteHandler::Upstream(_) => "respond",
        }
        .to_owned();
        let is_known = match notes.forecast {
            None => !notes.is_forwarded,
            Some(forecast) => {
                let is_answered = forecast.is_answered;
                self.describe_cache(forecast, explanation);
                is_answered
            }
        };
        explanation.answer = is_known.then(|| answer_state(&response));
    }

    /// Passes a request to the handlers of its route.
    fn pass(
        &self,
        request: Request,
        (site, route): (&SitePlan, &RoutePlan),
        notes: &Rc<Notes>,
    ) -> Result<Response, Fault> {
        let parts = Previews::new(self.plan, self.gates, &self.stores, self.clock, notes);
        let Some(handler) = chain(&parts, site, route) else {
            return Err(Reason::NoRoute.into());
        };
        match handler.handle(request) {
            Answer::Ready(result) => result,
            Answer::Later(pending) => wait(pending),
        }
    }

    fn describe_route(&self, site: &SitePlan, route: &RoutePlan, explanation: &mut Explanation) {
        explanation.site = Some(match site.hosts.is_empty() {
            true => "*".to_owned(),
            false => site.hosts.join(", "),
        });
        explanation.route = Some(route.matcher.to_string());
        let handler = match route.handler {
            RouteHandler::Upstream(_) => "proxy",
            RouteHandler::Files(_) => "files",
            RouteHandler::Redirect(_) => "redirect",
            RouteHandler::Respond(_) => "respond",
        };
        explanation.handler = Some(handler.to_owned());
        explanation.edits = config::describe_edits(route);
        let Some(proxied) = route.proxied() else {
            return;
        };
        explanation.upstream = Some(proxied.upstream.clone());
        explanation.cache = proxied.cache.clone();
        if let Some(state) = self.upstreams.and_then(|all| all.get(&proxied.upstream)) {
            let upstream = upstream_state(state, self.clock.monotonic_us());
            let keeps_stale = proxied.cache.is_none() || !proxied.rules.stale.if_error.is_zero();
            explanation.servers = servers::lines(&upstream);
            explanation.advice = servers::advice(&upstream, keeps_stale);
        }
        let options = proxied.cache.as_ref();
        let options = options.and_then(|name| self.plan.caches.get(name));
        explanation.policy = options.map(|options| PolicyState {
            fill: config::describe_fill(&options.fill),
            rules: config::describe_rules(&proxied.rules),
        });
    }

    /// Describes the decision of the cache.
    fn describe_cache(&self, forecast: Forecast, explanation: &mut Explanation) {
        let is_open = matches!(
            forecast.course,
            Course::Miss | Course::Recall | Course::NotCached
        );
        explanation.decision = match !self.is_live && is_open {
            true => "lookup".to_owned(),
            false => forecast.course.text().to_owned(),
        };
        let status = forecast.status.filter(|_| self.is_live || !is_open);
        let detail = status.and_then(|status| status.detail);
        if let Some(detail) = detail {
            explanation.reason = Some(detail.to_string());
        }
        explanation.cache_status = status.map(|status| rendered(&status));
        let (primary, hash) = forecast.key;
        let vary: Vec<String> = forecast.vary.iter().map(|name| name.to_string()).collect();
        explanation.key = Some(KeyState {
            primary,
            hash: hash.to_string(),
            variant: (!vary.is_empty()).then(|| format!("{:032x}", forecast.variant)),
            vary,
        });
        let (now_ms, now_us) = (self.clock.unix_ms(), self.clock.monotonic_us());
        let object = forecast.object.as_ref();
        explanation.stored = object.map(|object| object_state(object, now_ms, now_us));
    }
}

/// Waits for a response. Only folders answer later. Callers of previews are not on a worker, so they may wait.
fn wait(pending: Pending) -> Result<Response, Fault> {
    if let Ok(runtime) = Handle::try_current() {
        return runtime.block_on(pending.response);
    }
    match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime.block_on(pending.response),
        Err(_) => Err(Reason::FileFailed.into()),
    }
}

fn rendered(status: &CacheStatus) -> String {
    let mut out = Vec::new();
    status.render(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Describes a response's head, without what every response gets.
fn answer_state(response: &Response) -> AnswerState {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = response.stored.iter().chain(response.fields.iter());
    AnswerState {
        status: response.status,
        headers: lines
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    }
}
