//! What answers on a route: handlers around handlers, one set for each worker.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Edge;
use super::logged::Logged;
use super::snapshot::Snapshot;
use crate::cache::Cache;
use crate::config::{LeadsTo, Proxied, RoutePlan};
use crate::edit::{Edit, Redirect, Respond};
use crate::files::{self, Files};
use crate::gate::{self, Gate};
use crate::handler::Handler;
use crate::sys::Random;
use crate::telemetry::{AccessLog, Counters, LogRule, Selection};
use crate::upstream::{self, Upstream};

/// A worker's ends of the upstreams, by name.
pub(super) type Upstreams = BTreeMap<String, (upstream::Options, Upstream)>;

/// What handlers are built from. The plan was checked: the names it uses are there.
pub(super) struct Handlers<'a> {
    pub(super) edge: &'a Edge,
    pub(super) counters: &'a Arc<Counters>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) upstreams: &'a Upstreams,
    pub(super) log: Option<&'a Rc<AccessLog>>,
}

impl Handlers<'_> {
    /// All that a request of this route goes through.
    pub(super) fn of(&self, route: &RoutePlan) -> Option<Rc<dyn Handler>> {
        let answers = match &route.leads_to {
            LeadsTo::Upstream(proxied) => self.proxied(proxied)?,
            LeadsTo::Files(options) => self.files(options)?,
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

    /// Around all else, and only where not all requests are logged.
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

    /// Outermost of what answers, so that pages and fields are there for whatever is refused within.
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

    fn gated(&self, options: &gate::Options, inner: Rc<dyn Handler>) -> Option<Rc<dyn Handler>> {
        let mut gates = self.snapshot.gates.iter();
        let shared = gates.find(|gate| gate.options() == options)?.clone();
        let (clock, counters) = (self.edge.clock.clone(), self.counters.clone());
        Some(Rc::new(Gate::new(shared, clock, counters, inner)))
    }

    fn files(&self, options: &files::Options) -> Option<Rc<dyn Handler>> {
        let mut folders = self.snapshot.files.iter();
        let folder = folders.find(|folder| folder.options() == options)?;
        let files = Files::new(folder.clone(), self.edge.random.clone(), None);
        Some(Rc::new(files))
    }

    fn proxied(&self, proxied: &Proxied) -> Option<Rc<dyn Handler>> {
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
            origin,
            self.edge.clock.clone(),
            self.edge.random.clone(),
            self.counters.clone(),
        );
        Some(Rc::new(cache))
    }
}
