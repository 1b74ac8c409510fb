//! The chain of handlers of each route, built for each worker when the route's first request
//! arrives.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::edge::Edge;
use super::logged::Logged;
use super::snapshot::Snapshot;
use crate::cache::{self, Cache};
use crate::compress;
use crate::config::{ListenerPlan, Plan, Proxied, RouteHandler, RoutePlan, SitePlan};
use crate::edit::{Edit, Redirect, Respond, Rewriting, ToHttps};
use crate::files::{self, Files};
use crate::gate::{self, Gate, TraceGate};
use crate::handler::{Answer, Encodings, Handler, Request};
use crate::reason::Reason;
use crate::spool::{Buffered, Buffering};
use crate::sys::{Clock, Random};
use crate::telemetry::{AccessLog, Counters, LogRule, RouteCounters, Selection, WorkerRoutes};
use crate::tls::HttpsRedirect;
use crate::upstream::{Redirects, RouteHeaders, RouteOptions, Upstream};
use crate::what_if;

/// A worker's upstreams, by name.
pub(super) type Upstreams = BTreeMap<String, Upstream>;

/// The parts from which handlers are built. The plan was checked, so all names in it exist.
pub(super) struct Handlers {
    pub(super) edge: Arc<Edge>,
    pub(super) counters: Arc<Counters>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) upstreams: Rc<Upstreams>,
    pub(super) log: Option<Rc<AccessLog>>,
    pub(super) caches: Rc<cache::Worker>,
    /// Index of the worker.
    pub(super) worker: usize,
    /// Gets the counters of each route whose handlers are built.
    pub(super) counted: Rc<WorkerRoutes>,
    /// The worker's part of the simulations of other sizes of the caches.
    pub(super) what_if: Rc<what_if::Worker>,
    /// The random numbers of request ids, if requests have ids.
    pub(super) request_ids: Option<Random>,
}

/// The parts of which the handlers of a route consist. They differ for the requests of clients, for previews and for
/// fetches by the operator; their order does not.
pub(super) trait Parts {
    /// Returns the plan that the route is in.
    fn plan(&self) -> &Plan;

    /// Returns the handler of a proxied route, with its cache.
    fn proxied(&self, route: &RoutePlan, proxied: &Proxied) -> Option<Rc<dyn Handler>>;

    /// Returns the handler of a folder.
    fn files(&self, route: &RoutePlan, options: &files::Options) -> Option<Rc<dyn Handler>>;

    /// Wraps a handler in a gate with these options.
    fn gated(&self, options: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>>;

    /// Wraps the gate in the route's edits, so that error pages and header edits also apply to
    /// requests that the gate refuses.
    fn edited(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler>;

    /// Wraps all other handlers of the route in one that selects the requests that are logged.
    fn logged(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler>;
}

/// Builds the handlers of a route from these parts, from the innermost to the outermost.
pub(super) fn chain(
    parts: &impl Parts,
    site: &SitePlan,
    route: &RoutePlan,
) -> Option<Rc<dyn Handler>> {
    let methods = route
        .gate
        .as_ref()
        .and_then(|gate| gate.allow_methods.as_ref());
    let traced =
        |is_proxy, inner| -> Rc<dyn Handler> { Rc::new(TraceGate::new(methods, is_proxy, inner)) };
    let answers = match &route.handler {
        RouteHandler::Upstream(proxied) => {
            let inner = parts.proxied(route, proxied)?;
            traced(true, rewritten(proxied, inner))
        }
        RouteHandler::Files(options) => parts.files(route, options)?,
        RouteHandler::Respond(options) => traced(false, Rc::new(Respond::new(options))),
        RouteHandler::Redirect(to) => traced(false, Rc::new(Redirect::new((**to).clone()))),
    };
    let gated = match &route.gate {
        Some(options) => parts.gated(options, answers)?,
        None => answers,
    };
    let encrypted: Rc<dyn Handler> = match https_port(parts.plan(), site) {
        Some(port) => Rc::new(ToHttps::new(port, gated)?),
        None => gated,
    };
    Some(parts.logged(route, parts.edited(route, encrypted)))
}

/// Wraps the cache, so that keys are made of the rewritten target, and everything outside sees the
/// client's.
fn rewritten(proxied: &Proxied, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
    match &proxied.rewrite {
        None => inner,
        Some(rewrite) => Rc::new(Rewriting::new(rewrite.clone(), inner)),
    }
}

/// Wraps a handler in the route's edits.
pub(super) fn edited(route: &RoutePlan, inner: Rc<dyn Handler>, clock: &Clock) -> Rc<dyn Handler> {
    match &route.edit {
        None => inner,
        Some(edit) => Rc::new(Edit::new(inner, edit.clone(), clock.clone())),
    }
}

/// The parts for the requests of clients.
struct Serving<'a> {
    handlers: &'a Handlers,
    /// This worker's counters of the route.
    counters: Arc<RouteCounters>,
}

impl Parts for Serving<'_> {
    fn plan(&self) -> &Plan {
        &self.handlers.snapshot.plan
    }

    fn proxied(&self, route: &RoutePlan, proxied: &Proxied) -> Option<Rc<dyn Handler>> {
        self.handlers
            .proxied(route, proxied, &proxied.rules, &self.counters)
    }

    fn files(&self, route: &RoutePlan, options: &files::Options) -> Option<Rc<dyn Handler>> {
        self.handlers.files(options, self.handlers.encodings(route))
    }

    fn gated(&self, options: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>> {
        self.handlers.gated(options, inner)
    }

    fn edited(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        edited(route, inner, &self.handlers.edge.clock)
    }

    fn logged(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        self.handlers.logged(route.log.as_ref(), inner)
    }
}

/// The parts for fetches by the operator: without gates, since the operator needs no permission, and without a log,
/// since there is no client.
struct Fetching<'a> {
    handlers: &'a Handlers,
    /// This worker's counters of the route.
    counters: Arc<RouteCounters>,
    /// Whether stored responses are validated first.
    validates: bool,
}

impl Parts for Fetching<'_> {
    fn plan(&self) -> &Plan {
        &self.handlers.snapshot.plan
    }

