//! Servers to compare with, and a floor server whose CPU time is a lower bound for every server. [`PROGRAMS`] lists the
//! servers of other projects.

pub mod apache;
pub mod floor;
pub mod h2o;
pub mod haproxy;
pub mod nginx;
mod report;
mod running;
pub mod squid;
pub mod traffic_server;
pub mod varnish;

pub use apache::{ApacheMode, ApacheOptions};
pub use floor::{Floor, FloorOptions};
pub use h2o::H2oOptions;
pub use haproxy::HaproxyOptions;
pub use nginx::{NginxMode, NginxOptions};
pub use report::{Entry, Report};
pub use running::RunningRival;
pub use squid::SquidOptions;
pub use traffic_server::{RangeMode, TrafficServerOptions};

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::Serialize;

/// A task that a server can have in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Proxy with a cache.
    Cache,
    /// Server of static files.
    Static,
    /// Proxy without a cache.
    Proxy,
}

/// A server of another project.
#[derive(Debug)]
pub struct Program {
    /// Name in tables and messages.
    pub name: &'static str,
    /// Name in arguments of the command line, as in `--against nginx`.
    pub argument: &'static str,
    /// Tasks that the server can have in the lab.
    pub tasks: &'static [Task],
    /// Debian package with the program.
    pub package: &'static str,
    /// Service that starts when the package is installed.
    pub service: Option<&'static str>,
    /// Names of the program's file.
    files: &'static [&'static str],
    /// Paths of the program, besides those in PATH and in `FOLDERS`.
    places: &'static [&'static str],
    /// Returns the version of the program at this path.
    version: fn(&Path) -> anyhow::Result<String>,
}

/// All servers of other projects.
pub const PROGRAMS: [&Program; 7] = [
    &NGINX,
    &VARNISH,
    &TRAFFIC_SERVER,
    &HAPROXY,
    &H2O,
    &APACHE,
    &SQUID,
];

pub(crate) const NGINX: Program = Program {
    name: "nginx",
    argument: "nginx",
    tasks: &[Task::Cache, Task::Static, Task::Proxy],
    package: "nginx-light",
    service: Some("nginx"),
    files: &["nginx"],
    places: &["/usr/local/nginx/sbin/nginx", "/opt/nginx/sbin/nginx"],
    version: nginx::version,
};

pub(crate) const VARNISH: Program = Program {
    name: "Varnish",
    argument: "varnish",
    tasks: &[Task::Cache],
    package: "varnish",
    service: Some("varnish"),
    files: &["varnishd"],
    places: &["/opt/varnish/sbin/varnishd"],
    version: varnish::version,
};

pub(crate) const TRAFFIC_SERVER: Program = Program {
    name: "Apache Traffic Server",
    argument: "traffic-server",
    tasks: &[Task::Cache],
    package: "trafficserver",
    service: Some("trafficserver"),
    files: &["traffic_server"],
    places: &["/opt/ts/bin/traffic_server"],
    version: |program| version_of(program, "-V"),
};

pub(crate) const HAPROXY: Program = Program {
    name: "HAProxy",
    argument: "haproxy",
    tasks: &[Task::Proxy],
    package: "haproxy",
    service: Some("haproxy"),
    files: &["haproxy"],
    places: &["/opt/haproxy/sbin/haproxy"],
    version: haproxy::version,
};

pub(crate) const H2O: Program = Program {
    name: "h2o",
    argument: "h2o",
    tasks: &[Task::Static],
    package: "h2o",
    service: Some("h2o"),
    files: &["h2o"],
    places: &[],
    version: |program| version_of(program, "--version"),
};

/// Debian's package `apache2` has the service and no program, so the lab does not need it.
pub(crate) const APACHE: Program = Program {
    name: "Apache",
    argument: "apache",
    tasks: &[Task::Cache, Task::Static],
    package: "apache2-bin",
    service: None,
    files: &["apache2", "httpd"],
    places: &["/usr/local/apache2/bin/httpd"],
    version: |program| version_of(program, "-v"),
};

