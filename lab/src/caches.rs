//! The caches that experiments compare. Each is started in front of an origin and receives requests at an address.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::bench::{Sluice, SluiceOptions};
use crate::process::Process;
use crate::rivals::{
    self, ApacheMode, ApacheOptions, NginxMode, NginxOptions, Program, RangeMode, RunningRival,
    SquidOptions, TrafficServerOptions, varnish,
};

/// A cache of another project: a server of [`rivals::PROGRAMS`] with the task [`rivals::Task::Cache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// nginx.
    Nginx,
    /// Varnish.
    Varnish,
    /// Apache Traffic Server.
    TrafficServer,
    /// Apache's httpd with `mod_cache`.
    Apache,
    /// Squid.
    Squid,
}

impl FromStr for Rival {
    type Err = String;

    fn from_str(name: &str) -> Result<Rival, String> {
        let mut all = Rival::ALL.into_iter();
        all.find(|rival| rival.program().argument == name)
            .ok_or_else(|| {
                let names = Rival::ALL.map(|rival| rival.program().argument);
                format!("one of {}", names.join(", "))
            })
    }
}

impl Rival {
    /// All rivals.
    pub const ALL: [Rival; 5] = [
        Rival::Nginx,
        Rival::Varnish,
        Rival::TrafficServer,
        Rival::Apache,
        Rival::Squid,
    ];

    /// Returns the program of the rival.
    pub fn program(self) -> &'static Program {
        match self {
            Rival::Nginx => &rivals::NGINX,
            Rival::Varnish => &rivals::VARNISH,
            Rival::TrafficServer => &rivals::TRAFFIC_SERVER,
            Rival::Apache => &rivals::APACHE,
            Rival::Squid => &rivals::SQUID,
        }
    }

    /// Returns the name and installed version, as in `nginx 1.22.1`. Fails if the rival is not installed.
    pub fn version(self) -> anyhow::Result<String> {
        let program = self.program();
        Ok(format!("{} {}", program.name, program.version()?))
    }

    /// Returns the configurations of the rival that suit requests for ranges. Slices, if the rival has them, have `slice`
    /// bytes.
    pub(crate) fn range_caches(self, slice: u64) -> Vec<Cache> {
        match self {
            Rival::Nginx => vec![
                Cache::Nginx(NginxMode::Sliced(slice)),
                Cache::Nginx(NginxMode::SlicedLocked(slice)),
            ],
            Rival::Varnish => vec![Cache::Varnish],
            Rival::TrafficServer => {
                let modes = RangeMode::installed(slice).into_iter();
                modes.map(Cache::TrafficServer).collect()
            }
            Rival::Apache => vec![Cache::Apache],
            Rival::Squid => vec![Cache::Squid],
        }
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
    /// Apache Traffic Server with this handling of ranges.
    TrafficServer(RangeMode),
    /// Apache's httpd with `mod_cache_disk`.
    Apache,
    /// Squid.
    Squid,
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
    /// Size of the cache in bytes. Apache's cache has no limit.
    pub memory: u64,
    /// Number of worker threads or processes. Squid always has one, and in Varnish and Apache a thread serves one request
    /// at a time.
    pub workers: usize,
}

/// A running cache. Dropping it ends the process.
#[derive(Debug)]
pub enum Running {
    /// No process; the address of the origin.
    Direct(SocketAddr),
    /// Sluice.
    Sluice(Box<Sluice>),
    /// A server of another project.
    Rival(RunningRival),
}

impl Running {
    /// Returns the address to which clients connect.
    pub fn addr(&self) -> SocketAddr {
        match self {
            Running::Direct(origin) => *origin,
            Running::Sluice(sluice) => sluice.addr(),
            Running::Rival(rival) => rival.addr(),
        }
    }

    fn process(&self) -> Option<&Process> {
        Some(match self {
            Running::Direct(_) => return None,
            Running::Sluice(sluice) => sluice.process(),
            Running::Rival(rival) => rival.process(),
        })
    }

    /// Returns the text of the cache's configuration; `None` without a cache.
    pub fn configuration(&self) -> Option<&str> {
        Some(match self {
            Running::Direct(_) => return None,
            Running::Sluice(sluice) => sluice.configuration(),
            Running::Rival(rival) => rival.configuration(),
        })
    }

