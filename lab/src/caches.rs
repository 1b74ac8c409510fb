//! The caches that experiments compare. Each is started in front of an origin and receives requests at an address.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::bench::{Sluice, SluiceOptions};
use crate::rivals::{Nginx, NginxMode, NginxOptions, Varnish};

/// A cache of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rival {
    /// nginx.
    Nginx,
    /// Varnish.
    Varnish,
}

impl FromStr for Rival {
    type Err = String;

    fn from_str(name: &str) -> Result<Rival, String> {
        match name {
            "nginx" => Ok(Rival::Nginx),
            "varnish" => Ok(Rival::Varnish),
            _ => Err("nginx or varnish".to_owned()),
        }
    }
}

impl Rival {
    /// All rivals.
    pub const ALL: [Rival; 2] = [Rival::Nginx, Rival::Varnish];

    /// Returns the name and installed version, as in `nginx 1.22.1`. Fails if the rival is not installed.
    pub fn version(self) -> anyhow::Result<String> {
        Ok(match self {
            Rival::Nginx => format!("nginx {}", Nginx::version()?),
            Rival::Varnish => format!("Varnish {}", Varnish::version()?),
        })
    }
}

/// A cache that can be started.
#[derive(Debug, Clone)]
pub enum Cache {
    /// No cache: clients send their requests to the origin. Shows the best values that a cache can reach.
    Direct,
    /// Sluice.
    Sluice(SluiceCache),
    /// nginx in this mode.
    Nginx(NginxMode),
    /// Varnish in its default configuration.
    Varnish,
}

/// Configuration of Sluice.
#[derive(Debug, Clone)]
pub struct SluiceCache {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Fill mode: `whole`, `lock`, `slice` or `auto`.
    pub fill: String,
    /// Size of a block in bytes; only for fill modes that fetch by block.
    pub slice: Option<u64>,
    /// Value of `client_budget` in bytes; 0: no limit; `None`: Sluice's default.
    pub client_budget: Option<u64>,
}

/// Size of the cache and number of worker threads, the same for each server.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Size of the cache in bytes.
    pub memory: u64,
    /// Number of worker threads or processes; Varnish ignores it.
    pub workers: usize,
}

/// A running cache. Dropping it ends the process.
#[derive(Debug)]
pub enum Running {
    /// No process; the address of the origin.
    Direct(SocketAddr),
    /// Sluice.
    Sluice(Box<Sluice>),
    /// nginx.
    Nginx(Nginx),
    /// Varnish.
    Varnish(Varnish),
}

impl Running {
    /// Returns the address to which clients connect.
    pub fn addr(&self) -> SocketAddr {
        match self {
            Running::Direct(origin) => *origin,
            Running::Sluice(sluice) => sluice.addr(),
            Running::Nginx(nginx) => nginx.addr(),
            Running::Varnish(varnish) => varnish.addr(),
        }
    }
}

impl Cache {
    /// Returns the name of the cache in tables.
    pub fn name(&self) -> String {
        match self {
            Cache::Direct => "origin".to_owned(),
            Cache::Sluice(sluice) => format!("Sluice {}", sluice.fill),
            Cache::Nginx(NginxMode::Cached) => "nginx whole".to_owned(),
            Cache::Nginx(NginxMode::Locked) => "nginx lock".to_owned(),
            Cache::Nginx(NginxMode::Sliced(_)) => "nginx slice".to_owned(),
            Cache::Nginx(NginxMode::SlicedLocked(_)) => "nginx slice+lock".to_owned(),
            Cache::Nginx(NginxMode::Graceful(_)) => "nginx graceful".to_owned(),
            Cache::Nginx(NginxMode::Proxy | NginxMode::Static(_)) => "nginx".to_owned(),
            Cache::Varnish => "Varnish".to_owned(),
        }
    }

    /// Starts the cache, empty, in front of `origin`.
    pub fn start(&self, origin: SocketAddr, room: Capacity) -> anyhow::Result<Running> {
        Ok(match self {
            Cache::Direct => Running::Direct(origin),
            Cache::Sluice(sluice) => {
                Running::Sluice(Box::new(Sluice::start(&sluice.options(origin, room))?))
            }
            Cache::Nginx(mode) => {
                let mut options = NginxOptions::new(mode.clone(), Some(origin));
                options.workers = room.workers;
                // With tcp_nopush, nginx delays incomplete packets and would seem slower than it is.
                options.nopush = false;
                Running::Nginx(Nginx::start(&options)?)
            }
            Cache::Varnish => Running::Varnish(Varnish::start(origin, room.memory)?),
        })
    }
}

impl SluiceCache {
    /// This program with this fill mode and defaults for everything else.
    pub fn new(program: impl Into<PathBuf>, fill: &str) -> SluiceCache {
        SluiceCache {
            program: program.into(),
            fill: fill.to_owned(),
            slice: None,
            client_budget: None,
        }
    }

    fn options(&self, origin: SocketAddr, room: Capacity) -> SluiceOptions {
        let sized = |name: &str, bytes: Option<u64>| {
            bytes.map(|bytes| (name.to_owned(), bytes.to_string()))
        };
        let settings = [
            sized("slice", self.slice),
            sized("client_budget", self.client_budget),
        ];
        SluiceOptions {
            memory: Some(room.memory.to_string()),
            fill: self.fill.clone(),
            cache: settings.into_iter().flatten().collect(),
            workers: room.workers,
            ..SluiceOptions::new(&self.program, origin)
        }
    }
}

/// Rivals that are installed.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// The installed rivals.
    pub(crate) installed: Vec<Rival>,
    /// Names and versions of the installed rivals, in the same order as `installed`.
    pub(crate) versions: Vec<String>,
    /// Notes about rivals that are not installed.
    pub(crate) notes: Vec<String>,
}

/// Returns the rivals in `required`, or the installed ones of `usual` if `required` is empty.
///
/// Errors: a rival in `required` is not installed.
pub(crate) fn rivals(required: &[Rival], usual: &[Rival]) -> anyhow::Result<Rivals> {
    let mut rivals = Rivals::default();
    let any_required = !required.is_empty();
    for rival in if any_required { required } else { usual } {
        match rival.version() {
            Ok(version) => {
                rivals.installed.push(*rival);
                rivals.versions.push(version);
            }
            Err(missing) if any_required => return Err(missing),
            Err(missing) => rivals.notes.push(format!("{missing:#}: left out")),
        }
    }
    Ok(rivals)
}
