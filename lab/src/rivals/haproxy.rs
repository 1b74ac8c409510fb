//! HAProxy as a rival: one thread without logs, a proxy that reuses connections on both sides.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::scratch::Folder;
use anyhow::Context as _;

use crate::process::{Launch, Process, free_port};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of HAProxy.
#[derive(Debug, Clone)]
pub struct HaproxyOptions {
    /// The origin.
    pub origin: SocketAddr,
    /// Whether bodies are moved between sockets by splice(2), without a copy into HAProxy's buffers.
    pub splice: bool,
    /// Core to which HAProxy is pinned.
    pub core: Option<usize>,
}

impl HaproxyOptions {
    /// Returns options for one thread without splicing.
    pub fn new(origin: SocketAddr) -> HaproxyOptions {
        HaproxyOptions {
            origin,
            splice: false,
            core: None,
        }
    }
}

/// A running HAProxy. Dropping it ends it and removes its files.
#[derive(Debug)]
pub struct Haproxy {
    process: Process,
    address: SocketAddr,
    configuration: String,
    _folder: Folder,
}

impl Haproxy {
    /// Returns the path of the installed HAProxy.
    pub fn find() -> anyhow::Result<PathBuf> {
        super::HAPROXY.find()
    }

    /// Returns the version of the installed HAProxy.
    pub fn version() -> anyhow::Result<String> {
        let output = std::process::Command::new(Haproxy::find()?)
            .arg("-v")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, rest) = text.split_once("version ").context("haproxy -v")?;
        let version = rest.split([' ', '-']).next().unwrap_or(rest);
        Ok(version.to_owned())
    }

    /// Starts HAProxy on a free port.
    pub fn start(options: &HaproxyOptions) -> anyhow::Result<Haproxy> {
        let program = Haproxy::find()?;
        let folder = Folder::new("lab-haproxy-")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let file = folder.path().join("haproxy.cfg");
        let text = configuration(options, address);
        fs::write(&file, &text)?;
        let mut process = Launch::new("haproxy", program, folder.path())
            // Stays in the foreground, as one process.
            .args(["-db", "-f", &file.display().to_string()])
            .core(options.core)
            .start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(Haproxy {
            process,
            address,
            configuration: text,
            _folder: folder,
        })
    }

    /// Returns the address on which HAProxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the text of the configuration file with which HAProxy was started.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Returns the process of HAProxy.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Returns the configuration file. By default HAProxy closes some of the idle connections to servers every 5 s
/// (`pool-purge-delay`), and reuses one for another client only after its first request (`http-reuse safe`). Both
/// would cost it CPU time here.
fn configuration(options: &HaproxyOptions, address: SocketAddr) -> String {
    let splice = match options.splice {
        true => "  option splice-request\n  option splice-response\n",
        false => "",
    };
    format!(
        "global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 10s
  timeout client 3600s
  timeout server 3600s
  timeout http-keep-alive 3600s
  http-reuse always
{splice}frontend lab
  bind {address} backlog 4096
  default_backend origin
backend origin
  server origin {origin} pool-purge-delay 3600s
",
        origin = options.origin
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::origin::{Origin, OriginOptions};

    #[test]
    fn requests_reach_the_origin_over_one_connection() {
        if let Err(missing) = Haproxy::find() {
            eprintln!("skipped: {missing}");
            return;
        }
        assert!(Haproxy::version().expect("a version").contains('.'));
        for splice in [false, true] {
            let origin = Origin::start(OriginOptions::default()).expect("a free port");
            let options = HaproxyOptions {
                splice,
                ..HaproxyOptions::new(origin.addr())
            };
            let haproxy = Haproxy::start(&options).expect("HAProxy starts");
            let mut client = Client::connect(haproxy.addr()).expect("connect");
            for _ in 0..3 {
                let reply = client.get("/offset/500000", &[]).expect("a reply");
                reply.verify_whole(500_000).expect("whole");
            }
            assert_eq!(origin.requests().len(), 3);
            assert_eq!(origin.connections().len(), 1);
            assert!(haproxy.process().cpu().expect("alive") > Duration::ZERO);
        }
    }
}