    fn proxied(&self, route: &RoutePlan, proxied: &Proxied) -> Option<Rc<dyn Handler>> {
        if !self.validates {
            let rules = &proxied.rules;
            return self.handlers.proxied(route, proxied, rules, &self.counters);
        }
        // The request has `Cache-Control: no-cache`, which the cache must honour.
        let mut rules = cache::Rules::clone(&proxied.rules);
        rules.requests.client_cache_control = true;
        self.handlers
            .proxied(route, proxied, &Arc::new(rules), &self.counters)
    }

    fn files(&self, _: &RoutePlan, _: &files::Options) -> Option<Rc<dyn Handler>> {
        None
    }

    fn gated(&self, _: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>> {
        Some(inner)
    }

    fn edited(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        edited(route, inner, &self.handlers.edge.clock)
    }

    fn logged(&self, _: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        inner
    }
}

/// Answers the requests of a route whose handler can't be built, which a checked plan excludes.
struct NoRoute;

impl Handler for NoRoute {
    fn handle(&self, _: Request) -> Answer {
        Answer::Ready(Err(Reason::NoRoute.into()))
    }
}

impl Handlers {
    /// Builds the handlers of the route with this index, counted over all sites.
    pub(super) fn build(&self, index: usize) -> Rc<dyn Handler> {
        let found = self.snapshot.plan.route(index);
        let built = found.and_then(|(site, route)| {
            let parts = Serving {
                handlers: self,
                counters: self.count(index)?,
            };
            chain(&parts, site, route)
        });
        built.unwrap_or_else(|| Rc::new(NoRoute))
    }

    /// Returns this worker's counters of the route with this index, which go on over reloads.
    fn count(&self, index: usize) -> Option<Arc<RouteCounters>> {
        let key = self.snapshot.route_keys.get(index)?;
        let counters = self.edge.routes.counters(key, self.worker);
        self.counted.set(index, counters.clone());
        Some(counters)
    }

    /// Builds the handlers for a fetch by the operator of a URL of the route with this index.
    pub(super) fn fetching(&self, index: usize, validates: bool) -> Option<Rc<dyn Handler>> {
        let (site, route) = self.snapshot.plan.route(index)?;
        let parts = Fetching {
            handlers: self,
            counters: self.count(index)?,
            validates,
        };
        chain(&parts, site, route)
    }

    /// Wraps all other handlers of the route in `Logged`, if the route does not log all requests.
    fn logged(&self, rule: Option<&LogRule>, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        let Some((log, rule)) = self.log.as_ref().zip(rule) else {
            return inner;
        };
        let random = Random::seeded(self.edge.random.next_u64());
        Rc::new(Logged {
            log: log.clone(),
            selection: Rc::new(Selection::new(rule.clone(), random)),
            inner,
        })
    }

