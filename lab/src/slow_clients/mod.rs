//! The experiment of slow clients: a thousand of each kind hang on to a server, while an ordinary client goes on asking.
//! What does it notice, and when are they cut?

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
use crate::figures::{self, Figure, Measured, Spec};
use crate::load::{self, Latency, LoadPlan};
use crate::origin::{Origin, OriginOptions, Resource};
use crate::process::pin_to_core;
use crate::rivals::Nginx;
use crate::{LOAD_CORE, SERVER_CORE};

pub use kind::Kind;

use crowd::{Crowd, Fate};

/// Small files, for the ordinary client.
const FILES: u64 = 100;
const LENGTH: u64 = 5 << 10;

/// Bytes of the file that slow readers get: far more than a socket's buffers take.
const BIG: usize = 16 << 20;

/// Requests of the ordinary client that may be on their way at once.
const CONNECTIONS: usize = 1000;

/// How far slow clients, and the origin of what they post, stand behind the ordinary client on their core.
const NICE: i32 = 10;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Whether nginx, with its own time limits, goes through the same; it is an error then if it is not installed.
    pub nginx: bool,
    /// And nginx with time limits such as guides for hardening it give.
    pub hardened: bool,
    /// Clients of each kind.
    pub each: usize,
    /// Kinds of clients; all if there are none.
    pub kinds: Vec<Kind>,
    /// One kind after the other, instead of all at once.
    pub one_by_one: bool,
    /// How long they stay.
    pub seconds: f64,
    /// How long the ordinary client is alone before.
    pub quiet_seconds: f64,
    /// Requests a second of the ordinary client.
    pub rate: f64,
    /// Sluice's time limits for heads, bodies and readers in seconds, where they are not left at their defaults, and those
    /// of the hardened nginx.
    pub limit: Option<u32>,
}

impl Options {
    /// A thousand of each kind for 75 seconds, longer than all of nginx's own time limits, Sluice alone.
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

    /// A few clients for a few seconds, and time limits of one second, to see that it works.
    pub fn quick(self) -> Options {
        Options {
            each: self.each.min(10),
            seconds: 8.0,
            quiet_seconds: 0.5,
            limit: Some(1),
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
            "1 to 5000 requests a second"
        );
        Ok(())
    }

    /// Who comes at once.
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

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Clients of each kind.
    pub each: usize,
    /// How long they stayed.
    pub seconds: f64,
    /// Requests a second of the ordinary client.
    pub rate: f64,
    /// The rival's name and version, if one was measured.
    pub rival: Option<String>,
    /// Figures and goals; the worst of all crowds.
    pub figures: Vec<Figure>,
    /// Each server under each crowd.
    pub sieges: Vec<Siege>,
}

/// One server under one crowd.
#[derive(Debug, Clone, Serialize)]
pub struct Siege {
    /// The server.
    pub name: String,
    /// What the ordinary client had to wait when it was alone.
    pub quiet: Latency,
    /// And when it was not.
    pub under: Latency,
    /// Its requests then, and those that were not answered well.
    pub requests: u64,
    /// Of both.
    pub errors: u64,
    /// Resident bytes of the server, before and at most.
    pub memory: (u64, u64),
    /// Seconds of CPU time that it took meanwhile.
    pub cpu_seconds: f64,
    /// What befell the slow clients.
    pub kinds: Vec<KindRow>,
}

/// What befell the clients of a kind.
#[derive(Debug, Clone, Serialize)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// How many connections were cut. Who is cut comes again a second later.
    pub cut: u64,
    /// Seconds from the first byte to the cut: least, median, most.
    pub after: Option<(f64, f64, f64)>,
    /// Clients that were never cut.
    pub never: u64,
    /// Connections that did not come to be.
    pub refused: u64,
    /// Statuses that came before the end, and how often.
    pub statuses: BTreeMap<u16, u64>,
}

