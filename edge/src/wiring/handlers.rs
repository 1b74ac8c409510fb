//! The chain of handlers of each route, built once for each worker.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Edge;
use super::logged::Logged;
use super::snapshot::Snapshot;
use crate::cache::Cache;
use crate::compress;
use crate::config::{LeadsTo, Proxied, RoutePlan};
use crate::edit::{Edit, Redirect, Respond};
use crate::files::{self, Files};
use crate::gate::{self, Gate};
use crate::handler::{Encodings, Handler};
use crate::sys::Random;
use crate::telemetry::{AccessLog, Counters, LogRule, Selection};
use crate::upstream::{self, Upstream};

/// A worker's upstreams, by name.
pub(super) type Upstreams = BTreeMap<String, (upstream::Options, Upstream)>;

/// The parts from which handlers are built. The plan was checked, so all names in it exist.
pub(super) struct Handlers<'a> {
    pub(super) edge: &'a Edge,
    pub(super) counters: &'a Arc<Counters>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) upstreams: &'a Upstreams,
    pub(super) log: Option<&'a Rc<AccessLog>>,
}

impl Handlers<'_> {
    /// Builds the handlers of a route, from the innermost to the outermost.
    pub(super) fn of(&self, route: &RoutePlan) -> Option<Rc<dyn Handler>> {
        let answers = match &route.leads_to {
            LeadsTo::Upstream(proxied) => self.proxied(proxied, self.encodings(route))?,
            LeadsTo::Files(options) => self.files(options, self.encodings(route))?,
            LeadsTo::Respond(options) => Rc::new(Respond::new(options)),
            LeadsTo::Redirect(to) => Rc::new(Redirect::new((**to).clone())),
        };
        let gated = match &route.gate {
            Some(options) => self.gated(options, answers)?,
            None => answers,
        };
        let edited = self.edited(route, gated);
        Some(self.logged(route.log.as_ref(), edited))
    }

    /// Wraps the gate in the route's edits, so that error pages and header edits also apply to
    /// requests that the gate refuses.
    fn edited(&self, route: &RoutePlan, answers: Rc<dyn Handler>) -> Rc<dyn Handler> {
        match &route.edit {
            None => answers,
            Some(edit) => Rc::new(Edit::new(
                answers,
                (**edit).clone(),
                self.edge.clock.clone(),
            )),
        }
    }

    /// Wraps all other handlers of the route in `Logged`, if the route does not log all requests.
    fn logged(&self, rule: Option<&LogRule>, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        let Some((log, rule)) = self.log.zip(rule) else {
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

    fn proxied(
        &self,
        proxied: &Proxied,
        encodings: Option<Rc<dyn Encodings>>,
    ) -> Option<Rc<dyn Handler>> {
        let (_, upstream) = self.upstreams.get(&proxied.upstream)?;
        let origin: Rc<dyn Handler> = Rc::new(upstream.clone());
        let Some(name) = &proxied.cache else {
            return Some(origin);
        };
        let stored = self.snapshot.stores.get(name)?;
        let options = self.snapshot.plan.caches.get(name)?.clone();
        let cache = Cache::new(
            (options, proxied.rules.clone()),
            (stored.store.clone(), stored.stores.clone()),
            self.snapshot.accounts.get(name)?.clone(),
            (origin, encodings),
            self.edge.clock.clone(),
            self.edge.random.clone(),
            self.counters.clone(),
        );
        Some(Rc::new(cache))
    }
}