    fn gated(&self, options: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>> {
        let mut gates = self.snapshot.gates.iter();
        let shared = gates.find(|gate| gate.options() == options)?.clone();
        let (clock, counters) = (self.edge.clock.clone(), self.counters.clone());
        Some(Rc::new(Gate::new(shared, clock, counters, inner)))
    }

    /// Returns this worker's handle to the encoder of a route.
    fn encodings(&self, route: &RoutePlan) -> Option<Rc<dyn Encodings>> {
        let options = route.compress.as_ref()?;
        let mut encoders = self.snapshot.compression.encoders.iter();
        let encoder = encoders.find(|encoder| encoder.options() == options)?;
        let handle = compress::Handle::new(encoder.clone(), self.counters.clone());
        Some(Rc::new(handle))
    }

    fn files(
        &self,
        options: &files::Options,
        encodings: Option<Rc<dyn Encodings>>,
    ) -> Option<Rc<dyn Handler>> {
        let mut folders = self.snapshot.files.iter();
        let folder = folders.find(|folder| folder.options() == options)?;
        let files = Files::new(folder.clone(), self.edge.random.clone(), encodings);
        Some(Rc::new(files))
    }

    /// Wraps an upstream, so that bodies are buffered on their way to it and back.
    fn buffered(&self, buffered: Buffered, origin: Rc<dyn Handler>) -> Rc<dyn Handler> {
        if buffered == Buffered::default() {
            return origin;
        }
        let (buffers, counters) = (self.edge.buffers.clone(), self.counters.clone());
        let options = self.snapshot.plan.buffers.disk.clone();
        let disk = self.snapshot.buffer_folder.clone().zip(options);
        Rc::new(Buffering::new(origin, buffered, buffers, disk, counters))
    }

    /// Returns the redirects that a route follows, with this worker's upstreams.
    fn redirects(&self, proxied: &Proxied) -> Option<Redirects> {
        let follow = proxied.follow_redirects.as_ref()?;
        let to = follow.to.iter().filter_map(|name| self.upstreams.get(name));
        Some(Redirects::new(follow.times, to.cloned().collect()))
    }

    /// Returns the upstream of a route, behind a cache with these rules if the route has one.
    fn proxied(
        &self,
        route: &RoutePlan,
        proxied: &Proxied,
        rules: &Arc<cache::Rules>,
        counters: &Arc<RouteCounters>,
    ) -> Option<Rc<dyn Handler>> {
        let upstream = self.upstreams.get(&proxied.upstream)?;
        let upstream = upstream.with_route(route_headers(route, proxied));
        let upstream = upstream.with_options(RouteOptions {
            path: proxied.path.clone(),
            // A response with a cookie for one client could not be stored.
            sticky: proxied.cache.is_none(),
            write_back: proxied.write_back,
            request_ids: self.request_ids.clone(),
            redirects: self.redirects(proxied).map(Rc::new),
            counters: Some(counters.clone()),
        });
        let origin = self.buffered(proxied.buffered, Rc::new(upstream));
        let Some(name) = &proxied.cache else {
            return Some(origin);
        };
        let stored = self.snapshot.stores.get(name)?;
        let options = self.snapshot.plan.caches.get(name)?.clone();
        let watched = self.edge.what_if.watched(name);
        let sampler = watched.map(|watched| self.what_if.sampler(&watched));
        let cache = Cache::new(
            (options, rules.clone()),
            (stored.store.clone(), stored.stores.clone()),
            self.snapshot.accounts.get(name)?.clone(),
            (origin, self.encodings(route)),
            (self.caches.clone(), sampler),
        );
        Some(Rc::new(cache))
    }
}

/// Returns the port to which requests of a site in clear text are redirected. `None` if they are answered.
pub(super) fn https_port(plan: &Plan, site: &SitePlan) -> Option<u16> {
    let has_tls = |listener: &&ListenerPlan| listener.tls.is_some();
    let listeners = || plan.listeners.iter().filter(has_tls);
    listeners().next()?;
    match site.tls.as_ref()?.redirect {
        HttpsRedirect::Off => None,
        HttpsRedirect::To(port) => Some(port),
        HttpsRedirect::On => {
            let ports = || listeners().filter_map(|one| Some(one.address.ip()?.port()));
            // A port that the kernel chooses is for tests, and nobody knows it beforehand.
            let other = ports().find(|port| *port != 0);
            match ports().any(|port| port == 443) {
                true => Some(443),
                false => Some(other.unwrap_or(443)),
            }
        }
    }
}

/// Returns the request headers that a route's configuration names: those that it sets or removes,
/// and those in its cache key.
fn route_headers(route: &RoutePlan, proxied: &Proxied) -> RouteHeaders {
    let edits = route.edit.as_ref().map(|edit| &edit.request);
    let set = edits.into_iter().flat_map(|edits| &edits.put);
    let set = set.map(|(name, _)| &**name);
    let keyed = proxied.cache.iter();
    let keyed = keyed.flat_map(|_| proxied.rules.key.headers());
    RouteHeaders {
        kept: set.chain(keyed).map(Into::into).collect(),
        removed: edits.map_or_else(Vec::new, |edits| edits.remove.clone()),
    }
}
