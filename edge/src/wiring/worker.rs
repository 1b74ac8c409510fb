//! A worker's thread: its runtime, handlers, listeners, and shutdown.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;

use super::edge::Edge;
use super::fetching;
use super::handlers::{Handlers, Upstreams};
use super::listeners::WorkerListener;
use super::snapshot::Snapshot;
use crate::cache;
use crate::downstream::{Serving, Worker, WorkerContext};
use crate::handler::Handler;
use crate::route::Routes;
use crate::sys::{Clock, Random, memory};
use crate::telemetry::{AccessLog, Counters, WorkerRoutes};
use crate::upstream::{self, Upstream};
use crate::what_if;

/// Starts the thread of worker `index`, which sends to `ready` once it accepts connections.
pub(super) fn start(
    index: usize,
    edge: Arc<Edge>,
    listeners: Vec<WorkerListener>,
    ready: mpsc::Sender<()>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = || {
        Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(Clock::forget)
            .build_local(LocalOptions::default())
    };
    thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || match runtime() {
            Ok(runtime) => runtime.block_on(run(index, edge, listeners, ready)),
            Err(error) => tracing::error!(%error, "a worker's runtime can't start"),
        })
}

async fn run(
    index: usize,
    edge: Arc<Edge>,
    listeners: Vec<WorkerListener>,
    ready: mpsc::Sender<()>,
) {
    let counters = edge.telemetry.worker(index);
    let mut snapshots = edge.snapshots.subscribe();
    let mut stopping = edge.stopping.subscribe();
    let mut fetches = edge.fetches.worker();
    let snapshot = snapshots.borrow_and_update().clone();
    let memory_freed = Rc::<Notify>::default();
    let own = (index, &counters, &memory_freed);
    let mut scene = WorkerHandlers::new(&edge, own, snapshot, None);
    let context = WorkerContext {
        clock: edge.clock.clone(),
        counters: counters.clone(),
        balance: edge.balance.clone(),
        index,
        give_memory_back: memory::give_back,
        memory_freed: memory_freed.clone(),
        sampler: edge.observed.worker(counters.clone()),
    };
    let worker = Worker::new(context, scene.serving());
    for (listener, setup) in listeners {
        let worker = worker.clone();
        tokio::task::spawn_local(async move { worker.listen(listener, setup).await });
    }
    // Sending fails if the starting thread has given up waiting, which is no error.
    let _ = ready.send(());
    loop {
        tokio::select! {
            changed = snapshots.changed() => {
                if changed.is_err() {
                    break;
                }
                let snapshot = snapshots.borrow_and_update().clone();
                let before = Some(&scene);
                let own = (index, &counters, &memory_freed);
                scene = WorkerHandlers::new(&edge, own, snapshot, before);
                worker.serve(scene.serving());
                scene.snapshot.taken_up.note();
            }
            Some(fetch) = fetches.recv() => fetching::begin(fetch, scene.handlers.clone()),
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    let drained = Drained(edge.clone());
    worker
        .drain(scene.snapshot.plan.limits.shutdown_timeout)
        .await;
    drop(drained);
    // Flights of this worker may have riders on other workers, so this worker runs until all
    // workers have drained.
    let workers = scene.snapshot.workers;
    let mut all = edge.drained.subscribe();
    // Waiting cannot fail, since the sender lives as long as the edge.
    let _ = all.wait_for(|drained| *drained >= workers).await;
}

/// Guard that counts a worker as drained when dropped, also after a panic.
struct Drained(Arc<Edge>);

impl Drop for Drained {
    fn drop(&mut self) {
        self.0.drained.send_modify(|drained| *drained += 1);
    }
}

/// A worker's handlers, built from one snapshot.
struct WorkerHandlers {
    snapshot: Arc<Snapshot>,
    handlers: Rc<Handlers>,
    handler: Rc<dyn Handler>,
    counted: Rc<WorkerRoutes>,
    upstreams: Rc<Upstreams>,
    log: Option<Rc<AccessLog>>,
    caches: Rc<cache::Worker>,
    what_if: Rc<what_if::Worker>,
    request_ids: Option<Random>,
    traces: Option<Random>,
}

impl WorkerHandlers {
    fn new(
        edge: &Arc<Edge>,
        (worker, counters, memory_freed): (usize, &Arc<Counters>, &Rc<Notify>),
        snapshot: Arc<Snapshot>,
        before: Option<&WorkerHandlers>,
    ) -> WorkerHandlers {
        let upstreams = upstreams(edge, counters, memory_freed, &snapshot, before);
        let upstreams = Rc::new(upstreams);
        let log = log(counters, &snapshot, before);
        let caches = match before {
            Some(before) => before.caches.clone(),
            None => cache::Worker::new(edge.clock.clone(), edge.random.clone(), counters.clone()),
        };
        let what_if = match before {
            Some(before) => before.what_if.clone(),
            None => Rc::new(edge.what_if.worker()),
        };
        let request_ids = snapshot.plan.request_id;
        let request_ids = request_ids.then(|| Random::seeded(edge.random.next_u64()));
        let count = snapshot.route_keys.len();
        let counted = Rc::new(WorkerRoutes::new(count));
        let traces = snapshot.plan.trace;
        let traces = traces.then(|| Random::seeded(edge.random.next_u64()));
        let handlers = Rc::new(Handlers {
            request_ids: request_ids.clone(),
            edge: edge.clone(),
            counters: counters.clone(),
            snapshot: snapshot.clone(),
            upstreams: upstreams.clone(),
            log: log.clone(),
            caches: caches.clone(),
            worker,
            counted: counted.clone(),
            what_if: what_if.clone(),
        });
        let own = handlers.clone();
        let build = move |index| own.build(index);
        let router = snapshot.router.clone();
        let routes = Rc::new(Routes::new(router, count, build, counted.clone()));
        WorkerHandlers {
            snapshot,
            handlers,
            handler: edge.obtained.answering(routes),
            counted,
            upstreams,
            log,
            caches,
            what_if,
            request_ids,
            traces,
        }
    }

    fn serving(&self) -> Serving {
        let listeners = &self.snapshot.plan.listeners;
        Serving {
            handler: self.handler.clone(),
            routes: self.counted.clone(),
            options: self.snapshot.plan.limits.clone(),
            log: self.log.clone(),
            trust: self.snapshot.plan.trust.clone(),
            request_ids: self.request_ids.clone(),
            traces: self.traces.clone(),
            tls: self.snapshot.encryption.servers.clone(),
            protocols: listeners
                .iter()
                .map(|listener| listener.protocols)
                .collect(),
        }
    }
}

/// Returns the worker's upstreams. Upstreams whose shared state is the same keep their connections.
fn upstreams(
    edge: &Edge,
    counters: &Arc<Counters>,
    memory_freed: &Rc<Notify>,
    snapshot: &Snapshot,
    before: Option<&WorkerHandlers>,
) -> Upstreams {
    let build = |(name, options): (&String, &upstream::Options)| {
        let kept = before.filter(|before| keeps_upstream(&before.snapshot, snapshot, name));
        let kept = kept.and_then(|before| before.upstreams.get(name));
        let upstream = match kept {
            Some(upstream) => upstream.clone(),
            None => Upstream::new(
                options.clone(),
                edge.clock.clone(),
                counters.clone(),
                snapshot.upstreams.get(name)?,
                memory_freed.clone(),
            ),
        };
        Some((name.clone(), upstream))
    };
    snapshot.plan.upstreams.iter().filter_map(build).collect()
}

/// Whether a worker that had the snapshot `before` keeps an upstream in `now`. Equal options are not
/// enough: a busy worker skips snapshots, and the options may have been others in between. The
/// snapshot then counts with a new state, which a kept upstream would not update.
fn keeps_upstream(before: &Snapshot, now: &Snapshot, name: &str) -> bool {
    match (before.upstreams.get(name), now.upstreams.get(name)) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        _ => false,
    }
}

/// Returns the worker's sender to the access log, and spawns a task that flushes the sender while
/// it is in use.
fn log(
    counters: &Arc<Counters>,
    snapshot: &Snapshot,
    before: Option<&WorkerHandlers>,
) -> Option<Rc<AccessLog>> {
    let log = snapshot.log.as_ref()?;
    if let Some(before) = before
        && let (Some(kept), Some(its)) = (&before.log, &before.snapshot.log)
        && Arc::ptr_eq(its, log)
    {
        return Some(kept.clone());
    }
    let end = Rc::new(log.worker(counters.clone()));
    let weak = Rc::downgrade(&end);
    tokio::task::spawn_local(AccessLog::flush_regularly(weak));
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::sys::Clock;

    /// Returns a snapshot with an upstream that has these settings, as if reloaded after `before`.
    fn snapshot(settings: &str, before: Option<&Snapshot>) -> Snapshot {
        let text = format!(
            "[upstream.o]\nservers = \"http://127.0.0.1:9\"\n{settings}\n[[route]]\nproxy = \"o\"\n"
        );
        let plan = config::parse("test.toml", &text).expect("a plan").plan;
        Snapshot::build(plan, 1, before, &Clock::manual(0)).expect("a snapshot")
    }

    #[test]
    fn an_upstream_that_was_another_one_in_between_is_not_kept() {
        let first = snapshot("", None);
        let same = snapshot("", Some(&first));
        assert!(keeps_upstream(&first, &same, "o"));
        let other = snapshot("keepalive = 1", Some(&same));
        assert!(!keeps_upstream(&same, &other, "o"));
        // The worker was busy and skipped `other`.
        let again = snapshot("", Some(&other));
        assert!(!keeps_upstream(&same, &again, "o"));
        assert!(!keeps_upstream(&same, &again, "none"));
    }
}
