//! The configuration of the program, assembled by a test.

use std::fs;
use std::path::PathBuf;

use sluice_lab::origin::Origin;
use sluice_lab::process::Launch;
use tempfile::TempDir;

use super::{Edge, SOON};

/// The configuration of the program under test: lines for each of its tables.
#[derive(Clone)]
pub struct Setup {
    servers: Vec<String>,
    workers: usize,
    cached: bool,
    limits: String,
    cache: String,
    upstream: String,
    log: String,
    tables: String,
    descriptors: Option<String>,
    text: Option<String>,
}

impl Setup {
    /// A configuration with a cache in front of the origin. Requests for paths below `/pass/`
    /// bypass the cache.
    pub fn cached(origin: &Origin) -> Setup {
        Setup::of_servers(vec![origin.url("")])
    }

    /// A configuration with a cache in front of servers with these URLs. Requests for paths below
    /// `/pass/` bypass the cache.
    pub fn of_servers(servers: Vec<String>) -> Setup {
        Setup {
            servers,
            workers: 2,
            cached: true,
            limits: String::new(),
            cache: String::new(),
            upstream: String::new(),
            log: String::new(),
            tables: String::new(),
            descriptors: None,
            text: None,
        }
    }

    /// A configuration with exactly this text.
    pub fn of_text(text: String) -> Setup {
        Setup {
            text: Some(text),
            ..Setup::of_servers(Vec::new())
        }
    }

    /// A configuration that proxies to the origin without a cache.
    pub fn uncached(origin: &Origin) -> Setup {
        Setup {
            cached: false,
            ..Setup::cached(origin)
        }
    }

    /// Sets the number of workers, which is two by default.
    pub fn workers(mut self, workers: usize) -> Setup {
        self.workers = workers;
        self
    }

    /// Adds an origin server to the upstream.
    pub fn also(mut self, origin: &Origin) -> Setup {
        self.servers.push(origin.url(""));
        self
    }

    /// Adds a line to `[limits]`.
    pub fn limits(mut self, line: &str) -> Setup {
        self.limits += &format!("{line}\n");
        self
    }

    /// Adds a line to the table of the cache.
    pub fn cache(mut self, line: &str) -> Setup {
        self.cache += &format!("{line}\n");
        self
    }

    /// Adds a line to the table of the upstream.
    pub fn upstream(mut self, line: &str) -> Setup {
        self.upstream += &format!("{line}\n");
        self
    }

    /// Adds an access log in this format.
    pub fn logged(mut self, format: &str) -> Setup {
        self.log += &format!("access = \"access.log\"\nformat = \"{format}\"\nflush = \"10ms\"\n");
        self
    }

    /// Adds further tables, with their headings, to the configuration.
    pub fn tables(mut self, text: &str) -> Setup {
        self.tables += text;
        self
    }

    /// Limits the number of file descriptors of the program: soft and hard limit.
    pub fn descriptors(mut self, most: usize) -> Setup {
        self.descriptors = Some(format!("ulimit -n {most}"));
        self
    }

    /// Sets the soft limit of file descriptors, which the program may raise.
    pub fn descriptors_at_first(mut self, most: usize) -> Setup {
        self.descriptors = Some(format!("ulimit -S -n {most}"));
        self
    }

    /// Returns the text of the configuration file.
    pub fn text(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let Setup {
            servers,
            workers,
            cached,
            limits,
            cache,
            upstream,
            log,
            tables,
            ..
        } = self;
        let (cache, route) = match cached {
            false => (String::new(), "proxy = \"origin\"\n".to_owned()),
            true => (
                format!("[cache.main]\n{cache}"),
                "path = \"/pass/*\"\nproxy = \"origin\"\n[[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n"
                    .to_owned(),
            ),
        };
        format!(
            "[server]\nworkers = {workers}\n[limits]\n{limits}[log]\n{log}\
             [[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
             [upstream.origin]\nservers = {servers:?}\n{upstream}{cache}[[site]]\n[[site.route]]\n{route}{tables}"
        )
    }

    /// Writes the configuration file and returns its path.
    fn write(&self, folder: &TempDir) -> PathBuf {
        let config = folder.path().join("sluice.toml");
        let text = self.text().replace(
            "\"access.log\"",
            &format!("{:?}", folder.path().join("access.log")),
        );
        fs::write(&config, text).expect("a temporary folder can be written");
        config
    }

    /// Runs the program, which must refuse to start. Returns its error output.
    pub fn refused(&self) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = self.write(&folder);
        let config = config.to_str().expect("a path in UTF-8");
        let launch = Launch::new("sluice", env!("CARGO_BIN_EXE_sluice"), folder.path());
        let mut process = launch
            .args(["serve", "-c", config])
            .start()
            .expect("the program starts");
        let ended = process.wait_exit(SOON).expect("it refuses to run");
        assert_eq!(ended.code(), Some(1), "{}", process.stderr());
        process.stderr()
    }

    /// Starts the program with this configuration.
    pub fn start(&self) -> Edge {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = self.write(&folder);
        let program = env!("CARGO_BIN_EXE_sluice");
        let launch = match &self.descriptors {
            None => Launch::new("sluice", program, folder.path()),
            Some(limit) => Launch::new("sluice", "sh", folder.path())
                .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
                .args([program]),
        };
        let config = config.to_str().expect("a path in UTF-8");
        Edge::launch(&launch.args(["serve", "-c", config]), folder)
    }
}
