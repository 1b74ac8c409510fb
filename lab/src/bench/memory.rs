//! Rows that compare resident memory: idle connections, and memory after a long series of evictions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::Bench;
use super::sluice::{Sluice, SluiceOptions};
use super::table::{Row, Unit};
use crate::client::{self, Client};
use crate::load::{self, LoadPlan};
use crate::origin::{Origin, OriginOptions};
use crate::process::Process;
use crate::rivals::{NginxMode, NginxOptions};

/// Number of idle connections. Server and load generator together have twice as many descriptors, which fit into a
/// limit of 20,000.
const IDLE: usize = 9500;

/// Longest wait until a server's memory use is stable.
const SETTLE: Duration = Duration::from_secs(5);

const TIER: u64 = 64 << 20;
const CHURN_TIERS: u64 = 50;
const OBJECT_MIN: u64 = 1 << 10;
const OBJECT_MAX: u64 = 2 << 20;

pub(super) fn idle(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origin = Origin::start(OriginOptions::default())?;
    let mut row = Row::new("idle keepalive connection: memory", Unit::Bytes);
    if bench.nginx {
        let options = NginxOptions::new(NginxMode::Cached, Some(origin.addr()));
        let nginx = options.start()?;
        row.nginx = Some(idle_bytes(nginx.addr(), nginx.process())?);
    }
    if let Some(sluice) = start(bench, origin.addr(), "256MiB")? {
        row.sluice = Some(idle_bytes(sluice.addr(), sluice.process())?);
    }
    let note = format!("growth over {IDLE} connections that each made a request");
    Ok(vec![row.goal_most(1200.0).note(&note)])
}

fn start(bench: &Bench<'_>, origin: SocketAddr, memory: &str) -> anyhow::Result<Option<Sluice>> {
    let Some(binary) = &bench.options.sluice_binary else {
        return Ok(None);
    };
    let options = SluiceOptions {
        memory: Some(memory.to_owned()),
        core: Some(bench.options.server_core),
        ..SluiceOptions::new(binary, origin)
    };
    Sluice::start(&options).map(Some)
}

/// Opens idle connections and returns the growth of the server's resident memory per connection, in bytes.
pub(super) fn idle_bytes(address: SocketAddr, process: &Process) -> anyhow::Result<f64> {
    idle_bytes_of(IDLE, address, process)
}

/// Opens this many idle connections, and returns the growth of memory per connection.
pub(super) fn idle_bytes_of(
    connections: usize,
    address: SocketAddr,
    process: &Process,
) -> anyhow::Result<f64> {
    const PATH: &str = "/offset/5120";
    for _ in 0..100 {
        client::get(address, PATH, &[])?;
    }
    let before = settled(process)?;
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let mut client =
            Client::connect(address).with_context(|| format!("after {number} connections"))?;
        let reply = client.get(PATH, &[])?;
        reply.verify_whole(5120).map_err(anyhow::Error::msg)?;
        open.push(client);
    }
    let after = settled(process)?;
    // The memory per connection is only valid if the server has kept the idle connections open. A request on the last
    // connection proves that.
    let last = open.last_mut().context("connections")?;
    anyhow::ensure!(
        last.get(PATH, &[])?.status == 200,
        "an idle connection was closed"
    );
    let first = open.first_mut().context("connections")?;
    anyhow::ensure!(
        first.get(PATH, &[])?.status == 200,
        "an idle connection was closed"
    );
    Ok(after.saturating_sub(before) as f64 / connections as f64)
}

/// Waits until the resident memory of a process is stable and returns its bytes.
pub(crate) fn settled(process: &Process) -> anyhow::Result<u64> {
    let deadline = Instant::now() + SETTLE;
    let mut last = process.memory()?.rss;
    loop {
        std::thread::sleep(Duration::from_millis(250));
        let now = process.memory()?.rss;
        if now == last || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

pub(super) fn churn(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origin = Origin::start(OriginOptions::default())?;
    let mut row = Row::new("memory after evictions, cache of 64 MiB", Unit::Megabytes);
    if let Some(sluice) = start(bench, origin.addr(), "64MiB")? {
        let empty = settled(sluice.process())?;
        let paths = churn_paths();
        let objects = paths.len() as u64;
        let result = load::run(LoadPlan {
            paths,
            requests: Some(objects),
            connections: 16,
            verify: true,
            timeout_seconds: 60.0,
            ..LoadPlan::new(sluice.addr(), "/")
        })?;
        anyhow::ensure!(result.errors.total() == 0, "{:?}", result.errors);
        let after = settled(sluice.process())?;
        row.sluice = Some(after as f64 / 1e6);
        let note = format!(
            "{objects} objects, {:.1} GB in {:.1} s; {:.1} MB when empty; {:.2} of the cache size",
            result.bytes as f64 / 1e9,
            result.seconds,
            empty as f64 / 1e6,
            after as f64 / TIER as f64,
        );
        row = row.note(&note);
    }
    Ok(vec![row.goal_most(TIER as f64 * 1.1 / 1e6 + 20.0)])
}

/// Returns paths of distinct objects of mixed sizes. The sizes are distributed evenly over their logarithm, and their
/// sum is fifty times the size of the cache.
fn churn_paths() -> Vec<String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut total = 0;
    let mut paths = Vec::new();
    let span = (OBJECT_MAX as f64 / OBJECT_MIN as f64).ln();
    while total < TIER * CHURN_TIERS {
        // The random generator xorshift64 with a fixed seed gives the same objects in each run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
        let size = (OBJECT_MIN as f64 * (unit * span).exp()) as u64;
        paths.push(format!("/offset/{size}?object={}", paths.len()));
        total += size;
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn churn_objects_are_distinct_and_within_bounds() {
        let paths = churn_paths();
        let size = |path: &String| {
            let text = path.strip_prefix("/offset/")?.split('?').next()?;
            text.parse::<u64>().ok()
        };
        let sizes: Vec<u64> = paths
            .iter()
            .map(|path| size(path).expect("a size"))
            .collect();
        let total: u64 = sizes.iter().sum();
        assert!((TIER * 50..TIER * 51).contains(&total));
        assert!(
            sizes
                .iter()
                .all(|size| (OBJECT_MIN..=OBJECT_MAX).contains(size))
        );
        assert!(sizes.iter().filter(|size| **size < 32 << 10).count() > paths.len() / 3);
    }
}
