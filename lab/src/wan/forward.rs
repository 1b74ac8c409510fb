//! The thread that moves packets between the two TUN devices, through the model of each direction.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use serde::Serialize;

use super::link::{Fate, Link};
use super::namespace::MTU;
use super::realtime;

/// Memory in bytes for packets on their way in one direction. Packets beyond it are dropped. It suffices for 100 Mbit/s
/// with a round trip of 10 s.
const IN_FLIGHT_MAX: usize = 64 << 20;

/// Memory in bytes that a packet needs in addition to its content.
const OVERHEAD: usize = 64;

/// Maximum number of packets that are read from a device before due packets are delivered.
const BATCH: usize = 32;

/// Upper bounds of the classes into which late packets are counted.
const LATE: [Duration; 6] = [
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
];

/// Counts of the packets of one direction by their fate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets that entered the direction.
    pub packets: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes of the packets that arrived, with IP headers.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets dropped because the memory for packets on their way was full, they were too large, or the device refused
    /// them.
    pub dropped: u64,
    /// Numbers of packets by the time by which they arrived later than the model says: at most 100 µs, 200 µs, 500 µs, 1 ms,
    /// 2 ms, 5 ms, and more.
    pub late: [u64; LATE.len() + 1],
    /// The largest of these times, in microseconds.
    pub late_max_us: u64,
}

impl Traffic {
    /// Returns the share of the delivered packets that were late by more than a millisecond.
    pub fn late_share(&self) -> f64 {
        let late: u64 = self.late[4..].iter().sum();
        late as f64 / self.delivered.max(1) as f64
    }
}

/// The counters of one direction, which only the forwarding thread writes.
#[derive(Debug, Default)]
struct Counters {
    packets: AtomicU64,
    delivered: AtomicU64,
    delivered_bytes: AtomicU64,
    lost: AtomicU64,
    queue_full: AtomicU64,
    dropped: AtomicU64,
    late: [AtomicU64; LATE.len() + 1],
    late_max_us: AtomicU64,
}

impl Counters {
    fn read(&self) -> Traffic {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            packets: value(&self.packets),
            delivered: value(&self.delivered),
            delivered_bytes: value(&self.delivered_bytes),
            lost: value(&self.lost),
            queue_full: value(&self.queue_full),
            dropped: value(&self.dropped),
            late: std::array::from_fn(|class| value(&self.late[class])),
            late_max_us: value(&self.late_max_us),
        }
    }

    fn count_late(&self, late: Duration) {
        let class = LATE.iter().position(|bound| late <= *bound);
        add(&self.late[class.unwrap_or(LATE.len())], 1);
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.late_max_us.fetch_max(micros, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// One direction: its model, and the packets on their way in the order of their arrivals.
struct Direction {
    link: Link,
    on_the_way: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    counters: Arc<Counters>,
}

impl Direction {
    fn new(link: Link) -> Direction {
        Direction {
            link,
            on_the_way: VecDeque::new(),
            bytes: 0,
            counters: Arc::default(),
        }
    }

    /// Accepts a packet that was sent at the time `now`, or drops it.
    fn accept(&mut self, now: Duration, packet: &[u8]) {
        add(&self.counters.packets, 1);
        let needed = packet.len() + OVERHEAD;
        if packet.len() > MTU || self.bytes + needed > IN_FLIGHT_MAX {
            return add(&self.counters.dropped, 1);
        }
        match self.link.send(now, packet.len()) {
            Fate::Arrives(at) => {
                self.bytes += needed;
                self.on_the_way.push_back((at, packet.to_vec()));
            }
            Fate::Lost => add(&self.counters.lost, 1),
            Fate::QueueFull => add(&self.counters.queue_full, 1),
        }
    }

    /// Removes the next packet if it has arrived at the time `now`.
    fn take_due(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        let (_, packet) = self.on_the_way.front().filter(|(due, _)| *due <= now)?;
        self.bytes -= packet.len() + OVERHEAD;
        self.on_the_way.pop_front()
    }

    fn next_due(&self) -> Option<Duration> {
        self.on_the_way.front().map(|(due, _)| *due)
    }

    /// Reads packets from the device at the beginning of this direction, at most [`BATCH`].
    fn read_from(&mut self, device: &OwnedFd, began: Instant) -> anyhow::Result<()> {
        // A packet that fills the buffer is longer than the device's MTU.
        let mut buffer = [0; MTU + 1];
        for _ in 0..BATCH {
            match read(device, &mut buffer) {
                // The kernel also sends IPv6 packets of its own to each new device; the emulated link has only IPv4.
                Ok(length) if length > 0 && buffer[0] >> 4 == 4 => {
                    self.accept(began.elapsed(), &buffer[..length]);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error).context("reading from a TUN device"),
            }
        }
        Ok(())
    }

    /// Writes packets that are due to the device at the end of this direction.
    fn write_due(&mut self, device: &OwnedFd, began: Instant) {
        let mut now = began.elapsed();
        while let Some((due, packet)) = self.take_due(now) {
            match write(device, &packet) {
                Ok(_) => {
                    now = began.elapsed();
                    add(&self.counters.delivered, 1);
                    add(&self.counters.delivered_bytes, packet.len() as u64);
                    self.counters.count_late(now.saturating_sub(due));
                }
                Err(_) => add(&self.counters.dropped, 1),
            }
        }
    }
}

/// The running forwarding thread. Dropping the value ends it and removes the devices.
#[derive(Debug)]
pub(super) struct Forwarder {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    wakeups: Arc<AtomicU64>,
    up: Arc<Counters>,
    down: Arc<Counters>,
}

impl Forwarder {
    /// Starts the thread between the devices of the near and the far end.
    pub(super) fn start(devices: [OwnedFd; 2], up: Link, down: Link) -> anyhow::Result<Forwarder> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let directions = [Direction::new(up), Direction::new(down)];
        let [up, down] = directions.each_ref().map(|one| one.counters.clone());
        let wakeups: Arc<AtomicU64> = Arc::default();
        let (stopping, waking) = (stop.clone(), wakeups.clone());
        let thread = thread::Builder::new()
            .name("wan-forward".to_owned())
            .spawn(move || {
                realtime::raise_priority();
                // By default, the kernel may delay a timer by 50 µs to save wake-ups.
                let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
                if let Err(error) = forward(&devices, directions, &stopping, &waking) {
                    eprintln!("the WAN emulator ended: {error:#}");
                }
            })?;
        Ok(Forwarder {
            stop,
            thread: Some(thread),
            wakeups,
            up,
            down,
        })
    }

    pub(super) fn up(&self) -> Traffic {
        self.up.read()
    }

    pub(super) fn down(&self) -> Traffic {
        self.down.read()
    }

    /// Returns how often the thread has waited for packets or for their times.
    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Adding to the counter of an eventfd fails only if it overflows.
        let _ = write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, its message has already been printed.
            let _ = thread.join();
        }
    }
}

