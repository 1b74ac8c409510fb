//! The clients of the demo: some threads that send requests of a fixed mix at a bounded rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluice_lab::client::Client;

use crate::sys::{Clock, Random};

/// Number of clients.
const CLIENTS: u64 = 4;
/// Requests per second of each client.
const RATE: u64 = 40;
/// Time between two requests of a client.
const STEP_US: u64 = 1_000_000 / RATE;
/// Longest time that a client waits for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failure to connect.
const PAUSE: Duration = Duration::from_millis(200);
/// Requests on one connection.
const REQUESTS_PER_CONNECTION: u64 = 500;
/// Number of different names in each folder.
const NAMES: usize = 1200;
/// Skew of their popularity: the exponent of Zipf's law.
const SKEW: f64 = 0.9;

/// Length of a video.
pub(super) const MEDIA_BYTES: u64 = 4 << 20;
/// Length of the parts of videos that clients request.
const PART_BYTES: u64 = 256 << 10;

/// The kinds of requests: share in percent, host, folder, names that are used, and the end of the name.
const MIX: [(u64, &str, &str, usize, &str); 7] = [
    (40, "media.example", "img", NAMES, ".jpg"),
    (8, "media.example", "video", 60, ".mp4"),
    (34, "www.example", "pages", 400, ""),
    (6, "www.example", "account", 50, ""),
    (8, "www.example", "api", 200, "?token=secret"),
    (2, "www.example", "legacy", 10, ""),
    (2, "www.example", "missing", 30, ""),
];

/// The running clients. Dropping this stops them.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// A request of a client.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    host: &'static str,
    target: String,
    range: Option<String>,
}

impl Traffic {
    /// Requests per second of all clients together.
    pub(super) const RATE: u64 = CLIENTS * RATE;

    /// Starts the clients of a listener.
    pub(super) fn start(edge: SocketAddr) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let weights = Arc::new(popularity(NAMES));
        let client = |number| {
            let (stop, weights) = (stop.clone(), weights.clone());
            thread::spawn(move || client(edge, &Random::seeded(number), &weights, &stop))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Traffic { stop, clients }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            // A client that has panicked sends nothing, which is the aim.
            let _ = client.join();
        }
    }
}

/// Sends requests until `stop` is set.
fn client(edge: SocketAddr, random: &Random, weights: &[f64], stop: &AtomicBool) {
    let clock = Clock::system();
    let mut next_us = clock.monotonic_us();
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = connect(edge) else {
            thread::sleep(PAUSE);
            continue;
        };
        for _ in 0..REQUESTS_PER_CONNECTION {
            if stop.load(Ordering::Relaxed) || !send(&mut connection, &request(random, weights)) {
                break;
            }
            // A client that was late does not catch up.
            let now_us = clock.monotonic_us();
            next_us = (next_us + STEP_US).max(now_us);
            thread::sleep(Duration::from_micros(next_us - now_us));
        }
    }
}

fn connect(edge: SocketAddr) -> std::io::Result<Client> {
    let mut connection = Client::connect(edge)?;
    connection.set_timeout(TIMEOUT)?;
    Ok(connection)
}

/// Sends a request, and returns whether the connection can be used again.
fn send(connection: &mut Client, request: &Request) -> bool {
    let mut headers = vec![("Host", request.host)];
    headers.extend(request.range.as_deref().map(|range| ("Range", range)));
    let reply = connection.get(&request.target, &headers);
    reply.is_ok_and(|reply| {
        reply
            .header("connection")
            .is_none_or(|value| value != "close")
    })
}

/// Returns a request of the mix.
fn request(random: &Random, weights: &[f64]) -> Request {
    let mut draw = random.next_u64() % 100;
    let kind = MIX
        .iter()
        .find(|(share, ..)| match draw.checked_sub(*share) {
            None => true,
            Some(rest) => {
                draw = rest;
                false
            }
        });
    let (_, host, folder, names, end) = kind.copied().unwrap_or(MIX[0]);
    let name = pick(random, weights, names);
    let range = (folder == "video").then(|| {
        let first = random.next_u64() % (MEDIA_BYTES / PART_BYTES) * PART_BYTES;
        format!("bytes={first}-{}", first + PART_BYTES - 1)
    });
    Request {
        host,
        target: format!("/{folder}/{name}{end}"),
        range,
    }
}

/// Returns the sums of the names' popularity, from the most popular one on.
fn popularity(names: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let next = |name| {
        sum += 1.0 / f64::from(name).powf(SKEW);
        sum
    };
    (1..=names as u32).map(next).collect()
}

/// Returns the number of one of the first `names` names, by their popularity.
fn pick(random: &Random, weights: &[f64], names: usize) -> usize {
    let used = &weights[..names.min(weights.len())];
    let total = used.last().copied().unwrap_or_default();
    let at = (random.next_u64() >> 32) as f64 / (1u64 << 32) as f64 * total;
    used.partition_point(|sum| *sum <= at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_mix_has_each_kind_at_its_share() {
        let shares: u64 = MIX.iter().map(|(share, ..)| share).sum();
        assert_eq!(shares, 100);
        let (random, weights) = (Random::seeded(1), popularity(NAMES));
        let mut folders: BTreeMap<String, u64> = BTreeMap::new();
        let mut first = 0;
        for _ in 0..10_000 {
            let request = request(&random, &weights);
            let folder = request.target.split('/').nth(1).unwrap_or_default();
            *folders.entry(folder.to_owned()).or_default() += 1;
            first += u64::from(request.target == "/img/0.jpg");
            assert_eq!(request.range.is_some(), folder == "video");
        }
        for (share, _, folder, ..) in MIX {
            let n = folders[folder];
            assert!(n.abs_diff(share * 100) < 200, "{folder}: {n}");
        }
        // Zipf's law: the most popular one of 1,200 names gets about 9 % of their requests.
        assert!((200..600).contains(&first), "{first}");
    }
}
