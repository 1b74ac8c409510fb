//! The caches that experiments put side by side: each started in front of an origin and asked at an address.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::bench::{Sluice, SluiceOptions};
use crate::rivals::{Nginx, NginxMode, NginxOptions, Varnish};

/// Other people's caches.
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
    /// All of them.
    pub const ALL: [Rival; 2] = [Rival::Nginx, Rival::Varnish];

    /// Its name with the version that is installed, as in `nginx 1.22.1`. An error says that it is not.
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
    /// None: clients ask the origin itself, which shows what the others can reach at best.
    Direct,
    /// Sluice.
    Sluice(SluiceCache),
    /// nginx with a cache in this manner.
    Nginx(NginxMode),
    /// Varnish as it comes.
    Varnish,
}

/// How Sluice caches.
#[derive(Debug, Clone)]
pub struct SluiceCache {
    /// The program `sluice`.
    pub program: PathBuf,
    /// How it fills: `whole`, `lock`, `slice`, `auto`.
    pub fill: String,
    /// Bytes of a block; not for fills that don't fetch by block.
    pub slice: Option<u64>,
    /// Bytes that may be fetched and not sent for one client, where it is not left at its default; 0: no limit.
    pub client_budget: Option<u64>,
}

/// What every cache gets alike.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes that it may keep.
    pub memory: u64,
    /// Worker threads or processes, where they can be chosen.
    pub workers: usize,
}

/// A started cache. Dropping it ends it.
#[derive(Debug)]
pub enum Running {
    /// Nothing was started.
    Direct(SocketAddr),
    /// Sluice.
    Sluice(Box<Sluice>),
    /// nginx.
    Nginx(Nginx),
    /// Varnish.
    Varnish(Varnish),
}

impl Running {
    /// Where it is asked.
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
    /// What its row is called.
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

    /// Starts it, empty, in front of `origin`.
    pub fn start(&self, origin: SocketAddr, room: Room) -> anyhow::Result<Running> {
        Ok(match self {
            Cache::Direct => Running::Direct(origin),
            Cache::Sluice(sluice) => {
                Running::Sluice(Box::new(Sluice::start(&sluice.options(origin, room))?))
            }
            Cache::Nginx(mode) => {
                let mut options = NginxOptions::new(mode.clone(), Some(origin));
                options.workers = room.workers;
                // Bytes that wait for a full packet would make it look slower than it is.
                options.nopush = false;
                Running::Nginx(Nginx::start(&options)?)
            }
            Cache::Varnish => Running::Varnish(Varnish::start(origin, room.memory)?),
        })
    }
}

impl SluiceCache {
    /// The program with a way to fill, all else at its default.
    pub fn new(program: impl Into<PathBuf>, fill: &str) -> SluiceCache {
        SluiceCache {
            program: program.into(),
            fill: fill.to_owned(),
            slice: None,
            client_budget: None,
        }
    }

    fn options(&self, origin: SocketAddr, room: Room) -> SluiceOptions {
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
    /// Who they are.
    pub(crate) there: Vec<Rival>,
    /// Their names with versions, in the same order.
    pub(crate) versions: Vec<String>,
    /// What has to be said about those who are not.
    pub(crate) notes: Vec<String>,
}

/// Those of `asked`, else those of `usual` that are installed.
///
/// Errors: one that was asked for is not installed.
pub(crate) fn rivals(asked: &[Rival], usual: &[Rival]) -> anyhow::Result<Rivals> {
    let mut rivals = Rivals::default();
    let asked_for = !asked.is_empty();
    for rival in if asked_for { asked } else { usual } {
        match rival.version() {
            Ok(version) => {
                rivals.there.push(*rival);
                rivals.versions.push(version);
            }
            Err(missing) if asked_for => return Err(missing),
            Err(missing) => rivals.notes.push(format!("{missing:#}: left out")),
        }
    }
    Ok(rivals)
}
