//! The slow-clients experiment: thousands of slow clients hold connections while an ordinary client sends requests.
//! Measures the ordinary client's latency, and when slow clients are cut.

mod crowd;
mod kind;
mod report;
mod sockets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::bench::contest::{SOURCES, Server};
use crate::bench::{Files, Route, Sluice, pages, raise_descriptor_limit, statics};
use crate::caches::{self, Rival};
use crate::configurations::Configurations;
use crate::figures::{self, Figure, Measured, Spec};
use crate::load::{self, Latency, LoadPlan};
use crate::origin::{Origin, OriginOptions, Resource};
use crate::process::pin_to_core;
use crate::scratch::Folder;
use crate::{LOAD_CORE, SERVER_CORE};

pub use kind::Kind;

use crowd::{Crowd, KindCounters};

/// Number of small files for the ordinary client, and size of each in bytes.
const FILES: u64 = 100;
const LENGTH: u64 = 5 << 10;

/// Size in bytes of the large file: far more than socket buffers hold.
const BIG: usize = 16 << 20;

/// Maximum number of concurrent requests of the ordinary client.
const CONNECTIONS: usize = 1000;

/// Nice value of the slow clients and the upload origin, so that the ordinary client has priority on their core.
const NICE: i32 = 10;

/// Interval between two samples of the server's memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx, which must be installed then, is measured as well, with its default time limits.
    pub nginx: bool,
    /// Whether nginx is also measured with short time limits, as recommended in hardening guides.
    pub hardened: bool,
    /// Number of clients of each kind.
    pub each: usize,
    /// Kinds of clients; if empty, all.
    pub kinds: Vec<Kind>,
    /// Whether the kinds run one after the other instead of all at once.
    pub one_by_one: bool,
    /// Seconds for which the slow clients stay.
    pub seconds: f64,
    /// Seconds for which the ordinary client runs alone before that.
    pub quiet_seconds: f64,
    /// Requests per second of the ordinary client.
    pub rate: f64,
    /// Time limits in seconds of Sluice (for heads, bodies, and clients that do not read) and of the hardened nginx;
    /// `None`: defaults.
    pub limit: Option<u32>,
}

