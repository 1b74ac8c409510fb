//! Runs Sluice as a child process: generates its configuration, starts it, and queries its admin address.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::scratch::Folder;
use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::Value;

use crate::certificates::PairFiles;
use crate::client;
use crate::process::{Launch, Process, free_port};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Configuration of a Sluice process for tests and measurements.
#[derive(Debug, Clone)]
pub struct SluiceOptions {
    /// Path of the `sluice` program.
    pub binary: PathBuf,
    /// Address of the origin.
    pub origin: SocketAddr,
    /// Further servers of the same upstream.
    pub more_origins: Vec<SocketAddr>,
    /// Name in place of the origin's address, with the port of `origin`, and the name server that resolves it.
    pub name: Option<(String, SocketAddr)>,
    /// Size of the cache in memory, as written in the configuration; `None`: no cache.
    pub memory: Option<String>,
    /// Fill policy of the cache, as written in the configuration.
    pub fill: String,
    /// Additional settings of the cache (name, TOML value).
    pub cache: Vec<(String, String)>,
    /// Files or devices in which the cache stores objects.
    pub volumes: Vec<Volume>,
    /// Routes that precede the route to the origin.
    pub routes: Vec<Route>,
    /// Additional settings of all upstreams (name, TOML value).
    pub upstream: Vec<(String, String)>,
    /// Settings of limits that differ from the defaults (name, TOML value).
    pub limits: Vec<(String, String)>,
    /// Files that the last route serves instead of proxying to the origin.
    pub files: Option<Files>,
    /// Number of Sluice's worker threads.
    pub workers: usize,
    /// CPU core to which the Sluice process is pinned.
    pub core: Option<usize>,
    /// Settings of the section `log`, as TOML values.
    pub log: Vec<(String, String)>,
    /// Certificate of the listener; `None`: clear text.
    pub tls: Option<PairFiles>,
    /// Whether the listener speaks HTTP/2 as well.
    pub http2: bool,
    /// Whether Sluice uses TLS with the origins.
    pub origin_tls: bool,
}

/// A volume: a file or block device in which a cache stores objects.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Path of the file or block device.
    pub path: PathBuf,
    /// Size of the volume in bytes.
    pub size: u64,
    /// Additional settings of the volume (name, TOML value).
    pub settings: Vec<(String, String)>,
}

impl Volume {
    /// Creates a volume with default settings.
    pub fn new(path: impl Into<PathBuf>, size: u64) -> Volume {
        Volume {
            path: path.into(),
            size,
            settings: Vec::new(),
        }
    }
}

/// Static files of a route.
#[derive(Debug, Clone)]
pub struct Files {
    /// Folder whose files are served.
    pub root: PathBuf,
    /// Additional settings of the files (name, TOML value).
    pub settings: Vec<(String, String)>,
    /// Additional settings of the route (name, TOML value).
    pub route: Vec<(String, String)>,
}

