//! The configuration of the program, assembled by a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use sluice_lab::certificates::{Authority, PairFiles};
use sluice_lab::client::ClientTls;
use sluice_lab::origin::Origin;
use sluice_lab::process::Launch;
use tempfile::TempDir;

use super::{Edge, SOON};

/// Environment variable that makes the tests' clients use TLS.
const TLS: &str = "SLUICE_TEST_TLS";
/// Environment variable that makes the tests' clients speak HTTP/2, with TLS by ALPN, otherwise by prior knowledge.
const HTTP2: &str = "SLUICE_TEST_HTTP2";
/// Environment variable that makes the program speak HTTP/2 with the tests' origins, in clear text.
const HTTP2_ORIGINS: &str = "SLUICE_TEST_HTTP2_ORIGINS";
/// Name of the server in its certificate.
const NAME: &str = "localhost";

/// The heading of a listener.
const LISTENER: &str = "[[listener]]\n";
/// The line of a listener with which clients may speak HTTP/2.
const PROTOCOLS: &str = "protocols = [\"h2\", \"http/1.1\"]\n";

/// The keys that stand for the program's certificate until its folder is known.
const PLACEHOLDER: &str = "certificate = \"tls.pem\", key = \"tls.key\"";

/// Returns a configuration whose listener has the certificate in this folder, if it has one.
pub(super) fn with_certificate(text: &str, folder: &Path) -> String {
    let files = PairFiles {
        certificate: folder.join("tls.pem"),
        key: folder.join("tls.key"),
    };
    text.replace(PLACEHOLDER, &files.keys())
}

/// Returns a configuration whose first listener offers HTTP/2, unless it has settings of its own for protocols or TLS.
pub(super) fn with_protocols(text: &str) -> String {
    match text.contains("protocols = ") || text.contains("tls = ") {
        true => text.to_owned(),
        false => text.replacen(LISTENER, &format!("{LISTENER}{PROTOCOLS}"), 1),
    }
}

/// Returns lines of a table with long times for these keys, unless the lines have them. With the defaults of the
/// program, a connection ends if a test stands still for some seconds before it uses the connection.
fn with_patience(lines: &str, keys: &[&str]) -> String {
    let absent = keys.iter().filter(|key| !lines.contains(**key));
    let added = absent.map(|key| format!("{key} = \"50s\"\n"));
    lines.to_owned() + &added.collect::<String>()
}

/// Returns the authority that signs the program's certificate.
fn authority() -> &'static Authority {
    static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test authority"));
    &AUTHORITY
}

/// Returns the scheme of tests that don't choose one: `https` if the environment makes clients use TLS.
pub fn scheme() -> &'static str {
    match std::env::var_os(TLS) {
        Some(_) => "https",
        None => "http",
    }
}

/// Returns the version of HTTP, as logs name it, of tests that don't choose one.
pub fn version() -> &'static str {
    match std::env::var_os(HTTP2) {
        Some(_) => "HTTP/2.0",
        None => "HTTP/1.1",
    }
}

/// Returns the certificate of the authority that signs the program's certificate, in PEM.
pub fn authority_pem() -> String {
    authority().pem()
}

/// Returns the TLS settings of clients, which trust the program's certificate.
pub fn tls() -> ClientTls {
    ClientTls::trusting(&authority().der(), NAME)
}

/// Returns the URL of an origin as a server of an upstream.
fn server(origin: &Origin) -> String {
    match std::env::var_os(HTTP2_ORIGINS) {
        Some(_) => format!("h2c://{}", origin.addr()),
        None => origin.url(""),
    }
}

/// The configuration of the program under test: lines for each of its tables.
#[derive(Clone)]
pub struct Setup {
    servers: Vec<String>,
    workers: usize,
    cached: bool,
    server: String,
    listener: String,
    limits: String,
    admin: String,
    cache: String,
    upstream: String,
    log: String,
    tables: String,
    prepare: Option<String>,
    encrypted: bool,
    http2: bool,
    text: Option<String>,
}

impl Setup {
    /// A configuration with a cache in front of the origin. Requests for paths below `/pass/`
    /// bypass the cache.
    pub fn cached(origin: &Origin) -> Setup {
        Setup::of_servers(vec![server(origin)])
    }

    /// A configuration with a cache in front of servers with these URLs. Requests for paths below
    /// `/pass/` bypass the cache.
    pub fn of_servers(servers: Vec<String>) -> Setup {
        Setup {
            servers,
            workers: 2,
            cached: true,
            server: String::new(),
            listener: String::new(),
            limits: String::new(),
            admin: String::new(),
            cache: String::new(),
            upstream: String::new(),
            log: String::new(),
            tables: String::new(),
            prepare: None,
            encrypted: std::env::var_os(TLS).is_some(),
            http2: std::env::var_os(HTTP2).is_some(),
            text: None,
        }
    }

    /// A configuration with this text. If clients speak HTTP/2, only the protocols of the first listener are added,
    /// unless the text has settings of its own for protocols or TLS.
    pub fn of_text(text: String) -> Setup {
        Setup {
            text: Some(text),
            ..Setup::of_servers(Vec::new())
        }
    }

    /// A configuration that proxies to the origin without a cache.
    pub fn uncached(origin: &Origin) -> Setup {
        Setup::cached(origin).without_cache()
    }

    /// Proxies all requests without a cache.
    pub fn without_cache(mut self) -> Setup {
        self.cached = false;
        self
    }

    /// Sets the number of workers, which is two by default.
    pub fn workers(mut self, workers: usize) -> Setup {
        self.workers = workers;
        self
    }

