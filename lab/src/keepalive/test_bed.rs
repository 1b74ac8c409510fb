//! The test bed: the emulated link, the far server and its load, the proxy and its clients.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::case::{Case, Load};
use super::proxy::ProxyKind;
use super::report::{Connection, Measurement};
use super::series;
use super::sockets::{self, Place, SocketSample};
use super::{BODY, Options};
use crate::configurations::Configurations;
use crate::load::{self, LoadPlan, LoadResult};
use crate::origin::{ConnectionRules, Origin, OriginOptions, Record};
use crate::scratch::Folder;
use crate::wan::{Relay, Wan};

/// Time for which the server keeps an idle connection, if it keeps connections.
const SERVER_IDLE: Duration = Duration::from_secs(300);

/// Time that a loaded server spends on each new connection, mean number of connections that it accepts at once, as the
/// event loop of a busy server does, and number of connections that may wait for that. New connections then wait about
/// 80 ms, and further ones are tried again by the kernel of the client after 1 s, 3 s, 7 s.
const ACCEPT_TIME: Duration = Duration::from_millis(5);
const ACCEPTS_AT_ONCE: u64 = 4;
const WAITING: u32 = 16;

/// New connections per second of the other clients of a loaded server: about a sixth more than the server accepts.
const CROWD_RATE: f64 = 235.0;

/// Most concurrent connections of the other clients, and time after which one of them gives up: before its kernel would
/// try a refused connection again, because further tries would add to the overload until hardly anybody gets through.
const CROWD: usize = 1000;
const CROWD_TIMEOUT: f64 = 0.9;

/// Path of the requests of the other clients.
const CROWD_PATH: &str = "/offset/100";

/// Longest wait until the server is loaded, and time for which its load goes on after that of the proxy has begun.
const LOADED_TIMEOUT: Duration = Duration::from_secs(10);
const LOAD_MARGIN: f64 = 12.0;

/// Seconds within which a response must be complete.
const TIMEOUT: f64 = 60.0;

/// Most connections, and requests of each, that a measurement lists.
const CONNECTIONS_LISTED: usize = 60;
const REQUESTS_LISTED: usize = 200;

/// The emulated link.
pub(super) enum TestBed {
    /// Two network namespaces, with the proxy and its clients at the near end, and the server at the far end.
    Wan(Box<Wan>),
    /// A relay in front of each server, since no emulator can be started.
    Relay,
}

/// The server of one measurement.
struct Far {
    origin: Origin,
    /// Address to which the proxy connects.
    address: SocketAddr,
    _relay: Option<Relay>,
}

/// The kernel's view of both ends of the link.
#[derive(Default)]
struct Samples {
    near: Vec<SocketSample>,
    far: Vec<SocketSample>,
}

impl TestBed {
    pub(super) fn start(options: &Options) -> anyhow::Result<TestBed> {
        Ok(match options.relay {
            true => TestBed::Relay,
            false => TestBed::Wan(Box::new(Wan::start(&options.profile, options.seed)?)),
        })
    }

    /// Returns the name of the server's congestion control, of which the times of responses depend: `bbr` spreads the
    /// packets of a response over time, `cubic` does not. `None` if the kernel does not say.
    pub(super) fn congestion_control(&self) -> Option<String> {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        let name = self.far(read).ok()?.ok()?;
        Some(name.trim().to_owned())
    }

    /// Measures a proxy with the settings of a case. The proxy's configuration is added to `configurations`.
    pub(super) fn measure(
        &self,
        proxy: &ProxyKind,
        case: Case,
        options: &Options,
        configurations: &mut Configurations,
    ) -> anyhow::Result<Measurement> {
        let folder = Folder::new("lab-keepalive-")?;
        let log = folder.path().join("access.log");
        let far = self.far_server(case, options)?;
        let seconds = options.seconds_of(case);
        thread::scope(|scope| {
            let crowd = scope.spawn(|| self.crowd(case, &far, seconds));
            let measured = self.measure_loaded(proxy, case, options, &far, &log, configurations);
            let crowd = crowd.join();
            let measured = measured?;
            crowd.map_err(|_| anyhow::anyhow!("the server's other clients panicked"))??;
            Ok(measured)
        })
    }

    /// Measures a proxy while the server has the load of the case.
    fn measure_loaded(
        &self,
        proxy: &ProxyKind,
        case: Case,
        options: &Options,
        far: &Far,
        log: &Path,
        configurations: &mut Configurations,
    ) -> anyhow::Result<Measurement> {
        if case.load == Load::Heavy {
            let enough = |record: &Record| record.connections.len() > 2 * WAITING as usize;
            let is_loaded = far.origin.wait_for(enough, LOADED_TIMEOUT);
            anyhow::ensure!(is_loaded, "the server's other clients do not connect");
        }
        let running = self.near(|| proxy.start(case, far.address, log))??;
        configurations.keep(proxy.name(), running.configuration());
        let (began, unix) = (Instant::now(), unix_now()?);
        let (load, samples) = self.load(running.address(), case, options, far, began)?;
        // The end of the proxy completes its access log.
        drop(running);
        let text = std::fs::read_to_string(log).context("the proxy's access log")?;
        let lines = series::parse(&text, proxy.logs_beginning())?;
        let path = path();
        let (opened, connections) = far
            .origin
            .read_record(|record| connections(record, &path, began));
        Ok(Measurement {
            proxy: proxy.name().to_owned(),
            case: case.name.to_owned(),
            load: case.load,
            upstream_keepalive: case.upstream_keepalive,
            close_requests: proxy.closes_requests(case),
            server_keeps: case.server_keeps,
            requests: load.requests,
            errors: load.errors.total(),
            seconds: load.seconds,
            opened,
            reused: load.requests.saturating_sub(opened),
            series: series::series(lines.iter()),
            windows: series::windows(&lines, unix, options.seconds_of(case)),
            near: samples.near,
            far: samples.far,
            connections,
        })
    }

