//! Varnish as a rival: default configuration, storage in memory, no management port.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::running::{RivalLaunch, RunningRival};

/// Longest start: Varnish first compiles its configuration with a C compiler.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the version of the Varnish at this path, which prints it to standard error.
pub(super) fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("-V").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, rest) = text.split_once("(varnish-").context("varnishd -V")?;
    let version = rest.split([' ', ')']).next().unwrap_or(rest);
    Ok(version.to_owned())
}

/// Starts Varnish in front of `origin` on a free port, with at most `memory` bytes of storage.
pub fn start(origin: SocketAddr, memory: u64) -> anyhow::Result<RunningRival> {
    let mut rival = RivalLaunch::new(&super::VARNISH, "lab-varnish-", None)?;
    let work = rival.launch.folder.join("work").display().to_string();
    let (address, origin) = (rival.address.to_string(), origin.to_string());
    let storage = format!("malloc,{memory}b");
    // A jail would need separate users and folders writable by them.
    let args = [
        "-j", "none", "-F", "-T", "none", "-n", &work, "-a", &address, "-b", &origin, "-s",
        &storage,
    ];
    rival.configuration = format!("varnishd {}\n", args.join(" "));
    rival.start(args, START_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::origin::{Origin, OriginOptions};
    use crate::rivals::VARNISH;
    use crate::rivals::tests::is_missing;

    #[test]
    fn a_cached_response_causes_one_origin_request() {
        if is_missing(&VARNISH) {
            return;
        }
        assert!(VARNISH.version().expect("a version").contains('.'));
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        let varnish = start(origin.addr(), 64 << 20).expect("Varnish starts");
        for _ in 0..2 {
            let reply = client::get(varnish.addr(), "/offset/50000", &[]).expect("a reply");
            reply.verify_whole(50_000).expect("whole");
        }
        assert_eq!(origin.requests().len(), 1);
        let text = varnish.configuration();
        assert!(text.contains("-s malloc,67108864b"), "{text}");
    }
}
