//! The thread that checks the health of all upstreams' servers, for all workers.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc};

use super::check::{Checker, Unhealthy};
use super::options::Options;
use super::state::{ServerState, UpstreamState};
use crate::sys::{Clock, Random};

/// Part of an interval within which the first checks of servers are spread.
const FIRST: f64 = 0.1;

/// Checks the health of servers on a thread of its own, which is started with the first upstream
/// that has health checks.
#[derive(Default)]
pub struct Monitor(Mutex<Option<Running>>);

struct Running {
    orders: mpsc::UnboundedSender<Vec<Watched>>,
    thread: JoinHandle<()>,
}

/// An upstream whose servers are checked.
struct Watched {
    options: Options,
    state: Arc<UpstreamState>,
}

impl Monitor {
    /// Checks the servers of these upstreams, and no others from now on. Checks of an upstream that
    /// was named before go on.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub fn watch<'a>(
        &self,
        upstreams: impl Iterator<Item = (&'a Options, &'a Arc<UpstreamState>)>,
        clock: &Clock,
    ) -> io::Result<()> {
        let watched = upstreams.filter(|(options, _)| options.health.is_some());
        let watched: Vec<Watched> = watched
            .map(|(options, state)| Watched {
                options: options.clone(),
                state: state.clone(),
            })
            .collect();
        let mut running = self.0.lock();
        if running.is_none() && watched.is_empty() {
            return Ok(());
        }
        if running.is_none() {
            *running = Some(Running::start(clock.clone())?);
        }
        if let Some(running) = &*running {
            // Sending fails only if the thread has panicked.
            let _ = running.orders.send(watched);
        }
        Ok(())
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let Some(Running { orders, thread }) = self.0.lock().take() else {
            return;
        };
        drop(orders);
        if thread.join().is_err() {
            tracing::error!("the thread of the health checks had panicked");
        }
    }
}

impl Running {
    fn start(clock: Clock) -> io::Result<Running> {
        let (orders, received) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default());
                match runtime {
                    Ok(runtime) => runtime.block_on(follow(received, clock)),
                    Err(error) => tracing::error!(%error, "health checks can't be run"),
                }
            })?;
        Ok(Running { orders, thread })
    }
}

/// A task that ends when this is dropped.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs the checks of the upstreams in the last order.
async fn follow(mut orders: mpsc::UnboundedReceiver<Vec<Watched>>, clock: Clock) {
    let mut running: Vec<(Arc<UpstreamState>, Task)> = Vec::new();
    while let Some(watched) = orders.recv().await {
        let is_watched =
            |state: &Arc<UpstreamState>| watched.iter().any(|w| Arc::ptr_eq(&w.state, state));
        for (state, task) in running.extract_if(.., |(state, _)| !is_watched(state)) {
            drop(task);
            // A check may have ended after the reload that ends the checks.
            if !watched.iter().any(|w| w.state.name() == state.name()) {
                state.forget_health();
            }
        }
        for Watched { options, state } in watched {
            if running.iter().any(|(other, _)| Arc::ptr_eq(other, &state)) {
                continue;
            }
            if let Some(checker) = Checker::new(&options, &state, &clock) {
                let task = check_all(Rc::new(checker), state.clone(), clock.clone());
                running.push((state, Task(tokio::task::spawn_local(task))));
            }
        }
    }
}

/// Checks the servers of one upstream, which may come and go.
async fn check_all(checker: Rc<Checker>, state: Arc<UpstreamState>, clock: Clock) {
    let (changed, random) = (Arc::new(Notify::new()), Random::system());
    state.changes().notify(&changed);
    let mut checks: Vec<(Arc<ServerState>, Task)> = Vec::new();
    let mut health = HealthOfAll::default();
    loop {
        let present: Vec<_> = state
            .servers()
            .into_iter()
            .filter(|s| s.is_present())
            .collect();
        health.note(state.name(), &present);
        checks.retain(|(server, _)| present.iter().any(|p| Arc::ptr_eq(p, server)));
        for server in present {
            if checks.iter().any(|(other, _)| Arc::ptr_eq(other, &server)) {
                continue;
            }
            let check = check_one(
                checker.clone(),
                server.clone(),
                clock.clone(),
                random.clone(),
            );
            checks.push((server, Task(tokio::task::spawn_local(check))));
        }
        changed.notified().await;
    }
}

/// Whether all servers of an upstream are unhealthy.
#[derive(Default)]
struct HealthOfAll {
    all_fail: bool,
}

impl HealthOfAll {
    /// Logs if all servers that may get requests are unhealthy now, or no longer.
    fn note(&mut self, upstream: &str, servers: &[Arc<ServerState>]) {
        let mut used = servers
            .iter()
            .filter(|s| s.effective_weight() > 0)
            .peekable();
        let is_any = used.peek().is_some();
        let all_fail = is_any && used.all(|server| server.condition().is_unhealthy());
        if std::mem::replace(&mut self.all_fail, all_fail) == all_fail {
            return;
        }
        match all_fail {
            true => {
                tracing::warn!(target: "sluice::event::server::all-unhealthy", %upstream, "all servers of an upstream are unhealthy, so all of them get requests");
            }
            false => {
                tracing::info!(target: "sluice::event::server::some-healthy", %upstream, "not all servers of an upstream are unhealthy any more")
            }
        }
    }
}

/// Checks one server again and again.
async fn check_one(checker: Rc<Checker>, server: Arc<ServerState>, clock: Clock, random: Random) {
    let health = &checker.health;
    let (mut good, mut bad) = (0, 0);
    tokio::time::sleep(health.interval.mul_f64(FIRST * part(&random))).await;
    loop {
        let began_us = clock.monotonic_us();
        let result = checker.check(&server).await;
        let counts = !result.as_ref().is_err_and(Unhealthy::is_local);
        if result.is_ok() && health.port.is_none() {
            // Otherwise an unreachable server would wait for a request to have it probed.
            server.note_connect(Ok(()), began_us, clock.monotonic_us());
        }
        (good, bad) = match &result {
            Ok(()) => (good + 1, 0),
            Err(_) if counts => (0, bad + 1),
            Err(_) => (good, bad),
        };
        // Further results of the same kind confirm the state, which a reload that failed may have changed.
        if !counts {
            tracing::debug!(server = %server.address(), "this machine can't open connections for health checks");
        } else if good >= health.up || bad >= health.down || server.condition().awaits_check() {
            note(&server, result, &clock);
        }
        (good, bad) = (good.min(health.up), bad.min(health.down));
        let change = health.jitter * (2.0 * part(&random) - 1.0);
        let pause = health.interval.mul_f64(1.0 + change);
        tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
    }
}

/// Notes whether a server is healthy, and logs it if that has changed.
fn note(server: &ServerState, result: Result<(), Unhealthy>, clock: &Clock) {
    let noted = match &result {
        Ok(()) => Ok(()),
        Err(cause) => Err(cause.to_string()),
    };
    let is_new = server.condition().set_healthy(noted, clock.monotonic_us());
    if !is_new {
        return;
    }
    server.note_change();
    let (upstream, address) = (server.upstream(), server.address());
    match result {
        Ok(()) => {
            tracing::info!(target: "sluice::event::server::healthy", %upstream, server = %address, "a server is healthy")
        }
        Err(cause) => {
            tracing::warn!(target: "sluice::event::server::unhealthy", %upstream, server = %address, %cause, "health checks of a server fail");
        }
    }
}

/// Returns a random number from 0 to 1.
fn part(random: &Random) -> f64 {
    random.next_u64() as f64 / u64::MAX as f64
}
