//! A worker's thread: its runtime, handlers, listeners, and shutdown.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use super::handlers::{Handlers, Upstreams};
use super::snapshot::Snapshot;
use super::{Door, Edge};
use crate::downstream::{Serving, Worker, WorkerContext};
use crate::handler::Handler;
use crate::route::{Router, Site};
use crate::sys::memory;
use crate::telemetry::{AccessLog, Counters};
use crate::upstream::{self, Upstream};

/// Starts the thread of worker `index`, which sends to `ready` once it accepts connections.
pub(super) fn start(
    index: usize,
    edge: Arc<Edge>,
    listeners: Vec<Door>,
    ready: mpsc::Sender<()>,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = || {
        Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
    };
    thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || match runtime() {
            Ok(runtime) => runtime.block_on(run(index, edge, listeners, ready)),
            Err(error) => tracing::error!(%error, "a worker's runtime can't start"),
        })
}

async fn run(index: usize, edge: Arc<Edge>, listeners: Vec<Door>, ready: mpsc::Sender<()>) {
    let counters = edge.telemetry.worker();
    let mut snapshots = edge.snapshots.subscribe();
    let mut stopping = edge.stopping.subscribe();
    let snapshot = snapshots.borrow_and_update().clone();
    let mut scene = Scene::new(&edge, &counters, snapshot, None);
    let context = WorkerContext {
        clock: edge.clock.clone(),
        counters: counters.clone(),
        balance: edge.balance.clone(),
        index,
    };
    let worker = Worker::new(context, scene.serving());
    for (listener, setup) in listeners {
        let worker = worker.clone();
        tokio::task::spawn_local(async move { worker.listen(listener, setup).await });
    }
    tokio::task::spawn_local(give_memory_back(counters.clone()));
    // Sending fails if the starting thread has given up waiting, which is no error.
    let _ = ready.send(());
    loop {
        tokio::select! {
            changed = snapshots.changed() => {
                if changed.is_err() {
                    break;
                }
                let snapshot = snapshots.borrow_and_update().clone();
                scene = Scene::new(&edge, &counters, snapshot, Some(&scene));
                worker.serve(scene.serving());
                scene.snapshot.taken_up.note();
            }
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

/// Returns unused memory to the system after each second in which the worker had no request.
async fn give_memory_back(counters: Arc<Counters>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut answered = 0;
    loop {
        second.tick().await;
        let before = std::mem::replace(&mut answered, counters.requests.get());
        if before == answered {
            memory::give_back();
        }
    }
}

/// A worker's handlers, built from one snapshot.
struct Scene {
    snapshot: Arc<Snapshot>,
    router: Rc<Router<Rc<dyn Handler>>>,
    upstreams: Upstreams,
    log: Option<Rc<AccessLog>>,
}

impl Scene {
    fn new(
        edge: &Edge,
        counters: &Arc<Counters>,
        snapshot: Arc<Snapshot>,
        before: Option<&Scene>,
    ) -> Scene {
        let upstreams = upstreams(edge, counters, &snapshot, before);
        let log = log(counters, &snapshot, before);
        let handlers = Handlers {
            log: log.as_ref(),
            edge,
            counters,
            snapshot: &snapshot,
            upstreams: &upstreams,
        };
        let site = |site: &crate::config::SitePlan| Site {
            hosts: site.hosts.clone(),
            routes: site
                .routes
                .iter()
                .filter_map(|route| Some((route.matcher.clone(), handlers.of(route)?)))
                .collect(),
        };
        let router = Rc::new(Router::new(snapshot.plan.sites.iter().map(site)));
        Scene {
            snapshot,
            router,
            upstreams,
            log,
        }
    }

    fn serving(&self) -> Serving {
        Serving {
            handler: self.router.clone(),
            options: self.snapshot.plan.limits.clone(),
            log: self.log.clone(),
            trust: self.snapshot.plan.trust.clone(),
        }
    }
}

/// Returns the worker's upstreams. Upstreams with unchanged options keep their connections.
fn upstreams(
    edge: &Edge,
    counters: &Arc<Counters>,
    snapshot: &Snapshot,
    before: Option<&Scene>,
) -> Upstreams {
    let build = |(name, options): (&String, &upstream::Options)| {
        let kept = before
            .and_then(|before| before.upstreams.get(name))
            .filter(|(kept, _)| kept == options);
        let upstream = match kept {
            Some((_, upstream)) => upstream.clone(),
            None => Upstream::new(
                options.clone(),
                edge.clock.clone(),
                counters.clone(),
                snapshot.upstreams.get(name)?,
            ),
        };
        Some((name.clone(), (options.clone(), upstream)))
    };
    snapshot.plan.upstreams.iter().filter_map(build).collect()
}

/// Returns the worker's sender to the access log, and spawns a task that flushes the sender while
/// it is in use.
fn log(
    counters: &Arc<Counters>,
    snapshot: &Snapshot,
    before: Option<&Scene>,
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
