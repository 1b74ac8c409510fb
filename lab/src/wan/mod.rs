//! The WAN emulator: a link with delay, jitter, loss, a rate and a queue between two network namespaces, and the
//! experiment that measures it.
//!
//! Each end is a network namespace with a TUN device, which a thread of this process connects through the model of a
//! link. All protocols of IPv4 work over it, with any program that runs in the namespaces. Without the permissions for
//! that, a [`Relay`] delays TCP connections within the process.

mod flow;
mod forward;
mod link;
mod measure;
mod namespace;
mod profile;
mod realtime;
mod relay;
mod report;
#[cfg(test)]
mod tests;
mod tun;

use std::net::Ipv4Addr;

use anyhow::Context as _;
use serde::Serialize;

pub use forward::Traffic;
pub use link::{Fate, Link, LinkSettings, transmission};
pub use namespace::{End, MTU};
pub use profile::{Bottleneck, PROFILES, Profile};
pub use relay::Relay;
pub use report::{Figure, Report};

use crate::noise::Dice;
use forward::Forwarder;

/// Main address of the near end; all addresses of 10.1.0.0/16 are local there.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// Main address of the far end; all addresses of 10.2.0.0/16 are local there.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// The requirements of [`Wan::start`], and the alternative, for error messages.
const NEEDS: &str = "the WAN emulator can't start. It needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN), /dev/net/tun, \
    and the program ip (iproute2). Without these, --relay delays TCP connections within this process: no packet is \
    lost, times are less exact, and the report says so";

/// A running emulator. Dropping the value removes the devices and ends the namespaces, except for processes and
/// sockets that still use them.
#[derive(Debug)]
pub struct Wan {
    // Fields are dropped in order: forwarding ends first.
    forwarder: Forwarder,
    near: End,
    far: End,
}

impl Wan {
    /// Starts an emulator. `seed` determines losses and jitter.
    ///
    /// Errors: missing permissions, /dev/net/tun or `ip`.
    pub fn start(profile: &Profile, seed: u64) -> anyhow::Result<Wan> {
        profile.check()?;
        let (near, near_device) = End::create(NEAR, FAR).context(NEEDS)?;
        let (far, far_device) = End::create(FAR, NEAR).context(NEEDS)?;
        let [up_seed, down_seed] = direction_seeds(seed);
        let up = Link::new(profile.up_link(), up_seed);
        let down = Link::new(profile.down_link(), down_seed);
        let forwarder = Forwarder::start([near_device, far_device], up, down)?;
        Ok(Wan {
            forwarder,
            near,
            far,
        })
    }

    /// Returns the end of the clients.
    pub fn near(&self) -> &End {
        &self.near
    }

    /// Returns the end of the servers.
    pub fn far(&self) -> &End {
        &self.far
    }

    /// Returns the counters of the direction from the near end to the far end.
    pub fn up(&self) -> Traffic {
        self.forwarder.up()
    }

    /// Returns the counters of the direction from the far end to the near end.
    pub fn down(&self) -> Traffic {
        self.forwarder.down()
    }

    /// Returns how often the forwarding thread has woken up. The thread sleeps while there is no packet to move.
    pub fn wakeups(&self) -> u64 {
        self.forwarder.wakeups()
    }
}

/// Returns the seeds of the directions up and down, whose losses and jitter have nothing in common.
fn direction_seeds(seed: u64) -> [u64; 2] {
    [0, 1].map(|direction| Dice::new(seed, direction).roll())
}

/// The way in which a link is emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Packets between network namespaces.
    Namespaces,
    /// TCP connections through a relay in the same process: the fallback.
    Relay,
}

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The link.
    pub profile: Profile,
    /// Whether to measure the fallback in place of the emulator.
    pub relay: bool,
    /// Number of round trips.
    pub round_trips: u32,
    /// Duration in seconds of each measurement of a rate.
    pub seconds: f64,
    /// Number of packets in each direction that measure the loss.
    pub packets: u64,
    /// Seed of losses and jitter.
    pub seed: u64,
}

impl Options {
    /// Returns options for a measurement that takes half a minute.
    pub fn new(profile: Profile) -> Options {
        Options {
            profile,
            relay: false,
            round_trips: 300,
            seconds: 5.0,
            packets: 100_000,
            seed: 1,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        self.profile.check()?;
        let seconds = (0.1..=3600.0).contains(&self.seconds);
        anyhow::ensure!(seconds, "0.1 to 3600 seconds");
        let round_trips = (1..=100_000).contains(&self.round_trips);
        anyhow::ensure!(round_trips, "1 to 100000 round trips");
        let packets = (1..=10_000_000).contains(&self.packets);
        anyhow::ensure!(packets, "1 to 10000000 packets");
        Ok(())
    }
}

/// Starts an emulator, measures it, and reports progress to `progress`.
///
/// Errors: options out of bounds; missing permissions, /dev/net/tun or `ip`.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    match options.relay {
        true => measure::relay(options, progress),
        false => measure::namespaces(options, progress),
    }
}
