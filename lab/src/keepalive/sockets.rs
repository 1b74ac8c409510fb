//! Samples of the kernel's view of the connections between proxy and server: their states, the congestion window of the
//! server, and the bytes in flight.

use std::fs;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::socket_address;

/// Time between two samples.
const EVERY: Duration = Duration::from_millis(200);

/// Most samples of a measurement.
const SAMPLES_MAX: usize = 20_000;

/// States of a TCP socket in `/proc/net/tcp`.
const ESTABLISHED: u8 = 1;
const TIME_WAIT: u8 = 6;

/// Connections at one end of the link at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketSample {
    /// Seconds from the start of the measurement.
    pub at: f64,
    /// Number of established connections.
    pub open: u64,
    /// Number of connections in TIME_WAIT.
    pub time_wait: u64,
    /// Largest congestion window in bytes.
    pub window_bytes: Option<u64>,
    /// Largest number of bytes in flight, sent and not acknowledged, of a connection.
    pub in_flight_bytes: Option<u64>,
}

/// The end of the link at which connections are sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Port of the server.
    pub(super) port: u16,
    /// The first two bytes of the addresses of the connections' other ends.
    pub(super) peers: [u8; 2],
    /// Whether this is the server's end, whose congestion windows are sampled, too.
    pub(super) is_server: bool,
}

/// Takes samples in the network namespace of the calling thread until `stopped`.
pub(super) fn sample(place: Place, began: Instant, stopped: &AtomicBool) -> Vec<SocketSample> {
    let mut samples = Vec::new();
    while !stopped.load(Ordering::Relaxed) && samples.len() < SAMPLES_MAX {
        samples.push(one(place, began));
        thread::sleep(EVERY);
    }
    samples
}

fn one(place: Place, began: Instant) -> SocketSample {
    let at = began.elapsed().as_secs_f64();
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default();
    let states: Vec<u8> = table
        .lines()
        .filter_map(|line| state(line, place))
        .collect();
    let count = |wanted: u8| states.iter().filter(|state| **state == wanted).count() as u64;
    let flights = if place.is_server {
        flights(place)
    } else {
        Vec::new()
    };
    SocketSample {
        at,
        open: count(ESTABLISHED),
        time_wait: count(TIME_WAIT),
        window_bytes: flights.iter().map(|flight| flight.window).max(),
        in_flight_bytes: flights.iter().map(|flight| flight.bytes).max(),
    }
}

/// Returns the state of the socket in this line of `/proc/net/tcp`, if it belongs to a connection between proxy and
/// server.
fn state(line: &str, place: Place) -> Option<u8> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
    let (local, remote) = (socket_address(local)?, socket_address(remote)?);
    let port = if place.is_server {
        local.port()
    } else {
        remote.port()
    };
    let IpAddr::V4(peer) = remote.ip() else {
        return None;
    };
    let is_between = port == place.port && peer.octets()[..2] == place.peers;
    is_between.then(|| u8::from_str_radix(state, 16).ok())?
}

/// The sending side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flight {
    window: u64,
    bytes: u64,
}

/// Returns the congestion windows and bytes in flight of the server's connections, as the program `ss` shows them. If `ss`
/// fails, there are none.
fn flights(place: Place) -> Vec<Flight> {
    let [first, second] = place.peers;
    let output = Command::new("ss")
        .args(["-tinOH", "state", "established", "sport", "="])
        .args([
            &format!(":{}", place.port),
            "and",
            "dst",
            &format!("{first}.{second}.0.0/16"),
        ])
        .stdin(Stdio::null())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .filter_map(flight)
        .collect()
}

/// Parses the line of a connection in the output of `ss -tinO`.
fn flight(line: &str) -> Option<Flight> {
    let value = |name: &str| -> Option<u64> {
        let mut words = line.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name))?.parse().ok()
    };
    let segment = value("mss:")?;
    Some(Flight {
        window: value("cwnd:")?.saturating_mul(segment),
        bytes: value("unacked:").unwrap_or(0).saturating_mul(segment),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Place = Place {
        port: 8080,
        peers: [10, 2],
        is_server: false,
    };
    const FAR: Place = Place {
        port: 8080,
        peers: [10, 1],
        is_server: true,
    };

    #[test]
    fn states_are_those_of_connections_between_proxy_and_server() {
        // 10.1.0.1:45000 to 10.2.0.1:8080, in the order of a little-endian machine.
        let near =
            "   0: 0100010A:AFC8 0100020A:1F90 06 00000000:00000000 00:00000000 00000000 0 0 1";
        assert_eq!(state(near, NEAR), Some(TIME_WAIT));
        assert_eq!(state(near, FAR), None);
        let far =
            "   0: 0100020A:1F90 0100010A:AFC8 01 00000000:00000000 00:00000000 00000000 0 0 1";
        assert_eq!(state(far, FAR), Some(ESTABLISHED));
        // Another client of the server, in the server's own network.
        let other =
            "   0: 0100020A:1F90 0100020A:AFC8 01 00000000:00000000 00:00000000 00000000 0 0 1";
        assert_eq!(state(other, FAR), None);
        assert_eq!(
            state("  sl  local_address rem_address   st tx_queue", FAR),
            None
        );
        assert_eq!(state("", FAR), None);
    }

    #[test]
    fn windows_and_flights_are_counted_in_bytes() {
        let line = "0 0 10.2.0.1:8080 10.1.0.1:45000 cubic wscale:7,7 rto:280 rtt:80.1/0.1 mss:1448 pmtu:1500 cwnd:23 \
                    bytes_sent:65536 unacked:4 app_limited";
        let found = flight(line).expect("a connection");
        assert_eq!((found.window, found.bytes), (23 * 1448, 4 * 1448));
        assert_eq!(flight("0 0 10.2.0.1:8080 10.1.0.1:45000"), None);
    }
}