    /// Adds an origin server to the upstream.
    pub fn also(mut self, origin: &Origin) -> Setup {
        self.servers.push(server(origin));
        self
    }

    /// Adds a line to `[server]`.
    pub fn server(mut self, line: &str) -> Setup {
        self.server += &format!("{line}\n");
        self
    }

    /// Adds a line to `[[listener]]`.
    pub fn listener(mut self, line: &str) -> Setup {
        self.listener += &format!("{line}\n");
        self
    }

    /// Adds a line to `[limits]`.
    pub fn limits(mut self, line: &str) -> Setup {
        self.limits += &format!("{line}\n");
        self
    }

    /// Adds a line to `[admin]`.
    pub fn admin(mut self, line: &str) -> Setup {
        self.admin += &format!("{line}\n");
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

    /// Sets the lowest level of messages.
    pub fn level(mut self, level: &str) -> Setup {
        self.log += &format!("level = \"{level}\"\n");
        self
    }

    /// Adds further tables, with their headings, to the configuration.
    pub fn tables(mut self, text: &str) -> Setup {
        self.tables += text;
        self
    }

    /// Makes the clients use TLS in any case.
    pub fn encrypted(mut self) -> Setup {
        self.encrypted = true;
        self
    }

    /// Makes the clients use clear text in any case, for tests that write to the socket itself, or of the scheme.
    pub fn in_clear_text(mut self) -> Setup {
        self.encrypted = false;
        self
    }

    /// Makes the clients speak HTTP/1.1 in any case, for tests of its connections or its syntax.
    pub fn with_http1(mut self) -> Setup {
        self.http2 = false;
        self
    }

    /// Makes the program speak HTTP/1.1 with its servers in any case, for tests of connections to servers, of the syntax
    /// of responses, and of faults that only HTTP/1.1 has.
    pub fn with_http1_servers(mut self) -> Setup {
        for server in &mut self.servers {
            *server = server.replace("h2c://", "http://");
        }
        self
    }

    /// Limits the number of file descriptors of the program: soft and hard limit.
    pub fn descriptors(mut self, most: usize) -> Setup {
        self.prepare = Some(format!("ulimit -n {most}"));
        self
    }

    /// Sets the soft limit of file descriptors, which the program may raise.
    pub fn descriptors_at_first(mut self, most: usize) -> Setup {
        self.prepare = Some(format!("ulimit -S -n {most}"));
        self
    }

    /// Runs the program with this environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Setup {
        let before = self
            .prepare
            .take()
            .map_or(String::new(), |before| before + "; ");
        self.prepare = Some(format!("{before}export {name}='{value}'"));
        self
    }

    /// Returns the text of the configuration file.
    pub fn text(&self) -> String {
        if let Some(text) = &self.text {
            return match self.http2 {
                true => with_protocols(text),
                false => text.clone(),
            };
        }
        let Setup {
            servers,
            workers,
            cached,
            server,
            listener,
            limits,
            admin,
            cache,
            upstream,
            log,
            tables,
            encrypted,
            http2,
            ..
        } = self;
        let limits = with_patience(limits, &["header_timeout", "keepalive_timeout"]);
        // By default the time to wait for a connection is that of `connect_timeout`.
        let upstream = match upstream.contains("connect_timeout") {
            true => upstream.clone(),
            false => with_patience(upstream, &["queue_timeout"]),
        };
        let (cache, route) = match cached {
            false => (String::new(), "proxy = \"origin\"\n".to_owned()),
            true => (
                format!("[cache.main]\n{cache}"),
                "path = \"/pass/*\"\nproxy = \"origin\"\n[[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n"
                    .to_owned(),
            ),
        };
        let tls = match encrypted {
            true => format!("tls = {{ {PLACEHOLDER} }}\n"),
            false => String::new(),
        };
        let protocols = match *http2 && !listener.contains("protocols = ") {
            true => PROTOCOLS,
            false => "",
        };
        format!(
            "[server]\nworkers = {workers}\n{server}[limits]\n{limits}[log]\n{log}\
             {LISTENER}address = \"127.0.0.1:0\"\n{listener}{tls}{protocols}[admin]\naddress = \"127.0.0.1:0\"\n\
             {admin}[upstream.origin]\nservers = {servers:?}\n{upstream}{cache}[[site]]\n[[site.route]]\n{route}{tables}"
        )
    }

    /// Writes the configuration file and returns its path.
    fn write(&self, folder: &TempDir) -> PathBuf {
        let config = folder.path().join("sluice.toml");
        let text = self.text().replace(
            "\"access.log\"",
            &format!("{:?}", folder.path().join("access.log")),
        );
        if text.contains(PLACEHOLDER) {
            let pair = authority().server(&[NAME, "127.0.0.1"]);
            let files = pair.write(folder.path(), "tls");
            files.expect("a temporary folder can be written");
        }
        let text = with_certificate(&text, folder.path());
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
        // Tests that run at the same time can't all use the default admin address.
        assert!(self.text().contains("[admin]"), "{}", self.text());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = self.write(&folder);
        let program = env!("CARGO_BIN_EXE_sluice");
        let launch = match &self.prepare {
            None => Launch::new("sluice", program, folder.path()),
            Some(limit) => Launch::new("sluice", "sh", folder.path())
                .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
                .args([program]),
        };
        let config = config.to_str().expect("a path in UTF-8");
        let http2 = self.http2 && self.text().contains(PROTOCOLS);
        Edge::launch(&launch.args(["serve", "-c", config]), folder, http2)
    }
}