    /// Runs the proxy's clients, and samples the connections between proxy and server.
    fn load(
        &self,
        proxy: SocketAddr,
        case: Case,
        options: &Options,
        far: &Far,
        began: Instant,
    ) -> anyhow::Result<(LoadResult, Samples)> {
        let plan = LoadPlan {
            connections: options.clients,
            seconds: Some(options.seconds_of(case)),
            expect_length: Some(BODY),
            timeout_seconds: TIMEOUT,
            ..LoadPlan::new(proxy, &path())
        };
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            let sampling = scope.spawn(|| self.sample(far, began, &stopped));
            let load = self.near(|| load::run_apart(plan));
            stopped.store(true, Ordering::Relaxed);
            let samples = sampling.join();
            let samples = samples.map_err(|_| anyhow::anyhow!("the sampling panicked"))??;
            Ok((load??, samples))
        })
    }

    /// Samples both ends of the link until `stopped`. Over a relay there is no link to sample.
    fn sample(&self, far: &Far, began: Instant, stopped: &AtomicBool) -> anyhow::Result<Samples> {
        let TestBed::Wan(wan) = self else {
            return Ok(Samples::default());
        };
        let port = far.address.port();
        let place = |peer: std::net::Ipv4Addr, is_server| {
            let [first, second, ..] = peer.octets();
            Place {
                port,
                peers: [first, second],
                is_server,
            }
        };
        let near = place(wan.far().address(), false);
        let far = place(wan.near().address(), true);
        thread::scope(|scope| {
            let nearby = scope.spawn(|| wan.near().run(|| sockets::sample(near, began, stopped)));
            let far = wan.far().run(|| sockets::sample(far, began, stopped))?;
            let near = nearby.join();
            let near = near.map_err(|_| anyhow::anyhow!("the sampling panicked"))??;
            Ok(Samples { near, far })
        })
    }

    /// Calls `work` at the end of the link at which the proxy is.
    fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            TestBed::Wan(wan) => wan.near().run(work),
            TestBed::Relay => Ok(work()),
        }
    }

    /// Calls `work` at the end of the link at which the server is.
    fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self {
            TestBed::Wan(wan) => wan.far().run(work),
            TestBed::Relay => Ok(work()),
        }
    }

    /// Starts the server of a case.
    fn far_server(&self, case: Case, options: &Options) -> anyhow::Result<Far> {
        let address: IpAddr = match self {
            TestBed::Wan(wan) => wan.far().address().into(),
            TestBed::Relay => [127, 0, 0, 1].into(),
        };
        let is_loaded = case.load == Load::Heavy;
        let origin = OriginOptions {
            address: SocketAddr::new(address, 0),
            rules: ConnectionRules {
                keepalive: case.server_keeps,
                idle_timeout: Some(SERVER_IDLE),
                max_requests: Some(case.requests_per_connection),
                accept_time: if is_loaded {
                    ACCEPT_TIME
                } else {
                    Duration::ZERO
                },
                accepts_at_once: ACCEPTS_AT_ONCE,
                ..ConnectionRules::default()
            },
            backlog: is_loaded.then_some(WAITING),
            ..OriginOptions::default()
        };
        let origin = self.far(|| Origin::start(origin))??;
        let relay = match self {
            TestBed::Wan(_) => None,
            TestBed::Relay => Some(Relay::start(&options.profile, origin.addr(), options.seed)?),
        };
        Ok(Far {
            address: relay.as_ref().map_or(origin.addr(), Relay::addr),
            origin,
            _relay: relay,
        })
    }

    /// Runs the other clients of a loaded server, from before the proxy's clients until after these.
    fn crowd(&self, case: Case, far: &Far, seconds: f64) -> anyhow::Result<()> {
        if case.load == Load::Idle {
            return Ok(());
        }
        let plan = LoadPlan {
            connections: CROWD,
            keepalive: false,
            rate: Some(CROWD_RATE),
            seconds: Some(seconds + LOAD_MARGIN),
            timeout_seconds: CROWD_TIMEOUT,
            // Most of the connections fail: the server is overloaded on purpose.
            consecutive_errors_max: None,
            ..LoadPlan::new(far.origin.addr(), CROWD_PATH)
        };
        self.far(|| load::run_apart(plan))??;
        Ok(())
    }
}

/// Returns the path of the proxy's requests.
fn path() -> String {
    format!("/offset/{BODY}")
}

fn unix_now() -> anyhow::Result<f64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(since.context("the clock is before 1970")?.as_secs_f64())
}

/// Returns the number of connections that carried requests for `path`, and the first of these connections with their
/// requests.
fn connections(record: &Record, path: &str, began: Instant) -> (u64, Vec<Connection>) {
    let at = |time: Instant| time.saturating_duration_since(began).as_secs_f64();
    let mut listed: Vec<Connection> = Vec::new();
    let mut opened = 0;
    for one in &record.connections {
        let mut requests = record
            .requests
            .iter()
            .filter(|seen| seen.connection == one.id && seen.path() == path)
            .peekable();
        if requests.peek().is_none() {
            continue;
        }
        opened += 1;
        if listed.len() < CONNECTIONS_LISTED {
            let times = requests.map(|seen| (at(seen.at), seen.ended.map(at)));
            listed.push(Connection {
                number: opened,
                begin: at(one.at),
                end: one.closed.map(at),
                requests: times.take(REQUESTS_LISTED).collect(),
            });
        }
    }
    (opened, listed)
}