impl Options {
    /// Returns options for 1,000 clients of each kind for 75 seconds, which is longer than nginx's time limits, with
    /// Sluice alone.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            nginx: false,
            hardened: false,
            each: 1000,
            kinds: Vec::new(),
            one_by_one: false,
            seconds: 75.0,
            quiet_seconds: 5.0,
            rate: 200.0,
            limit: None,
        }
    }

    /// Reduces the experiment to a few clients, a few seconds and short time limits, only to show that it works. A
    /// machine that pauses for some seconds changes nothing.
    pub fn quick(self) -> Options {
        Options {
            each: self.each.min(10),
            seconds: 18.0,
            quiet_seconds: 0.5,
            limit: Some(6),
            ..self
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!((1..=3000).contains(&self.each), "1 to 3000 clients");
        let seconds = [self.seconds, self.quiet_seconds];
        anyhow::ensure!(
            seconds.iter().all(|one| (0.1..=3600.0).contains(one)),
            "0.1 to 3600 seconds"
        );
        anyhow::ensure!(
            (1.0..=5000.0).contains(&self.rate),
            "1 to 5000 requests per second"
        );
        Ok(())
    }

    /// Returns the groups of kinds that run at the same time.
    fn crowds(&self) -> Vec<Vec<Kind>> {
        let kinds = match self.kinds.is_empty() {
            true => Kind::ALL.to_vec(),
            false => self.kinds.clone(),
        };
        match self.one_by_one {
            true => kinds.into_iter().map(|kind| vec![kind]).collect(),
            false => vec![kinds],
        }
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of clients of each kind.
    pub each: usize,
    /// Seconds for which the slow clients stayed.
    pub seconds: f64,
    /// Requests per second of the ordinary client.
    pub rate: f64,
    /// Name and version of the rival, if one was measured.
    pub rival: Option<String>,
    /// Figures with their goals. Each value is the worst of all groups of kinds.
    pub figures: Vec<Figure>,
    /// Results of each server with each group of kinds.
    pub sieges: Vec<Siege>,
    /// Configurations of the servers.
    pub configurations: Configurations,
}

/// Results of one server with one group of kinds.
#[derive(Debug, Clone, Serialize)]
pub struct Siege {
    /// Name of the server.
    pub name: String,
    /// Latency of the good responses to the ordinary client alone; in JSON null if there are none.
    #[serde(serialize_with = "load::serialize_latency")]
    pub quiet: Latency,
    /// Latency of the good responses to the ordinary client among the slow clients; in JSON null if there are none.
    #[serde(serialize_with = "load::serialize_latency")]
    pub under: Latency,
    /// Number of good responses to the ordinary client among the slow clients.
    pub requests: u64,
    /// Failed requests of the ordinary client, alone and among the slow clients.
    pub errors: u64,
    /// Resident memory of the server in bytes: before, and maximum.
    pub memory: (u64, u64),
    /// CPU time in seconds that the server used among the slow clients.
    pub cpu_seconds: f64,
    /// Results of each kind of slow clients.
    pub kinds: Vec<KindRow>,
}

/// Results of one kind of slow clients.
#[derive(Debug, Clone, Serialize)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// Number of connections that were cut. A client reconnects one second after a cut.
    pub cut: u64,
    /// Seconds from the first byte to the cut: minimum, median, maximum.
    pub after: Option<(f64, f64, f64)>,
    /// Number of clients that were never cut.
    pub never: u64,
    /// Number of failed connection attempts.
    pub refused: u64,
    /// Statuses received before the end of a connection, and their numbers.
    pub statuses: BTreeMap<u16, u64>,
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds, a rival that is not installed, fewer than two cores, or a server that does not
/// start.
pub fn run(options: &Options, progress: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Report> {
    options.check()?;
    anyhow::ensure!(
        thread::available_parallelism()?.get() > LOAD_CORE,
        "needs two cores: one for the server, one for the clients"
    );
    raise_descriptor_limit()?;
    let nginx = options.nginx || options.hardened;
    let required: &[Rival] = if nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(required, &[])?;
    // Origin and clients must not run on the server's core.
    let sieges = thread::scope(|scope| {
        scope
            .spawn(|| {
                pin_to_core(LOAD_CORE)?;
                all_sieges(options, progress)
            })
            .join()
    });
    let (sieges, configurations) = sieges.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    Ok(Report {
        each: options.each,
        seconds: options.seconds,
        rate: options.rate,
        rival: rivals.versions.into_iter().next(),
        figures: compared(&sieges),
        sieges,
        configurations,
    })
}

const SLUICE: &str = "Sluice";
const NGINX: &str = "nginx";
const HARDENED: &str = "nginx, hardened";

/// Time limits in seconds that hardening guides recommend for nginx.
const HARD_SECONDS: u32 = 10;

/// Returns Sluice's settings that cut slow clients.
fn sluice_limits(seconds: u32) -> impl Iterator<Item = (String, String)> {
    let names = [
        "header_timeout",
        "body_timeout",
        "send_timeout",
        "min_rate_grace",
    ];
    names
        .into_iter()
        .map(move |name| (name.to_owned(), format!("\"{seconds}s\"")))
}

/// Measures all servers with all groups of kinds. Also returns the servers' configurations.
fn all_sieges(
    options: &Options,
    progress: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<(Vec<Siege>, Configurations)> {
    let folder = Folder::new("lab-slow-")?;
    pages::offset_files(folder.path(), FILES, LENGTH as usize)?;
    let big = crate::offset::offset_bytes(0, BIG);
    std::fs::write(folder.path().join(kind::BIG.trim_start_matches('/')), big)?;
    let origin = thread::scope(|scope| {
        let origin = scope.spawn(|| {
            lower_priority();
            Origin::start(OriginOptions {
                forget: true,
                ..OriginOptions::default()
            })
        });
        origin
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })?;
    origin.serve(kind::UPLOAD, Resource::offset(1));
    let mut names = vec![SLUICE];
    names.extend(options.nginx.then_some(NGINX));
    names.extend(options.hardened.then_some(HARDENED));
    let (mut sieges, mut configurations) = (Vec::new(), Configurations::default());
    for kinds in options.crowds() {
        for name in &names {
            let server = start(options, name, folder.path(), &origin)?;
            configurations.keep(name, server.configuration());
            let siege = measure(options, name, &server, &kinds, progress)?;
            origin.drop_connections();
            sieges.push(siege);
        }
    }
    Ok((sieges, configurations))
}

/// Starts a server with its limits, the files, and a route for uploads.
fn start(options: &Options, name: &str, root: &Path, origin: &Origin) -> anyhow::Result<Server> {
    if name == SLUICE {
        let mut sluice = statics::sluice_files(&options.program, Files::new(root));
        let limit = options.limit.into_iter().flat_map(sluice_limits);
        sluice.limits = limit.collect();
        sluice.core = Some(SERVER_CORE);
        sluice.routes = vec![Route {
            path: kind::UPLOAD.to_owned(),
            origin: origin.addr(),
            cached: false,
        }];
        return Ok(Server::Sluice(Box::new(Sluice::start(&sluice)?)));
    }
    let mut nginx = statics::nginx_files(root).directive("keepalive_timeout", "75s");
    nginx.origin = Some(origin.addr());
    nginx.plain = Some(kind::UPLOAD.to_owned());
    nginx.core = Some(SERVER_CORE);
    if name == HARDENED {
        for limit in [
            "client_header_timeout",
            "client_body_timeout",
            "send_timeout",
        ] {
            let seconds = format!("{}s", options.limit.unwrap_or(HARD_SECONDS));
            nginx = nginx.directive(limit, &seconds);
        }
        nginx = nginx.directive("reset_timedout_connection", "on");
    }
    Ok(Server::Rival(nginx.start()?))
}

/// Lowers the priority of this thread and of threads that it starts, so that the ordinary client on the same core
/// goes first. If this fails, the ordinary client's figures are slightly worse.
fn lower_priority() {
    let _ = rustix::process::nice(NICE);
}

fn measure(
    options: &Options,
    name: &str,
    server: &Server,
    kinds: &[Kind],
    progress: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Siege> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    progress(&format!(
        "{name}: {} each of {} for {} s",
        options.each,
        names.join(", "),
        options.seconds
    ));
    let ordinary = |seconds: f64| {
        load::run_apart(LoadPlan {
            numbers: Some((0, FILES)),
            connections: CONNECTIONS,
            keepalive: false,
            sources: SOURCES,
            rate: Some(options.rate),
            seconds: Some(seconds),
            expect_length: Some(LENGTH),
            core: Some(LOAD_CORE),
            ..LoadPlan::new(server.address(), "/{n}")
        })
    };
    ordinary(0.2)?;
    let quiet = ordinary(options.quiet_seconds)?;
    let before = server.process().memory()?.rss;
    let cpu = server.process().cpu()?;
    let crowd = Crowd::new(server.address(), kinds, options.each)?;
    let over = AtomicBool::new(false);
    let (under, most, counters) = thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            lower_priority();
            crowd.run(&over)
        });
        let load = scope.spawn(|| ordinary(options.seconds));
        let mut most = before;
        while !load.is_finished() {
            most = most.max(server.process().memory().map_or(0, |memory| memory.rss));
            thread::sleep(MEMORY_INTERVAL);
        }
        over.store(true, Ordering::Relaxed);
        let under = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))??;
        let counters = crowd
            .join()
            .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        anyhow::Ok((under, most, counters))
    })?;
    let siege = Siege {
        name: name.to_owned(),
        requests: under.requests,
        errors: quiet.errors.total() + under.errors.total(),
        memory: (before, most),
        cpu_seconds: server.process().cpu()?.saturating_sub(cpu).as_secs_f64(),
        kinds: kinds.iter().map(|kind| row(*kind, &counters)).collect(),
        quiet: quiet.latency,
        under: under.latency,
    };
    progress(&siege.line());
    Ok(siege)
}