/// Moves packets until `stop` is readable.
fn forward(
    devices: &[OwnedFd; 2],
    mut directions: [Direction; 2],
    stop: &OwnedFd,
    wakeups: &AtomicU64,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let [near, far] = devices;
    loop {
        let due = directions.iter().filter_map(Direction::next_due).min();
        let timeout = due.map(|due| due.saturating_sub(began.elapsed()));
        let timeout = timeout.map(Timespec::try_from).transpose()?;
        let mut watched = [near.as_fd(), far.as_fd(), stop.as_fd()]
            .map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN));
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        add(wakeups, 1);
        let [from_near, from_far, stopped] = watched.map(|one| !one.revents().is_empty());
        if stopped {
            return Ok(());
        }
        let [up, down] = &mut directions;
        up.write_due(far, began);
        down.write_due(near, began);
        if from_near {
            up.read_from(near, began)?;
            down.write_due(near, began);
        }
        if from_far {
            down.read_from(far, began)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::link::LinkSettings;

    fn direction(delay: Duration) -> Direction {
        let settings = LinkSettings {
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
            rate: None,
            queue: 1,
        };
        Direction::new(Link::new(settings, 1))
    }

    #[test]
    fn packets_wait_for_their_time() {
        let mut direction = direction(Duration::from_millis(40));
        direction.accept(Duration::from_millis(1), &[1; 100]);
        direction.accept(Duration::from_millis(2), &[2; 200]);
        assert_eq!(direction.next_due(), Some(Duration::from_millis(41)));
        assert_eq!(direction.take_due(Duration::from_micros(40_999)), None);
        let late = Duration::from_millis(50);
        let first = direction.take_due(late).map(|(_, packet)| packet);
        assert_eq!(first, Some(vec![1; 100]));
        let second = direction.take_due(late).map(|(_, packet)| packet);
        assert_eq!(second, Some(vec![2; 200]));
        assert_eq!((direction.take_due(late), direction.bytes), (None, 0));
    }

    #[test]
    fn too_large_packets_and_too_many_packets_are_dropped() {
        let mut direction = direction(Duration::from_secs(5));
        direction.accept(Duration::ZERO, &[0; MTU + 1]);
        assert_eq!(direction.counters.read().dropped, 1);
        let fitting = IN_FLIGHT_MAX / (MTU + OVERHEAD);
        for _ in 0..fitting + 3 {
            direction.accept(Duration::ZERO, &[0; MTU]);
        }
        assert_eq!(direction.counters.read().dropped, 4);
        assert_eq!(direction.on_the_way.len(), fitting);
        assert!(direction.bytes <= IN_FLIGHT_MAX);
    }

    #[test]
    fn late_packets_are_counted_by_class() {
        let counters = Counters::default();
        for micros in [0, 100, 150, 1000, 1001, 9000] {
            counters.count_late(Duration::from_micros(micros));
        }
        let traffic = Traffic {
            delivered: 6,
            ..counters.read()
        };
        assert_eq!(traffic.late, [2, 1, 0, 1, 1, 0, 1]);
        assert_eq!(traffic.late_max_us, 9000);
        assert!((traffic.late_share() - 2.0 / 6.0).abs() < 1e-9);
    }
}
