//! Apache Traffic Server as a rival: one thread for connections, without logs, with a cache in memory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::running::{RivalLaunch, RunningRival};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Smallest file for a cache in bytes.
const STORE_MIN: u64 = 64 << 20;

/// Folders with Traffic Server's plugins: Debian, Red Hat, built from source.
const PLUGINS: [&str; 4] = [
    "/usr/lib/trafficserver/modules",
    "/usr/lib64/trafficserver/plugins",
    "/opt/ts/libexec/trafficserver",
    "/usr/local/libexec/trafficserver",
];

/// Plugins for ranges.
const BACKGROUND_FETCH: &str = "background_fetch.so";
const SLICE: &str = "slice.so";
const CACHE_RANGES: &str = "cache_range_requests.so";

/// The handling of a request for a range of an object that is not cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeMode {
    /// The range goes to the origin, and nothing is cached. This is Traffic Server's default.
    Forwarded,
    /// The range goes to the origin. When the response has arrived, the whole object is fetched and cached (plugin
    /// `background_fetch`).
    Background,
    /// Slices of this many bytes are fetched and cached (plugins `slice` and `cache_range_requests`).
    Sliced(u64),
}

impl RangeMode {
    /// Returns the modes whose plugins are installed, without the default if there is a better one.
    pub fn installed(slice: u64) -> Vec<RangeMode> {
        let modes = [RangeMode::Background, RangeMode::Sliced(slice)].into_iter();
        let mut modes: Vec<RangeMode> = modes.filter(|mode| mode.plugins().is_ok()).collect();
        if modes.is_empty() {
            modes.push(RangeMode::Forwarded);
        }
        modes
    }

    /// Returns a remark for readers of results: the plugins in use, or those that are missing for another mode.
    pub fn note(self) -> String {
        match (self, RangeMode::Sliced(0).plugins()) {
            (RangeMode::Forwarded, _) => {
                "Apache Traffic Server does not cache ranges without a plugin".to_owned()
            }
            (RangeMode::Background, Ok(_)) => {
                "Apache Traffic Server with the plugin background_fetch".to_owned()
            }
            (RangeMode::Background, Err(missing)) => missing.to_string(),
            (RangeMode::Sliced(_), _) => {
                "Apache Traffic Server with the plugins slice and cache_range_requests".to_owned()
            }
        }
    }

    /// Returns the end of a line in `remap.config`: the plugins of this mode.
    ///
    /// Errors: a plugin is not installed.
    fn plugins(self) -> anyhow::Result<String> {
        Ok(match self {
            RangeMode::Forwarded => String::new(),
            RangeMode::Background => format!(" @plugin={}", plugin(BACKGROUND_FETCH)?),
            // By default, each first request for a file would also fetch the file's first slice, as a reference.
            RangeMode::Sliced(bytes) => format!(
                " @plugin={} @pparam=--blockbytes={bytes} @pparam=--ref-relative @plugin={}",
                plugin(SLICE)?,
                plugin(CACHE_RANGES)?
            ),
        })
    }
}

/// Returns the path of an installed plugin.
fn plugin(name: &str) -> anyhow::Result<String> {
    let mut paths = PLUGINS.iter().map(|folder| Path::new(folder).join(name));
    let path = paths.find(|path| path.is_file()).with_context(|| {
        format!(
            "the plugin {name} is not installed (on Debian: apt-get install \
             trafficserver-experimental-plugins)"
        )
    })?;
    Ok(path.display().to_string())
}

/// Options of Traffic Server.
#[derive(Debug, Clone)]
pub struct TrafficServerOptions {
    /// The origin.
    pub origin: SocketAddr,
    /// Size of the cache in bytes.
    pub memory: u64,
    /// Number of threads that serve connections.
    pub workers: usize,
    /// The handling of ranges.
    pub ranges: RangeMode,
    /// Core to which Traffic Server is pinned.
    pub core: Option<usize>,
}

impl TrafficServerOptions {
    /// Returns options for one thread and a cache of 512 MiB, with the default handling of ranges.
    pub fn new(origin: SocketAddr) -> TrafficServerOptions {
        TrafficServerOptions {
            origin,
            memory: 512 << 20,
            workers: 1,
            ranges: RangeMode::Forwarded,
            core: None,
        }
    }

