//! Varnish as a rival: default configuration, storage in memory, no management port.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::scratch::Folder;
use anyhow::Context as _;

use crate::process::{Launch, Process, free_port};

/// Longest start: Varnish first compiles its configuration with a C compiler.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running Varnish. Dropping it ends it and removes its files.
#[derive(Debug)]
pub struct Varnish {
    process: Process,
    address: SocketAddr,
    configuration: String,
    _folder: Folder,
}

impl Varnish {
    /// Returns the path of the installed Varnish.
    pub fn find() -> anyhow::Result<PathBuf> {
        super::VARNISH.find()
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
        let folder = Folder::new("lab-varnish-")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let work = folder.path().join("work").display().to_string();
        let launch = Launch::new("varnish", program, folder.path())
            // A jail would need separate users and folders writable by them.
            .args(["-j", "none", "-F", "-T", "none", "-n", &work])
            .args(["-a", &address.to_string(), "-b", &origin.to_string()])
            .args(["-s", &format!("malloc,{memory}b")]);
        let configuration = format!("varnishd {}\n", launch.args.join(" "));
        let mut process = launch.start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(Varnish {
            process,
            address,
            configuration,
            _folder: folder,
        })
    }

    /// Returns the address on which Varnish listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the command line with which Varnish was started. It contains all settings that are not defaults.
    pub fn configuration(&self) -> &str {
        &self.configuration
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
        let text = varnish.configuration();
        assert!(text.contains("-s malloc,67108864b"), "{text}");
    }
}
