//! Varnish as a rival: default configuration, storage in memory, no management port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::process::{Launch, Process, free_port};

/// Folders other than PATH in which Varnish may be installed.
const PLACES: [&str; 3] = [
    "/usr/sbin/varnishd",
    "/usr/local/sbin/varnishd",
    "/opt/varnish/sbin/varnishd",
];

/// Longest start: Varnish first compiles its configuration with a C compiler.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running Varnish. Dropping it ends it and removes its files.
#[derive(Debug)]
pub struct Varnish {
    process: Process,
    address: SocketAddr,
    _folder: TempDir,
}

impl Varnish {
    /// Returns the path of the installed Varnish.
    pub fn find() -> anyhow::Result<PathBuf> {
        super::find("varnishd", &PLACES)
            .context("Varnish is not installed (on Debian: apt-get install varnish)")
    }

    /// Returns the version of the installed Varnish.
    pub fn version() -> anyhow::Result<String> {
        let output = std::process::Command::new(Varnish::find()?)
            .arg("-V")
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let (_, rest) = text.split_once("(varnish-").context("varnishd -V")?;
        let version = rest.split([' ', ')']).next().unwrap_or(rest);
        Ok(version.to_owned())
    }

    /// Starts Varnish in front of `origin` on a free port, with at most `memory` bytes of storage.
    pub fn start(origin: SocketAddr, memory: u64) -> anyhow::Result<Varnish> {
        let program = Varnish::find()?;
        let folder = tempfile::Builder::new().prefix("lab-varnish-").tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let work = folder.path().join("work").display().to_string();
        let mut process = Launch::new("varnish", program, folder.path())
            // A jail would need separate users and folders writable by them.
            .args(["-j", "none", "-F", "-T", "none", "-n", &work])
            .args(["-a", &address.to_string(), "-b", &origin.to_string()])
            .args(["-s", &format!("malloc,{memory}b")])
            .start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(Varnish {
            process,
            address,
            _folder: folder,
        })
    }

    /// Returns the address on which Varnish listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the processes of Varnish.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::origin::{Origin, OriginOptions};

    #[test]
    fn a_cached_response_causes_one_origin_request() {
        if let Err(missing) = Varnish::find() {
            eprintln!("skipped: {missing}");
            return;
        }
        assert!(Varnish::version().expect("a version").contains('.'));
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let varnish = Varnish::start(origin.addr(), 64 << 20).expect("Varnish starts");
        for _ in 0..2 {
            let reply = client::get(varnish.addr(), "/offset/50000", &[]).expect("a reply");
            reply.verify_whole(50_000).expect("whole");
        }
        assert_eq!(origin.requests().len(), 1);
    }
}
