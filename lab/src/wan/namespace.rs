//! The two ends of the emulated link: network namespaces, each with a TUN device.
//!
//! The namespaces have no names and no files. They exist as long as a descriptor or a thread in them, so nothing is
//! left of them when the process ends, in whatever way.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, ensure};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::tun;

/// Largest packet in bytes, with its IP header: that of Ethernet.
pub const MTU: usize = 1500;

/// Name of the TUN device in each namespace.
const DEVICE: &str = "wan0";

/// Packets that the kernel keeps until the emulator reads them. The model's own queue is the one that should be full
/// first.
const DEVICE_QUEUE: u32 = 10_000;

/// One end of the emulated link: a network namespace of its own.
#[derive(Debug)]
pub struct End {
    namespace: OwnedFd,
    address: Ipv4Addr,
}

impl End {
    /// Creates a namespace in which all addresses of `address`/16 are local, and those of `peer`/16 are reached through
    /// a new TUN device. Returns also the device.
    pub(super) fn create(address: Ipv4Addr, peer: Ipv4Addr) -> anyhow::Result<(End, OwnedFd)> {
        let create = move || -> anyhow::Result<(OwnedFd, OwnedFd)> {
            // SAFETY: the flag concerns only the network namespace of this thread. Descriptors, memory and the file
            // system stay shared with the other threads.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                .context("can't create a network namespace")?;
            let device = tun::create(DEVICE)?;
            configure(address, peer)?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let namespace = open("/proc/thread-self/ns/net", flags, Mode::empty())?;
            Ok((namespace, device))
        };
        // The thread ends in the new namespace; the caller stays in its own.
        let created = thread::Builder::new()
            .name("wan-end".to_owned())
            .spawn(create)?;
        let (namespace, device) = created
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok((End { namespace, address }, device))
    }

    /// Returns the main address of this end. The other addresses with the same first two bytes are local, too: a program
    /// in the namespace can listen on them and connect from them.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Calls `work` on a thread in this end's namespace. Threads and processes that it starts are in the namespace, too.
    /// Sockets stay in the namespace in which they were created, whichever thread uses them.
    ///
    /// Errors: the namespace can't be entered. A panic of `work` goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let enter = || -> anyhow::Result<T> {
            move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .context("can't enter a network namespace")?;
            Ok(work())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("wan-work".to_owned())
                .spawn_scoped(scope, enter)?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

/// Sets up addresses and routes in the namespace of the calling thread, with the program `ip`.
fn configure(address: Ipv4Addr, peer: Ipv4Addr) -> anyhow::Result<()> {
    let [first, second, ..] = address.octets();
    let [peer_first, peer_second, ..] = peer.octets();
    let commands = format!(
        "link set lo up\n\
         link set {DEVICE} mtu {MTU} txqueuelen {DEVICE_QUEUE} up\n\
         address add {address}/32 dev {DEVICE}\n\
         route add local {first}.{second}.0.0/16 dev lo\n\
         route add {peer_first}.{peer_second}.0.0/16 dev {DEVICE} src {address}\n"
    );
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("can't start ip: is iproute2 installed?")?;
    let mut input = ip.stdin.take().context("standard input of ip")?;
    // If `ip` has ended already, its message says why.
    let _ = input.write_all(commands.as_bytes());
    drop(input);
    let output = ip.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip failed: {}", message.trim());
    Ok(())
}