    /// Starts Traffic Server on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::TRAFFIC_SERVER, "lab-ats-", self.core)?;
        let cache = rival.cache_folder("lab-ats-cache-")?;
        let files = files(self, &cache)?;
        let (program, folder) = (&rival.launch.program, &rival.launch.folder);
        let run_root = write_files(&files, program, folder, &cache)?;
        let environment = environment(self, rival.address);
        rival.configuration = configuration(&files, &environment);
        rival.launch.env = environment;
        // After SIGTERM, Traffic Server takes more than two seconds to end. No file of it is used again.
        rival.launch.end_signal = Signal::KILL;
        let run_root = format!("--run-root={}", run_root.display());
        rival.start([run_root], START_TIMEOUT)
    }
}

/// Names and texts of the configuration files.
type Files = [(&'static str, String); 3];

/// Returns the configuration files.
///
/// Errors: a plugin is not installed.
fn files(options: &TrafficServerOptions, cache: &Path) -> anyhow::Result<Files> {
    let plugins = options.ranges.plugins()?;
    let map = format!("map / http://{}/{plugins}\n", options.origin);
    let store = format!("{} {}\n", cache.display(), options.memory.max(STORE_MIN));
    // Without this file, all clients are refused.
    let allow = "ip_allow:
  - apply: in
    ip_addrs: 0/0
    action: allow
    methods: ALL
";
    Ok([
        ("remap.config", map),
        ("storage.config", store),
        ("ip_allow.yaml", allow.to_owned()),
    ])
}

/// Returns the text of the whole configuration.
fn configuration(files: &Files, environment: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, content) in files {
        text.push_str(&format!("# {name}\n{content}\n"));
    }
    text.push_str("# Environment\n");
    for (name, value) in environment {
        text.push_str(&format!("{name}={value}\n"));
    }
    text
}

/// Writes the configuration files. Returns the path of the file that names their folder.
fn write_files(
    files: &Files,
    program: &Path,
    folder: &Path,
    cache: &Path,
) -> anyhow::Result<PathBuf> {
    let programs = program.parent().context("a program in a folder")?;
    for name in ["etc", "run", "log"] {
        fs::create_dir(folder.join(name))?;
    }
    let (root, programs) = (folder.display(), programs.display());
    let run_root = folder.join("runroot.yaml");
    let text = format!(
        "prefix: {root}
exec_prefix: {root}
bindir: {programs}
sbindir: {programs}
sysconfdir: {root}/etc
datadir: {root}/run
includedir: {root}/run
libdir: {root}/run
libexecdir: {root}/run
localstatedir: {root}/run
runtimedir: {root}/run
logdir: {root}/log
cachedir: {cache}
mandir: {root}/run
infodir: {root}/run
",
        cache = cache.display(),
    );
    fs::write(&run_root, text)?;
    for (name, content) in files {
        fs::write(folder.join("etc").join(name), content)?;
    }
    Ok(run_root)
}

/// Returns the settings as environment variables: versions before and after 10 read them in the same form, but have
/// different configuration files (`records.config` and `records.yaml`).
fn environment(options: &TrafficServerOptions, address: SocketAddr) -> Vec<(String, String)> {
    let memory = options.memory.to_string();
    let workers = options.workers.to_string();
    // Readers wait up to 5 s for the head of the response, as in nginx with `proxy_cache_lock`. By default, they wait half
    // a second, and then each of them goes to the origin. That is faster beside a fetch in the background.
    let retries = match options.ranges {
        RangeMode::Background => "-1",
        RangeMode::Forwarded | RangeMode::Sliced(_) => "500",
    };
    let ports = format!("{}:ip-in={}", address.port(), address.ip());
    let settings = [
        ("http.server_ports", ports.as_str()),
        ("exec_thread.autoconfig", "0"),
        ("exec_thread.limit", workers.as_str()),
        // These threads accept connections as well.
        ("accept_threads", "0"),
        ("task_threads", "1"),
        ("net.listen_backlog", "4096"),
        ("net.connections_throttle", "19000"),
        ("log.logging_enabled", "0"),
        ("diags.logfile.filename", "stderr"),
        // No second process that waits for a crash.
        ("crash_log_helper", "NULL"),
        // Keeps the user.
        ("admin.user_id", "#-1"),
        // No request is answered before the cache is ready.
        ("http.wait_for_cache", "2"),
        ("url_remap.pristine_host_hdr", "1"),
        ("cache.ram_cache.size", memory.as_str()),
        // The default, 8000, limits the number of small objects before the file is full.
        ("cache.min_average_object_size", "4000"),
        ("net.default_inactivity_timeout", "3600"),
        ("http.keep_alive_no_activity_timeout_in", "3600"),
        ("http.keep_alive_no_activity_timeout_out", "3600"),
        ("http.transaction_no_activity_timeout_in", "3600"),
        // Readers share the fetch of an object (read while writer), which continues without its first client.
        ("cache.enable_read_while_writer", "1"),
        ("http.background_fill_active_timeout", "0"),
        ("http.background_fill_completed_threshold", "0.0"),
        ("http.cache.open_read_retry_time", "10"),
        ("http.cache.max_open_read_retries", retries),
    ];
    let variable = |name: &str| {
        format!("proxy.config.{name}")
            .to_uppercase()
            .replace('.', "_")
    };
    settings
        .iter()
        .map(|(name, value)| (variable(name), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::offset::verify_offset;
    use crate::origin::{Origin, OriginOptions, Record, Resource};
    use crate::rivals::tests::{caches_and_ends, is_missing};

    #[test]
    fn a_cached_response_causes_one_origin_request() {
        if is_missing(&crate::rivals::TRAFFIC_SERVER) {
            return;
        }
        caches_and_ends(|origin| TrafficServerOptions::new(origin).start());
    }

    #[test]
    fn requests_at_the_same_time_share_a_fetch() {
        if is_missing(&crate::rivals::TRAFFIC_SERVER) {
            return;
        }
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let slow = Resource::offset(LENGTH).delay_head(3 * SETTLE);
        origin.serve_rest(slow.cache_control("max-age=3600"));
        let server = TrafficServerOptions::new(origin.addr()).start();
        let server = server.expect("Traffic Server starts");
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let reply = client::get(server.addr(), "/file", &[]).expect("a reply");
                    reply.verify_whole(LENGTH).expect("whole");
                });
            }
        });
        assert_eq!(origin.requests().len(), 1);
    }

    #[test]
    fn ranges_are_cached_with_the_plugins() {
        if is_missing(&crate::rivals::TRAFFIC_SERVER) {
            return;
        }
        let mut modes = RangeMode::installed(SLICE_BYTES);
        assert!(!modes.is_empty());
        modes.retain(|mode| *mode != RangeMode::Forwarded);
        for ranges in modes {
            let origin = Origin::start(OriginOptions::default()).expect("a free port");
            let file = Resource::offset(LENGTH).cache_control("max-age=3600");
            origin.serve_rest(file);
            let options = TrafficServerOptions {
                ranges,
                ..TrafficServerOptions::new(origin.addr())
            };
            let server = options.start().expect("Traffic Server starts");
            fetch_ten(&server, LENGTH / 2);
            let fetched = |record: &Record| record.sent_total >= SLICE_BYTES && record.quiet();
            assert!(origin.wait_for(fetched, TIMEOUT), "{ranges:?}");
            std::thread::sleep(SETTLE);
            let before = origin.requests().len();
            fetch_ten(&server, LENGTH / 2);
            assert_eq!(origin.requests().len(), before, "{ranges:?}");
            let text = server.configuration();
            assert!(text.contains("@plugin=/") && text.contains("EXEC_THREAD_LIMIT=1\n"));
        }
    }

    const LENGTH: u64 = 1_000_000;
    const SLICE_BYTES: u64 = 64 << 10;
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Time for Traffic Server to finish storing after the origin has sent its last byte.
    const SETTLE: Duration = Duration::from_millis(500);

    fn fetch_ten(server: &RunningRival, first: u64) {
        let range = format!("bytes={first}-{}", first + 9);
        let reply = client::get(server.addr(), "/file", &[("Range", &range)]).expect("a reply");
        assert_eq!(reply.status, 206);
        verify_offset(first, &reply.body).expect("the right bytes");
    }
}
