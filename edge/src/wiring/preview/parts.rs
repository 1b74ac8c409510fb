//! The handlers of a route with previews in place of the gate, the cache and the upstream.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::notes::Notes;
use crate::admin::GateState;
use crate::cache::{self, Cache, Forecast};
use crate::config::{Plan, Proxied, RoutePlan};
use crate::files::{self, Files};
use crate::gate::{self, Check};
use crate::handler::{Answer, Choice, Encodings, Handler, Identity, Request, Response};
use crate::http::Fields;
use crate::http::coding::Accepted;
use crate::reason::Reason;
use crate::store::Store;
use crate::sys::{Clock, Random};
use crate::telemetry::Counters;
use crate::wiring::handlers::{self, Parts};

/// The parts of a preview.
pub(super) struct Previews<'a> {
    plan: &'a Plan,
    gates: &'a [Arc<gate::Shared>],
    stores: &'a BTreeMap<String, Arc<Store>>,
    clock: &'a Clock,
    notes: &'a Rc<Notes>,
}

impl<'a> Previews<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        gates: &'a [Arc<gate::Shared>],
        stores: &'a BTreeMap<String, Arc<Store>>,
        clock: &'a Clock,
        notes: &'a Rc<Notes>,
    ) -> Previews<'a> {
        Previews {
            plan,
            gates,
            stores,
            clock,
            notes,
        }
    }

    fn cached(&self, route: &RoutePlan, proxied: &Proxied, name: &str) -> Option<Rc<dyn Handler>> {
        let identity = route.compress.as_ref();
        let encodings = identity.map(|options| -> Rc<dyn Encodings> {
            Rc::new(Unencoded {
                requests_identity: options.request_identity,
            })
        });
        // Nobody reads these counters.
        let counters = Arc::<Counters>::default();
        let worker = cache::Worker::new(self.clock.clone(), Random::system(), counters);
        let cache = Cache::new(
            (self.plan.caches.get(name)?.clone(), proxied.rules.clone()),
            (self.stores.get(name)?.clone(), Arc::default()),
            Arc::default(),
            (Rc::new(Unsent(self.notes.clone())), encodings),
            (worker, None),
        );
        let notes = self.notes.clone();
        let report = move |forecast: Forecast| notes.note(|all| all.forecast = Some(forecast));
        Some(Rc::new(cache.preview(Rc::new(report))))
    }
}

impl Parts for Previews<'_> {
    fn plan(&self) -> &Plan {
        self.plan
    }

    fn proxied(&self, route: &RoutePlan, proxied: &Proxied) -> Option<Rc<dyn Handler>> {
        let inner: Rc<dyn Handler> = match &proxied.cache {
            Some(name) => self.cached(route, proxied, name)?,
            None => Rc::new(Unsent(self.notes.clone())),
        };
        Some(Rc::new(Seen {
            notes: self.notes.clone(),
            inner,
        }))
    }

    fn files(&self, _: &RoutePlan, options: &files::Options) -> Option<Rc<dyn Handler>> {
        // The folder has a table of its own, so that no file is loaded into the one in use.
        let folder = files::Shared::open(options.clone(), self.clock.clone()).ok()?;
        Some(Rc::new(Files::new(folder, Random::system(), None)))
    }

    fn gated(&self, options: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>> {
        let mut gates = self.gates.iter();
        let shared = gates.find(|gate| gate.options() == options)?.clone();
        let notes = self.notes.clone();
        let report = move |check: Check, result: Option<Result<(), Reason>>| {
            let refused = result.and_then(Result::err);
            notes.note(|all| {
                all.is_refused |= refused.is_some();
                all.gates.push(GateState {
                    gate: check.name().to_owned(),
                    passes: result.map(|result| result.is_ok()),
                    detail: refused.map(|reason| reason.to_string()),
                });
            });
        };
        let clock = self.clock.clone();
        Some(Rc::new(gate::Preview::new(
            shared,
            clock,
            inner,
            Rc::new(report),
        )))
    }

    fn edited(&self, route: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        handlers::edited(route, inner, self.clock)
    }

    fn logged(&self, _: &RoutePlan, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        inner
    }
}

/// Notes the target that the handler inside sees.
struct Seen {
    notes: Rc<Notes>,
    inner: Rc<dyn Handler>,
}

impl Handler for Seen {
    fn handle(&self, request: Request) -> Answer {
        let target = request.head.target.clone();
        self.notes.note(|all| all.target = Some(target));
        self.inner.handle(request)
    }
}

/// Stands for an upstream, and sends nothing.
struct Unsent(Rc<Notes>);

impl Handler for Unsent {
    fn handle(&self, _: Request) -> Answer {
        self.0.note(|all| all.is_forwarded = true);
        Answer::Ready(Ok(Response::new(200)))
    }
}

/// Stands for the encoder of a route, and has nothing encoded.
struct Unencoded {
    requests_identity: bool,
}

impl Encodings for Unencoded {
    fn choose(&self, _: &Accepted, _: &Fields, _: &Identity<'_>) -> Choice {
        Choice::Identity
    }

    fn complete(&self, _: &Identity<'_>) {}

    fn requests_identity(&self) -> bool {
        self.requests_identity
    }
}