fn row(kind: Kind, counters: &[KindCounters]) -> KindRow {
    let counters = &counters[kind as usize];
    let mut cut = counters.cut.clone();
    cut.sort_by(f64::total_cmp);
    let after = match &cut[..] {
        [] => None,
        [first, .., last] => Some((*first, cut[cut.len() / 2], *last)),
        [only] => Some((*only, *only, *only)),
    };
    KindRow {
        kind,
        cut: cut.len() as u64,
        after,
        never: counters.never,
        refused: counters.refused,
        statuses: counters.statuses.clone(),
    }
}

fn compared(sieges: &[Siege]) -> Vec<Figure> {
    let specs = vec![
        Spec::new("p99", "ordinary client: p99", "ms").most(2.0),
        Spec::new("longest", "ordinary client: longest", "ms").most(50.0),
        Spec::new("errors", "ordinary client: failed", "requests").most(0.0),
        Spec::new("never", "slow clients that were never cut", "clients").most(0.0),
        Spec::new("latest", "latest cut", "s"),
        Spec::new("memory", "growth of resident memory", "MB"),
    ];
    let of = |name: &str| {
        let mut measured = Measured::default();
        let all: Vec<&Siege> = sieges.iter().filter(|siege| siege.name == name).collect();
        let mut worst = |key, of: &dyn Fn(&Siege) -> Option<f64>| {
            let figures: Option<Vec<f64>> = all.iter().map(|siege| of(siege)).collect();
            let most = figures.and_then(|figures| figures.into_iter().reduce(f64::max));
            if let Some(most) = most {
                measured.put(key, most);
            }
        };
        // Without a good response there is no latency. An unknown latency may be the worst one.
        let latency = |siege: &Siege, us: f64| (!siege.under.is_empty()).then_some(us / 1000.0);
        worst("p99", &|siege| latency(siege, siege.under.p99_us));
        worst("longest", &|siege| latency(siege, siege.under.max_us));
        worst("errors", &|siege| Some(siege.errors as f64));
        worst("never", &|siege| Some(siege.never() as f64));
        worst("latest", &|siege| Some(siege.latest()));
        worst("memory", &|siege| {
            Some(siege.memory.1.saturating_sub(siege.memory.0) as f64 / 1e6)
        });
        measured
    };
    let rival = sieges.iter().any(|siege| siege.name == NGINX);
    figures::compare(specs, &of(SLUICE), rival.then(|| of(NGINX)).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siege(name: &str, p99_us: f64) -> Siege {
        let latency = Latency {
            p50_us: p99_us / 2.0,
            p99_us,
            max_us: p99_us * 2.0,
            ..Latency::default()
        };
        Siege {
            name: name.to_owned(),
            quiet: latency,
            under: latency,
            requests: 100,
            errors: 3,
            memory: (1_000_000, 3_000_000),
            cpu_seconds: 0.5,
            kinds: Vec::new(),
        }
    }

    fn value(sieges: &[Siege], key: &str) -> Option<f64> {
        let figures = compared(sieges);
        let found = figures.iter().find(|figure| figure.spec.key == key);
        found.expect("a figure").sluice
    }

    #[test]
    fn a_latency_without_good_responses_is_not_measured() {
        let good = [siege(SLUICE, 1000.0), siege(SLUICE, 2000.0)];
        assert_eq!(value(&good, "p99"), Some(2.0));
        assert_eq!(value(&good, "longest"), Some(4.0));
        let refused = [siege(SLUICE, 1000.0), siege(SLUICE, 0.0)];
        assert_eq!(value(&refused, "p99"), None);
        assert_eq!(value(&refused, "longest"), None);
        assert_eq!(value(&refused, "errors"), Some(3.0));
        let all = compared(&refused);
        let missed: Vec<_> = figures::missed(&all).map(|one| one.spec.key).collect();
        assert_eq!(missed, ["p99", "longest", "errors"]);
        let json = serde_json::to_value(&refused[1]).expect("JSON");
        assert!(json["quiet"].is_null() && json["under"].is_null(), "{json}");
        let report = Report {
            each: 10,
            seconds: 5.0,
            rate: 200.0,
            rival: None,
            figures: Vec::new(),
            sieges: refused.into(),
            configurations: Configurations::default(),
        };
        let table = report.render();
        let rows = table.lines().filter(|line| line.starts_with(SLUICE));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1][2..5], ["0.50", "1.00", "2.00"], "{table}");
        assert_eq!(rows[3][2..5], ["-", "-", "-"], "{table}");
    }
}
