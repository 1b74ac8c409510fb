//! HAProxy as a rival: one thread without logs, a proxy that reuses connections on both sides.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::running::{RivalLaunch, RunningRival};

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

    /// Starts HAProxy on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::HAPROXY, "lab-haproxy-", self.core)?;
        let file = rival.write("haproxy.cfg", configuration(self, rival.address))?;
        // Stays in the foreground, as one process.
        rival.start(["-db", "-f", &file], START_TIMEOUT)
    }
}

/// Returns the version of the HAProxy at this path.
pub(super) fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("-v").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = text.split_once("version ").context("haproxy -v")?;
    let version = rest.split([' ', '-']).next().unwrap_or(rest);
    Ok(version.to_owned())
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
    use crate::rivals::HAPROXY;
    use crate::rivals::tests::is_missing;

    #[test]
    fn requests_reach_the_origin_over_one_connection() {
        if is_missing(&HAPROXY) {
            return;
        }
        assert!(HAPROXY.version().expect("a version").contains('.'));
        for splice in [false, true] {
            let origin = Origin::start(OriginOptions::default()).expect("a free port");
            let options = HaproxyOptions {
                splice,
                ..HaproxyOptions::new(origin.addr())
            };
            let haproxy = options.start().expect("HAProxy starts");
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
