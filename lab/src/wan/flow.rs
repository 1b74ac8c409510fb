//! Flows of UDP packets between the ends of an emulated link, and their measurement.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::namespace::End;
use super::realtime::raise_priority;

/// Bytes of the headers of IPv4 and UDP.
pub(super) const HEADERS: usize = 28;

/// Bytes of the number at the beginning of each packet.
const NUMBER: usize = 8;

/// Smallest packet of a flow in bytes, with its headers.
pub(super) const SMALLEST: usize = HEADERS + NUMBER;

/// Size in bytes of the packets that measure round trips, with their headers.
pub(super) const PROBE: usize = 100;

/// Time between two of these packets.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Receive buffer in bytes of each socket, so that packets are not lost while the receiving thread waits for a core.
const RECEIVE_BUFFER: usize = 32 << 20;

/// Interval at which a receiver without packets checks whether it should end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A flow to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// Size of a packet in bytes, with its headers.
    pub(super) size: usize,
    /// Packets per second.
    pub(super) pace: f64,
    /// Number of packets.
    pub(super) packets: u64,
    /// Time for which the receiver waits after the last packet was sent.
    pub(super) wait: Duration,
}

/// The measurement of a flow.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived {
    /// Number of packets sent.
    pub(super) sent: u64,
    /// Number of packets received.
    pub(super) received: u64,
    /// Number of packets received after a packet that was sent later.
    pub(super) reordered: u64,
    /// Bytes received after the first packet, with headers.
    bytes: u64,
    /// Time from the first packet to the last.
    took: Duration,
}

impl Arrived {
    /// Returns the rate at which packets arrived, in bits per second; `None` for fewer than two packets.
    pub(super) fn rate(&self) -> Option<f64> {
        let seconds = self.took.as_secs_f64();
        (seconds > 0.0).then(|| self.bytes as f64 * 8.0 / seconds)
    }
}

/// Creates a UDP socket in the namespace of `end`.
fn socket(end: &End) -> anyhow::Result<UdpSocket> {
    let socket = end.run(|| UdpSocket::bind((end.address(), 0)))??;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(CHECK_INTERVAL))?;
    Ok(socket)
}

/// Receives a packet; `None` if none arrives in time.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> anyhow::Result<Option<(usize, SocketAddr)>> {
    match socket.recv_from(buffer) {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error).context("receiving packets"),
    }
}

fn number(packet: &[u8]) -> u64 {
    packet
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Sends a flow from one end to the other, and measures its arrival.
pub(super) fn send_flow(from: &End, to: &End, flow: Flow) -> anyhow::Result<Arrived> {
    ensure!(
        flow.size >= SMALLEST,
        "packets of at least {SMALLEST} bytes"
    );
    let (source, sink) = (socket(from)?, socket(to)?);
    let target = sink.local_addr()?;
    // The number of packets sent, once all are.
    let all_sent = AtomicU64::new(u64::MAX);
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            be_ready(&ready);
            receive_flow(&sink, flow, &all_sent)
        });
        let sending = scope.spawn(|| {
            be_ready(&ready);
            send_packets(&source, target, flow)
        });
        let sent = sending.join();
        let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        all_sent.store(*sent.as_ref().unwrap_or(&0), Ordering::Release);
        let arrived = receiving.join();
        let arrived = arrived.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Arrived {
            sent: sent?,
            ..arrived
        })
    })
}

/// Raises the priority of a measuring thread, and waits for the other one. On a busy machine, a new thread may have to
/// wait for a core for half a second.
fn be_ready(ready: &Barrier) {
    raise_priority();
    ready.wait();
}

fn send_packets(source: &UdpSocket, target: SocketAddr, flow: Flow) -> anyhow::Result<u64> {
    let mut packet = vec![0; flow.size - HEADERS];
    let began = Instant::now();
    for index in 0..flow.packets {
        let due = Duration::from_secs_f64(index as f64 / flow.pace);
        let ahead = due.saturating_sub(began.elapsed());
        if !ahead.is_zero() {
            thread::sleep(ahead);
        }
        packet[..NUMBER].copy_from_slice(&index.to_be_bytes());
        source.send_to(&packet, target).context("sending packets")?;
    }
    Ok(flow.packets)
}

fn receive_flow(sink: &UdpSocket, flow: Flow, all_sent: &AtomicU64) -> anyhow::Result<Arrived> {
    let mut buffer = [0; 2048];
    let mut arrived = Arrived::default();
    let (mut first, mut ended) = (None, None);
    let mut next = 0;
    loop {
        let sent = all_sent.load(Ordering::Acquire);
        let ended = match sent {
            u64::MAX => None,
            _ => Some(*ended.get_or_insert_with(Instant::now)),
        };
        if arrived.received >= sent || ended.is_some_and(|ended| ended.elapsed() > flow.wait) {
            return Ok(arrived);
        }
        let Some((length, _)) = receive(sink, &mut buffer)? else {
            continue;
        };
        let now = Instant::now();
        match first {
            None => first = Some(now),
            Some(first) => {
                arrived.took = now - first;
                arrived.bytes += (length + HEADERS) as u64;
            }
        }
        arrived.received += 1;
        let number = number(&buffer[..length]);
        arrived.reordered += u64::from(number < next);
        next = next.max(number + 1);
    }
}

/// Measures round trips from one end to the other: sends packets at a constant pace, which the other end returns.
/// Returns the times of those that came back within `wait`.
pub(super) fn round_trips(
    from: &End,
    to: &End,
    count: u32,
    wait: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let (source, sink) = (socket(from)?, socket(to)?);
    let target = sink.local_addr()?;
    let done = AtomicBool::new(false);
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let echoing = scope.spawn(|| {
            be_ready(&ready);
            echo(&sink, &done)
        });
        let probing = scope.spawn(|| {
            be_ready(&ready);
            probe(&source, target, count, wait)
        });
        let probing = probing.join();
        done.store(true, Ordering::Relaxed);
        let echoed = echoing.join();
        echoed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        probing.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn echo(sink: &UdpSocket, done: &AtomicBool) -> anyhow::Result<()> {
    let mut buffer = [0; 2048];
    while !done.load(Ordering::Relaxed) {
        if let Some((length, peer)) = receive(sink, &mut buffer)? {
            sink.send_to(&buffer[..length], peer)?;
        }
    }
    Ok(())
}

fn probe(
    source: &UdpSocket,
    target: SocketAddr,
    count: u32,
    wait: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let mut packet = [0; PROBE - HEADERS];
    let mut sent: Vec<Instant> = Vec::with_capacity(count as usize);
    let mut times = Vec::with_capacity(count as usize);
    let began = Instant::now();
    loop {
        let left = match sent.last() {
            Some(last) if sent.len() == count as usize => wait.saturating_sub(last.elapsed()),
            _ => (PROBE_INTERVAL * sent.len() as u32).saturating_sub(began.elapsed()),
        };
        if sent.len() == count as usize && (left.is_zero() || times.len() == sent.len()) {
            return Ok(times);
        }
        if left.is_zero() {
            packet[..NUMBER].copy_from_slice(&(sent.len() as u64).to_be_bytes());
            sent.push(Instant::now());
            source.send_to(&packet, target).context("sending packets")?;
            continue;
        }
        source.set_read_timeout(Some(left.min(CHECK_INTERVAL)))?;
        if let Some((length, _)) = receive(source, &mut packet)?
            && let Some(sent) = sent.get(number(&packet[..length]) as usize)
        {
            times.push(sent.elapsed());
        }
    }
}