pub(crate) const SQUID: Program = Program {
    name: "Squid",
    argument: "squid",
    tasks: &[Task::Cache],
    package: "squid",
    service: Some("squid"),
    files: &["squid"],
    places: &["/usr/local/squid/sbin/squid"],
    version: |program| version_of(program, "-v"),
};

/// Folders of programs that are not in every user's PATH.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"];

impl Program {
    /// Returns the path of the installed program.
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&path)
            .chain(FOLDERS.iter().map(PathBuf::from))
            .flat_map(|folder| self.files.iter().map(move |file| folder.join(file)))
            .chain(self.places.iter().map(PathBuf::from));
        paths.find(|path| path.is_file()).with_context(|| {
            let Program { name, package, .. } = self;
            format!("{name} is not installed (on Debian: apt-get install {package})")
        })
    }

    /// Returns the version of the installed program.
    pub fn version(&self) -> anyhow::Result<String> {
        (self.version)(&self.find()?)
    }
}

/// Runs a program with an argument that makes it print its version, and returns the version.
pub(crate) fn version_of(program: &Path, argument: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg(argument).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    version_in(&printed).with_context(|| format!("{} {argument}: no version", program.display()))
}

/// Returns the first word that looks like a version.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let begins = word.starts_with(|first: char| first.is_ascii_digit());
        begins && word.contains('.')
    };
    let mut words = text.split(['/', '-']).flat_map(str::split_whitespace);
    words.find(is_version).map(str::to_owned)
}

/// Returns whether the lab runs as root. Servers then change their user, unless they are told not to.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::client::Client;
    use crate::origin::{Origin, OriginOptions};

    /// Returns whether a program is missing. If so, the test is skipped with a message.
    pub(crate) fn is_missing(program: &Program) -> bool {
        let found = program.find();
        if let Err(missing) = &found {
            eprintln!("skipped: {missing}");
        }
        found.is_err()
    }

    /// Starts a cache and requests an object three times over one connection. The origin must receive one request, and no
    /// process may be left when the cache is dropped.
    pub(super) fn caches_and_ends(start: impl Fn(SocketAddr) -> anyhow::Result<RunningRival>) {
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let cache = start(origin.addr()).expect("the cache starts");
        let mut client = Client::connect(cache.addr()).expect("connect");
        for _ in 0..3 {
            let reply = client.get("/offset/50000", &[]).expect("a reply");
            reply.verify_whole(50_000).expect("whole");
        }
        assert_eq!(origin.requests().len(), 1);
        assert!(cache.process().cpu().expect("alive") > Duration::ZERO);
        let tree = cache.process().tree().expect("a tree");
        drop(cache);
        for pid in tree {
            let is_alive = Path::new(&format!("/proc/{pid}")).exists();
            assert!(!is_alive, "{pid} is left");
        }
    }

    #[test]
    fn installed_programs_have_a_version() {
        for program in PROGRAMS {
            if !is_missing(program) {
                let version = program.version().expect("a version");
                assert!(version.contains('.'), "{}: {version}", program.name);
            }
        }
    }

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (printed, version) in [
            ("Server version: Apache/2.4.71 (Debian)\n", "2.4.71"),
            ("Squid Cache: Version 5.7\nService Name: squid\n", "5.7"),
            (
                "Traffic Server 9.2.9 Apr  4 2026 14:52:39 localhost\n",
                "9.2.9",
            ),
            ("h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.19\n", "2.2.5"),
        ] {
            assert_eq!(version_in(printed).as_deref(), Some(version));
        }
        assert_eq!(version_in("Squid 5"), None);
    }

    #[test]
    fn an_error_names_the_package_of_a_missing_program() {
        let missing = Program {
            files: &["no-such-program-here"],
            places: &["/no/such/program"],
            ..SQUID
        };
        let error = missing.find().expect_err("it is not installed");
        assert_eq!(
            error.to_string(),
            "Squid is not installed (on Debian: apt-get install squid)"
        );
    }
}
