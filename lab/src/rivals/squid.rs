//! Squid as a rival: one process without logs, a reverse proxy with a cache in memory.

use std::net::SocketAddr;
use std::time::Duration;

use super::running::{RivalLaunch, RunningRival};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Options of Squid.
#[derive(Debug, Clone)]
pub struct SquidOptions {
    /// The origin.
    pub origin: SocketAddr,
    /// Size of the cache in bytes.
    pub memory: u64,
    /// Core to which Squid is pinned.
    pub core: Option<usize>,
}

impl SquidOptions {
    /// Returns options for a cache of 512 MiB.
    pub fn new(origin: SocketAddr) -> SquidOptions {
        SquidOptions {
            origin,
            memory: 512 << 20,
            core: None,
        }
    }

    /// Starts Squid on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::SQUID, "lab-squid-", self.core)?;
        let file = rival.write("squid.conf", configuration(self, rival.address))?;
        // Stays in the foreground, as one process, and prints important messages to standard error.
        rival.start(["-N", "-d", "1", "-f", &file], START_TIMEOUT)
    }
}

/// Returns the configuration file. A digest of the cache and statistics per client, both on by default, would cost CPU
/// time and serve nobody here. `collapsed_forwarding` makes concurrent requests share a fetch. `range_offset_limit none`
/// makes Squid fetch and cache the whole object if a client requests a range of it; by default, the range goes to the
/// origin and nothing is cached. `quick_abort_min -1 KB` completes each fetch even if its clients have left.
fn configuration(options: &SquidOptions, address: SocketAddr) -> String {
    format!(
        "http_port {address} accel defaultsite=lab
cache_peer {ip} parent {port} 0 no-query no-digest no-netdb-exchange originserver name=origin
http_access allow all
visible_hostname lab
cache_mem {memory} KB
maximum_object_size {memory} KB
maximum_object_size_in_memory {memory} KB
collapsed_forwarding on
range_offset_limit none
quick_abort_min -1 KB
client_idle_pconn_timeout 1 hour
server_idle_pconn_timeout 1 hour
access_log none
cache_store_log none
cache_log /dev/null
pid_filename none
coredump_dir none
pinger_enable off
digest_generation off
client_db off
max_filedescriptors 20000
shutdown_lifetime 0 seconds
",
        ip = options.origin.ip(),
        port = options.origin.port(),
        memory = options.memory >> 10,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::offset::verify_offset;
    use crate::origin::{Origin, OriginOptions};
    use crate::rivals::tests::{caches_and_ends, is_missing};

    #[test]
    fn a_cached_response_causes_one_origin_request() {
        if is_missing(&crate::rivals::SQUID) {
            return;
        }
        caches_and_ends(|origin| SquidOptions::new(origin).start());
    }

    #[test]
    fn a_range_miss_caches_the_whole_object() {
        if is_missing(&crate::rivals::SQUID) {
            return;
        }
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let squid = SquidOptions::new(origin.addr()).start();
        let squid = squid.expect("Squid starts");
        for first in [40_000, 10_000, 30_000] {
            let range = format!("bytes={first}-{}", first + 9);
            let reply = client::get(squid.addr(), "/offset/50000", &[("Range", &range)]);
            let reply = reply.expect("a reply");
            assert_eq!(reply.status, 206);
            verify_offset(first, &reply.body).expect("the right bytes");
        }
        assert_eq!(origin.requests().len(), 1);
        let text = squid.configuration();
        assert!(text.contains("range_offset_limit none\n"), "{text}");
    }
}