impl Files {
    /// Serves the files below `root`, with default settings.
    pub fn new(root: impl Into<PathBuf>) -> Files {
        Files {
            root: root.into(),
            settings: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// A route in addition to the last one.
#[derive(Debug, Clone)]
pub struct Route {
    /// Pattern of the route's paths, such as `/plain/*`.
    pub path: String,
    /// Origin of the route.
    pub origin: SocketAddr,
    /// Whether the route uses the cache.
    pub cached: bool,
}

impl SluiceOptions {
    /// Configures one worker that keeps idle connections for an hour, without a cache. If `memory` is set later, the
    /// cache has `fill = "whole"`.
    pub fn new(binary: impl Into<PathBuf>, origin: SocketAddr) -> SluiceOptions {
        SluiceOptions {
            binary: binary.into(),
            origin,
            more_origins: Vec::new(),
            name: None,
            memory: None,
            fill: "whole".to_owned(),
            cache: Vec::new(),
            volumes: Vec::new(),
            routes: Vec::new(),
            upstream: Vec::new(),
            limits: vec![("keepalive_timeout".to_owned(), "\"3600s\"".to_owned())],
            files: None,
            workers: 1,
            core: None,
            log: Vec::new(),
            tls: None,
            http2: false,
            origin_tls: false,
        }
    }
}

/// A running Sluice process. Dropping the value ends the process.
#[derive(Debug)]
pub struct Sluice {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    configuration: String,
    _folder: Folder,
}

impl Sluice {
    /// Starts `sluice serve` on free ports and waits until it accepts connections.
    pub fn start(options: &SluiceOptions) -> anyhow::Result<Sluice> {
        let folder = Folder::new("lab-sluice-")?;
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (address, admin) = (local(free_port()?), local(free_port()?));
        let file = folder.path().join("sluice.toml");
        let text = configuration(options, address, admin);
        std::fs::write(&file, &text)?;
        let mut process = launch(&options.binary, &file, folder.path())
            .core(options.core)
            .start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(Sluice {
            process,
            address,
            admin,
            configuration: text,
            _folder: folder,
        })
    }

    /// Returns the address on which Sluice listens for clients.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the text of the configuration file with which Sluice was started.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Returns the Sluice process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends the process with SIGKILL.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait_exit(START_TIMEOUT).map(drop)
    }

    /// Waits until all bytes queued for volumes have been written.
    pub fn wait_stored(&self, timeout: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self.status()?;
            let volumes = status["volumes"].as_array().into_iter().flatten();
            let queued: u64 = volumes.filter_map(|one| one["queue_bytes"].as_u64()).sum();
            if queued == 0 {
                return Ok(());
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "{queued} bytes are still queued for writing"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the JSON of `/status`. The admin address is bound after the listeners, so a refused connection is
    /// retried for a moment.
    pub fn status(&self) -> anyhow::Result<Value> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.admin).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        status(self.admin)
    }
}

fn launch(binary: &Path, file: &Path, folder: &Path) -> Launch {
    let file = file.display().to_string();
    Launch::new("sluice", binary, folder).args(["serve", "-c", &file])
}

fn configuration(options: &SluiceOptions, address: SocketAddr, admin: SocketAddr) -> String {
    let tls = options.tls.as_ref();
    let tls = tls.map_or_else(String::new, |pair| format!("tls = {{ {} }}\n", pair.keys()));
    let protocols = match options.http2 {
        true => "protocols = [\"h2\", \"http/1.1\"]\n",
        false => "",
    };
    let name = options.name.as_ref();
    let resolver = name.map_or_else(String::new, |(_, resolver)| {
        format!("resolver = \"{resolver}\"\n")
    });
    let mut text = format!(
        "[server]\nworkers = {}\n{resolver}\n[[listener]]\naddress = \"{address}\"\n{tls}{protocols}\n\
         [admin]\naddress = \"{admin}\"\n\n[limits]\n",
        options.workers
    );
    settings(&mut text, &options.limits);
    if !options.log.is_empty() {
        text.push_str("[log]\n");
        settings(&mut text, &options.log);
    }
    let first = match name {
        Some((name, _)) => format!("{name}:{}", options.origin.port()),
        None => options.origin.to_string(),
    };
    let more = options.more_origins.iter().map(ToString::to_string);
    let servers: Vec<String> = std::iter::once(first).chain(more).collect();
    upstream(&mut text, "origin", &servers, options);
    for (number, route) in options.routes.iter().enumerate() {
        let server = route.origin.to_string();
        upstream(&mut text, &number.to_string(), &[server], options);
    }
    if let Some(memory) = &options.memory {
        text.push_str(&format!(
            "[cache.main]\nmemory = \"{memory}\"\nfill = \"{}\"\n",
            options.fill
        ));
        if !options.volumes.is_empty() {
            let names = (0..options.volumes.len()).map(|number| format!("\"v{number}\""));
            let names: Vec<String> = names.collect();
            text.push_str(&format!("volumes = [{}]\n", names.join(", ")));
        }
        settings(&mut text, &options.cache);
    }
    for (number, volume) in options.volumes.iter().enumerate() {
        text.push_str(&format!(
            "[volume.v{number}]\npath = \"{}\"\nsize = \"{}\"\n",
            volume.path.display(),
            volume.size
        ));
        settings(&mut text, &volume.settings);
    }
    routes(&mut text, options);
    text
}

fn routes(text: &mut String, options: &SluiceOptions) {
    text.push_str("[[site]]\n");
    let cached = |text: &mut String, wanted: bool| {
        if wanted && options.memory.is_some() {
            text.push_str("cache = \"main\"\n");
        }
    };
    for (number, route) in options.routes.iter().enumerate() {
        let path = &route.path;
        text.push_str(&format!(
            "[[site.route]]\npath = \"{path}\"\nproxy = \"{number}\"\n"
        ));
        cached(text, route.cached);
    }
    text.push_str("[[site.route]]\n");
    match &options.files {
        None => {
            text.push_str("proxy = \"origin\"\n");
            cached(text, true);
        }
        Some(files) => {
            settings(text, &files.route);
            let root = files.root.display();
            text.push_str(&format!("[site.route.files]\nroot = \"{root}\"\n"));
            settings(text, &files.settings);
        }
    }
}

fn upstream(text: &mut String, name: &str, servers: &[String], options: &SluiceOptions) {
    let more = &options.upstream;
    let scheme = if options.origin_tls { "https" } else { "http" };
    let url = |server: &String| format!("{scheme}://{server}");
    let urls: Vec<String> = servers.iter().map(url).collect();
    text.push_str(&format!("[upstream.{name}]\nservers = {urls:?}\n"));
    let defaults = [
        ("keepalive", "256"),
        ("keepalive_requests", "1000000000"),
        ("keepalive_timeout", "\"3600s\""),
    ];
    for (name, value) in defaults {
        if !more.iter().any(|(set, _)| set == name) {
            text.push_str(&format!("{name} = {value}\n"));
        }
    }
    settings(text, more);
}

fn settings(text: &mut String, settings: &[(String, String)]) {
    for (name, value) in settings {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text.push('\n');
}

fn status(admin: SocketAddr) -> anyhow::Result<Value> {
    let reply = client::get(admin, "/status", &[]).context("GET /status")?;
    anyhow::ensure!(reply.status == 200, "/status answers {}", reply.status);
    serde_json::from_slice(&reply.body).context("parsing /status")
}

/// Returns the number of connections that each worker has accepted, from `/status`.
pub fn worker_connections(admin: SocketAddr) -> anyhow::Result<Vec<u64>> {
    read_workers(&status(admin)?)
}

fn read_workers(status: &Value) -> anyhow::Result<Vec<u64>> {
    let workers = status["workers"].as_array().context("status: workers")?;
    workers
        .iter()
        .map(|worker| {
            let count = &worker["connections_accepted"];
            count
                .as_u64()
                .context("status: workers[].connections_accepted")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_per_worker_are_parsed_from_the_status() {
        let status = serde_json::json!({
            "workers": [{"connections_accepted": 3}, {"connections_accepted": 5}]
        });
        assert_eq!(read_workers(&status).expect("numbers"), [3, 5]);
        assert!(read_workers(&serde_json::json!({})).is_err());
    }
}