    /// Returns the CPU time used so far by all processes of the cache; `None` without a cache.
    ///
    /// Errors: the process has ended.
    pub fn cpu(&self) -> anyhow::Result<Option<Duration>> {
        self.process().map(Process::cpu).transpose()
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
            Cache::TrafficServer(RangeMode::Forwarded) => "ATS".to_owned(),
            Cache::TrafficServer(RangeMode::Background) => "ATS background".to_owned(),
            Cache::TrafficServer(RangeMode::Sliced(_)) => "ATS slice".to_owned(),
            Cache::Apache => "Apache".to_owned(),
            Cache::Squid => "Squid".to_owned(),
        }
    }

    /// Returns a remark for readers of the results; `None` for most caches.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Cache::TrafficServer(ranges) => Some(ranges.note()),
            Cache::Apache => {
                Some("mod_cache does not cache ranges of files that are not cached".to_owned())
            }
            _ => None,
        }
    }

    /// Starts the cache, empty, in front of `origin`.
    pub fn start(&self, origin: SocketAddr, room: Capacity) -> anyhow::Result<Running> {
        let rival = match self {
            Cache::Direct => return Ok(Running::Direct(origin)),
            Cache::Sluice(sluice) => {
                let sluice = Sluice::start(&sluice.options(origin, room))?;
                return Ok(Running::Sluice(Box::new(sluice)));
            }
            Cache::Nginx(mode) => {
                let mut options = NginxOptions::new(mode.clone(), Some(origin));
                options.workers = room.workers;
                options.max_size = room.memory;
                // With tcp_nopush, nginx delays incomplete packets and would seem slower than it is.
                options.nopush = false;
                options.start()
            }
            Cache::Varnish => varnish::start(origin, room.memory),
            Cache::TrafficServer(ranges) => {
                let mut options = TrafficServerOptions::new(origin);
                options.memory = room.memory;
                options.workers = room.workers;
                options.ranges = *ranges;
                options.start()
            }
            Cache::Apache => ApacheOptions::new(ApacheMode::Cached(origin)).start(),
            Cache::Squid => {
                let mut options = SquidOptions::new(origin);
                options.memory = room.memory;
                options.start()
            }
        };
        Ok(Running::Rival(rival?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::configurations::Configurations;
    use crate::origin::{Origin, OriginOptions};
    use crate::rivals::{PROGRAMS, Task};

    #[test]
    fn all_servers_with_a_cache_are_rivals() {
        let caching = PROGRAMS
            .iter()
            .filter(|program| program.tasks.contains(&Task::Cache));
        let mut expected: Vec<&str> = caching.map(|program| program.name).collect();
        let mut names: Vec<&str> = Rival::ALL.map(|rival| rival.program().name).into();
        expected.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, expected);
        for rival in Rival::ALL {
            assert_eq!(rival.program().argument.parse(), Ok(rival));
        }
        let refused = "h2o".parse::<Rival>().expect_err("not a cache");
        assert!(
            refused.ends_with("traffic-server, apache, squid"),
            "{refused}"
        );
    }

    #[test]
    fn each_rival_caches_and_tells_its_configuration_and_cpu_time() {
        let capacity = Capacity {
            memory: 128 << 20,
            workers: 2,
        };
        for rival in Rival::ALL {
            if rivals::tests::is_missing(rival.program()) {
                continue;
            }
            for cache in rival.range_caches(1 << 20) {
                let origin = Origin::start(OriginOptions::default()).expect("a free port");
                let running = cache.start(origin.addr(), capacity).expect("a cache");
                let mut client = Client::connect(running.addr()).expect("connect");
                for _ in 0..2 {
                    let reply = client.get("/offset/50000", &[]).expect("a reply");
                    reply.verify_whole(50_000).expect("whole");
                }
                assert_eq!(origin.requests().len(), 1, "{cache:?}");
                let text = running.configuration().expect("a configuration");
                let port = origin.addr().port().to_string();
                assert!(text.contains(&port), "{text}");
                // Ports and folders differ in each start.
                let other = Origin::start(OriginOptions::default()).expect("a free port");
                let other = cache.start(other.addr(), capacity).expect("a cache");
                assert!(text != other.configuration().expect("a configuration"));
                let mut configurations = Configurations::default();
                for one in [&running, &other] {
                    configurations.keep(&cache.name(), one.configuration());
                }
                assert_eq!(configurations.all().len(), 1, "{configurations:?}");
                let cpu = running.cpu().expect("alive").expect("a process");
                assert!(cpu > Duration::ZERO, "{cache:?}");
            }
        }
    }
}
