//! Rows of the bench about a million stored objects: the time until they are available again after SIGKILL, and the
//! memory that their index takes.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use super::memory::settled;
use super::sluice::{Sluice, SluiceOptions, Volume};
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client::Client;
use crate::load::{self, LoadPlan};
use crate::noise::Dice;
use crate::rivals::{Floor, FloorOptions};

const OBJECTS: u64 = 1_000_000;
const LENGTH: u64 = 5 << 10;

/// Size of the volume in bytes: enough for the records of all objects, so that none is evicted.
const SIZE: u64 = 8 << 30;

/// Size of the cache in memory, and number of stored objects after which memory use is first measured. The cache is
/// full by then.
const MEMORY: &str = "64MiB";
const FIRST: u64 = 50_000;

/// Host header of all requests. Without it, keys would contain the port, which differs after each start.
const HOST: &str = "million.example";

const CONNECTIONS: usize = 64;

/// Number of random keys requested after the index has been rebuilt.
const SAMPLES: u64 = 1000;

const TIMEOUT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);

/// Results of starting Sluice once with the stored objects.
struct Start {
    first_hit: Duration,
    whole: Duration,
    records: u64,
    /// Number of sampled keys that were hits.
    hits: u64,
}

pub(super) fn start(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut rows = [
        Row::new("stored record: memory", Unit::Bytes),
        Row::new(
            "1,000,000 stored, SIGKILL, page cache dropped: first hit",
            Unit::Seconds,
        ),
        Row::new(
            "1,000,000 stored, SIGKILL, page cache dropped: complete index",
            Unit::Seconds,
        ),
        Row::new("1,000,000 stored, SIGKILL: lost", Unit::Factor),
    ];
    if let Some(binary) = &bench.options.sluice_binary {
        let floor = Floor::start(FloorOptions::new(LENGTH))?;
        let options = SluiceOptions {
            memory: Some(MEMORY.to_owned()),
            volumes: vec![Volume::new(bench.folder.path().join("million"), SIZE)],
            workers: std::thread::available_parallelism()?.get(),
            ..SluiceOptions::new(binary, floor.addr())
        };
        let mut sluice = Sluice::start(&options)?;
        let (before, first) = filled(&sluice, 0, FIRST)?;
        let (after, stored) = filled(&sluice, FIRST, OBJECTS - FIRST)?;
        let [memory, ..] = &mut rows;
        let grown = after.saturating_sub(before) as f64;
        memory.sluice = Some(grown / stored.saturating_sub(first).max(1) as f64);
        memory.note = format!("growth from {first} to {stored} records");
        let mut starts = Vec::new();
        for _ in 0..bench.options.rounds.max(1) {
            sluice.kill()?;
            drop_page_cache()?;
            let (again, start) = started(&options)?;
            eprintln!(
                "  first hit {:?}, complete index {:?}, {} records, {} of {SAMPLES} hits",
                start.first_hit, start.whole, start.records, start.hits
            );
            starts.push(start);
            sluice = again;
        }
        fill_rows(&mut rows, &starts, stored);
    }
    let [memory, first, whole, lost] = rows;
    Ok(vec![
        memory.goal_most(80.0),
        first.goal_most(1.0),
        whole.goal_most(3.0),
        // Nearly all objects that had been written before SIGKILL must be hits after the next start.
        lost.goal_most(0.001),
    ])
}

fn fill_rows(rows: &mut [Row; 4], starts: &[Start], stored: u64) {
    let seconds = |of: fn(&Start) -> Duration| {
        median(starts.iter().map(|one| of(one).as_secs_f64()).collect())
    };
    let [_, first, whole, lost] = rows;
    first.sluice = seconds(|start| start.first_hit);
    whole.sluice = seconds(|start| start.whole);
    let least = starts.iter().map(|start| start.records).min();
    let hits = starts.iter().map(|start| start.hits).min();
    if let Some((least, hits)) = least.zip(hits) {
        let share = least as f64 / stored.max(1) as f64;
        lost.sluice = Some((1.0 - share).max(0.0));
        lost.note = format!("{least} of {stored} records; {hits} of {SAMPLES} samples are hits");
    }
}

/// Stores `count` objects. Then returns the resident memory in bytes and the number of records.
fn filled(sluice: &Sluice, first: u64, count: u64) -> anyhow::Result<(u64, u64)> {
    let began = Instant::now();
    let result = load::run(LoadPlan {
        numbers: Some((first, count)),
        requests: Some(count),
        connections: CONNECTIONS,
        expect_length: Some(LENGTH),
        host: HOST.to_owned(),
        ..LoadPlan::new(sluice.addr(), "/{n}")
    })?;
    anyhow::ensure!(result.errors.total() == 0, "{:?}", result.errors);
    sluice.wait_stored(TIMEOUT)?;
    let status = sluice.status()?;
    let volume = volume(&status)?;
    let records = volume["records"].as_u64().context("volume: records")?;
    eprintln!(
        "  {count} objects in {:.1} s: {records} records, {} shed",
        began.elapsed().as_secs_f64(),
        volume["shed"]
    );
    Ok((settled(sluice.process())?, records))
}

fn volume(status: &Value) -> anyhow::Result<&Value> {
    let volumes = status["volumes"].as_array();
    volumes
        .and_then(|all| all.first())
        .context("status: volumes")
}

/// Drops the kernel's page cache, so that files are read from the disk as after a boot. Needs root.
pub(super) fn drop_page_cache() -> anyhow::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the page cache")
}

fn started(options: &SluiceOptions) -> anyhow::Result<(Sluice, Start)> {
    let began = Instant::now();
    let sluice = Sluice::start(options)?;
    let mut client = Client::connect(sluice.addr())?;
    let mut dice = Dice::new(began.elapsed().as_nanos() as u64, 0);
    let mut hit = |dice: &mut Dice| -> anyhow::Result<bool> {
        // A sampled object that is missing must not be fetched, since that would add a record. `only-if-cached`
        // prevents the fetch.
        let number = dice.below(OBJECTS);
        let fields = [("Host", HOST), ("Cache-Control", "only-if-cached")];
        let reply = client.get(&format!("/{number}"), &fields)?;
        Ok(reply.status == 200 && reply.body.len() as u64 == LENGTH)
    };
    while !hit(&mut dice)? {
        anyhow::ensure!(
            began.elapsed() < TIMEOUT,
            "no stored object is found after the restart"
        );
    }
    let first_hit = began.elapsed();
    let records = loop {
        let status = sluice.status()?;
        let volume = volume(&status)?;
        if volume["state"] == "up" {
            break volume["records"].as_u64().context("volume: records")?;
        }
        anyhow::ensure!(
            began.elapsed() < TIMEOUT,
            "the index is not complete in time: {volume}"
        );
        std::thread::sleep(LOOK);
    };
    let whole = began.elapsed();
    let mut hits = 0;
    for _ in 0..SAMPLES {
        hits += u64::from(hit(&mut dice)?);
    }
    let start = Start {
        first_hit,
        whole,
        records,
        hits,
    };
    Ok((sluice, start))
}
