//! Sluice as a process: its configuration for a bench, its start, and what its admin address tells.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::process::{Launch, Process, free_port};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How Sluice is started.
#[derive(Debug, Clone)]
pub struct SluiceOptions {
    /// The program.
    pub binary: PathBuf,
    /// The origin.
    pub origin: SocketAddr,
    /// Size of the memory tier, as in the configuration; without, nothing is cached.
    pub memory: Option<String>,
    /// How the cache fills, as in the configuration.
    pub fill: String,
    /// Further settings of the cache, names and values as TOML has them.
    pub cache: Vec<(String, String)>,
    /// Where the cache keeps what it stores, beside memory.
    pub volumes: Vec<Volume>,
    /// Routes that come before the one to the origin.
    pub routes: Vec<Route>,
    /// Further settings of all upstreams, names and values as TOML has them.
    pub upstream: Vec<(String, String)>,
    /// Limits that are not at their defaults, names and values as TOML has them.
    pub limits: Vec<(String, String)>,
    /// Files that the last route serves, instead of leading to the origin.
    pub files: Option<Files>,
    /// Worker threads.
    pub workers: usize,
    /// The core to run on.
    pub core: Option<usize>,
}

/// A file, or a block device, that a cache keeps its bytes in.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Where.
    pub path: PathBuf,
    /// Bytes that it takes.
    pub size: u64,
    /// Further settings, names and values as TOML has them.
    pub settings: Vec<(String, String)>,
}

impl Volume {
    /// All else at its default.
    pub fn new(path: impl Into<PathBuf>, size: u64) -> Volume {
        Volume {
            path: path.into(),
            size,
            settings: Vec::new(),
        }
    }
}

/// A folder of static files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// Further settings of them, names and values as TOML has them.
    pub settings: Vec<(String, String)>,
    /// Settings of their route.
    pub route: Vec<(String, String)>,
}

impl Files {
    /// All else at its default.
    pub fn new(root: impl Into<PathBuf>) -> Files {
        Files {
            root: root.into(),
            settings: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// A further route.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its path, as in `/plain/*`.
    pub path: String,
    /// The origin of what it serves.
    pub origin: SocketAddr,
    /// Whether the cache is used.
    pub cached: bool,
}

impl SluiceOptions {
    /// One worker without a cache, which keeps idle connections for an hour; with `memory`, a cache that fills whole.
    pub fn new(binary: impl Into<PathBuf>, origin: SocketAddr) -> SluiceOptions {
        SluiceOptions {
            binary: binary.into(),
            origin,
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
        }
    }
}

/// A running Sluice. Dropping it ends it.
#[derive(Debug)]
pub struct Sluice {
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Sluice {
    /// Writes a configuration for free ports and starts `sluice serve` with it.
    pub fn start(options: &SluiceOptions) -> anyhow::Result<Sluice> {
        let folder = tempfile::Builder::new().prefix("lab-sluice-").tempdir()?;
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (address, admin) = (local(free_port()?), local(free_port()?));
        let file = folder.path().join("sluice.toml");
        std::fs::write(&file, configuration(options, address, admin))?;
        let mut process = launch(&options.binary, &file, folder.path())
            .core(options.core)
            .start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(Sluice {
            process,
            address,
            admin,
            _folder: folder,
        })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Its admin address.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it with SIGKILL: it has no time to put anything in order.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::KILL)?;
        self.process.wait_exit(START_TIMEOUT).map(drop)
    }

    /// Waits until nothing is left to be written to its volumes.
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
                "{queued} bytes are left to write"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What its admin address says of it, which it listens on a moment after it listens for clients.
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
    let mut text = format!(
        "[server]\nworkers = {}\n\n[[listener]]\naddress = \"{address}\"\n\n\
         [admin]\naddress = \"{admin}\"\n\n[limits]\n",
        options.workers
    );
    settings(&mut text, &options.limits);
    upstream(&mut text, "origin", options.origin, &options.upstream);
    for (number, route) in options.routes.iter().enumerate() {
        upstream(
            &mut text,
            &number.to_string(),
            route.origin,
            &options.upstream,
        );
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

fn upstream(text: &mut String, name: &str, origin: SocketAddr, more: &[(String, String)]) {
    text.push_str(&format!(
        "[upstream.{name}]\nservers = [\"http://{origin}\"]\nkeepalive_requests = 1000000000\n\
         keepalive_timeout = \"3600s\"\n"
    ));
    if !more.iter().any(|(name, _)| name == "keepalive") {
        text.push_str("keepalive = 256\n");
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
    let reply = client::get(admin, "/status", &[]).context("asking for the status")?;
    anyhow::ensure!(reply.status == 200, "/status answers {}", reply.status);
    serde_json::from_slice(&reply.body).context("the status is JSON")
}

/// How many connections each worker has accepted, from `/status`.
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
    fn workers_are_read_from_the_status() {
        let status = serde_json::json!({
            "workers": [{"connections_accepted": 3}, {"connections_accepted": 5}]
        });
        assert_eq!(read_workers(&status).expect("numbers"), [3, 5]);
        assert!(read_workers(&serde_json::json!({})).is_err());
    }
}