/// Measures, with lines of progress for `tell`.
///
/// Errors: options out of bounds, a rival that is not installed, less than two cores, or a server that does not start.
pub fn run(options: &Options, tell: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Report> {
    options.check()?;
    anyhow::ensure!(
        thread::available_parallelism()?.get() > LOAD_CORE,
        "needs two cores: one for the server, one for the clients"
    );
    raise_descriptor_limit()?;
    let nginx = options.nginx || options.hardened;
    let asked: &[Rival] = if nginx { &[Rival::Nginx] } else { &[] };
    let rivals = caches::rivals(asked, &[])?;
    // Origin and clients must not run where the server does.
    let sieges = thread::scope(|scope| {
        scope
            .spawn(|| {
                pin_to_core(LOAD_CORE)?;
                all_sieges(options, tell)
            })
            .join()
    });
    let sieges = sieges.map_err(|_| anyhow::anyhow!("it panicked"))??;
    Ok(Report {
        each: options.each,
        seconds: options.seconds,
        rate: options.rate,
        rival: rivals.versions.into_iter().next(),
        figures: compared(&sieges),
        sieges,
    })
}

const SLUICE: &str = "Sluice";
const NGINX: &str = "nginx";
const HARDENED: &str = "nginx, hardened";

/// What guides give as nginx's time limits against slow clients.
const HARD_SECONDS: u32 = 10;

/// What cuts slow clients.
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

fn all_sieges(options: &Options, tell: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Vec<Siege>> {
    let folder = tempfile::Builder::new().prefix("lab-slow-").tempdir()?;
    pages::offset_files(folder.path(), FILES, LENGTH as usize)?;
    let big = crate::offset::offset_bytes(0, BIG);
    std::fs::write(folder.path().join(kind::BIG.trim_start_matches('/')), big)?;
    let origin = thread::scope(|scope| {
        let origin = scope.spawn(|| {
            stand_back();
            Origin::start(OriginOptions {
                forget: true,
                ..OriginOptions::default()
            })
        });
        origin.join().map_err(|_| anyhow::anyhow!("it panicked"))?
    })?;
    origin.serve(kind::UPLOAD, Resource::offset(1));
    let mut names = vec![SLUICE];
    names.extend(options.nginx.then_some(NGINX));
    names.extend(options.hardened.then_some(HARDENED));
    let mut sieges = Vec::new();
    for kinds in options.crowds() {
        for name in &names {
            let server = start(options, name, folder.path(), &origin)?;
            let siege = besiege(options, name, &server, &kinds, tell)?;
            origin.drop_connections();
            sieges.push(siege);
        }
    }
    Ok(sieges)
}

/// A server with its own limits, files, and a route that takes bodies.
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
    Ok(Server::Nginx(Nginx::start(&nginx)?))
}

/// Has this thread, and those that it starts, let the ordinary client go first, whose core they share. Where that is
/// refused, its figures are a little worse.
fn stand_back() {
    let _ = rustix::process::nice(NICE);
}

fn besiege(
    options: &Options,
    name: &str,
    server: &Server,
    kinds: &[Kind],
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Siege> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    tell(&format!(
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
    let (under, most, fates) = thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            stand_back();
            crowd.run(&over)
        });
        let load = scope.spawn(|| ordinary(options.seconds));
        let mut most = before;
        while !load.is_finished() {
            most = most.max(server.process().memory().map_or(0, |memory| memory.rss));
            thread::sleep(LOOK);
        }
        over.store(true, Ordering::Relaxed);
        let under = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))??;
        let fates = crowd
            .join()
            .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        anyhow::Ok((under, most, fates))
    })?;
    let siege = Siege {
        name: name.to_owned(),
        requests: under.requests,
        errors: quiet.errors.total() + under.errors.total(),
        memory: (before, most),
        cpu_seconds: server.process().cpu()?.saturating_sub(cpu).as_secs_f64(),
        kinds: kinds.iter().map(|kind| row(*kind, &fates)).collect(),
        quiet: quiet.latency,
        under: under.latency,
    };
    tell(&siege.line());
    Ok(siege)
}

fn row(kind: Kind, fates: &[Fate]) -> KindRow {
    let fate = &fates[kind as usize];
    let mut cut = fate.cut.clone();
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
        never: fate.never,
        refused: fate.refused,
        statuses: fate.statuses.clone(),
    }
}

fn compared(sieges: &[Siege]) -> Vec<Figure> {
    let specs = vec![
        Spec::new("p99", "ordinary client: p99", "ms").most(2.0),
        Spec::new("longest", "ordinary client: longest", "ms").most(50.0),
        Spec::new("errors", "ordinary client: not answered well", "requests").most(0.0),
        Spec::new("never", "slow clients that were never cut", "clients").most(0.0),
        Spec::new("latest", "latest cut", "s"),
        Spec::new("memory", "growth of resident memory", "MB"),
    ];
    let of = |name: &str| {
        let mut measured = Measured::default();
        let all: Vec<&Siege> = sieges.iter().filter(|siege| siege.name == name).collect();
        let mut worst = |key, of: &dyn Fn(&Siege) -> f64| {
            let figures = all.iter().map(|siege| of(siege));
            if let Some(most) = figures.reduce(f64::max) {
                measured.put(key, most);
            }
        };
        worst("p99", &|siege| siege.under.p99_us / 1000.0);
        worst("longest", &|siege| siege.under.max_us / 1000.0);
        worst("errors", &|siege| siege.errors as f64);
        worst("never", &|siege| siege.never() as f64);
        worst("latest", &|siege| siege.latest());
        worst("memory", &|siege| {
            siege.memory.1.saturating_sub(siege.memory.0) as f64 / 1e6
        });
        measured
    };
    let rival = sieges.iter().any(|siege| siege.name == NGINX);
    figures::compare(specs, &of(SLUICE), rival.then(|| of(NGINX)).as_ref())
}
