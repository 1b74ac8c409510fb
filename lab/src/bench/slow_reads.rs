//! The row of the bench about reads from a slow disk: how much they delay hits in memory.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::sluice::{Sluice, SluiceOptions, Volume};
use super::start::drop_page_cache;
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::disk::{Pace, SlowDisk};
use crate::load::{LoadPlan, LoadResult};
use crate::process::pin_to_core;
use crate::rivals::FloorOptions;
use crate::roles;

/// Size of every object in bytes.
const LENGTH: u64 = 64 << 10;

/// Numbers of objects that stay in memory (`HOT`) and of objects that memory has no space for (`COLD`).
const HOT: u64 = 200;
const COLD: u64 = 12_000;
const MEMORY: &str = "64MiB";
const SIZE: u64 = 1 << 30;

/// Speed that the disk is set to after all objects have been stored.
const PACE: Pace = Pace {
    rate: Some(40_000_000),
    latency: Duration::from_millis(5),
};

const HOT_CONNECTIONS: usize = 32;
const COLD_CONNECTIONS: usize = 32;

/// Rate of requests for memory hits, as a share of the server's maximum throughput.
const SHARE: f64 = 0.3;

const ROUNDS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn slow_reads(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut row = Row::new("reads of a slow disk: p99 of memory hits", Unit::Factor);
    if let Some(binary) = &bench.options.sluice_binary {
        // The disk's threads are started from a thread on the load core: on the server's core they would compete with
        // the server.
        let measured = thread::scope(|scope| {
            scope
                .spawn(|| {
                    pin_to_core(bench.options.load_core)?;
                    measure(bench, binary)
                })
                .join()
        });
        let (ratio, note) = measured.map_err(|_| anyhow::anyhow!("it panicked"))??;
        row.sluice = Some(ratio);
        row = row.note(&note);
    }
    Ok(vec![row.goal_most(2.0)])
}

fn measure(bench: &Bench<'_>, binary: &Path) -> anyhow::Result<(f64, String)> {
    let disk = SlowDisk::new(SIZE * 2, Pace::default())?;
    let mut floor = FloorOptions::new(LENGTH);
    floor.core = Some(bench.options.load_core);
    let origin = roles::start_floor(&floor, bench.folder.path())?;
    let sluice = Sluice::start(&SluiceOptions {
        memory: Some(MEMORY.to_owned()),
        volumes: vec![Volume::new(disk.path().join("volume"), SIZE)],
        core: Some(bench.options.server_core),
        ..SluiceOptions::new(binary, origin.address)
    })?;
    let trial = Trial {
        bench,
        sluice: &sluice,
    };
    trial.run(&LoadPlan {
        requests: Some(COLD),
        connections: 16,
        ..trial.plan("/cold/", COLD)
    })?;
    sluice.wait_stored(TIMEOUT)?;
    let most = trial.hot(None)?.rate();
    disk.set_pace(PACE);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut read = Vec::new();
    for _ in 0..ROUNDS {
        let rate = Some(most * SHARE);
        without.push(trial.hot(rate)?.latency.p99_us);
        drop_page_cache()?;
        let before = disk.activity();
        let result = trial.load_on_hits_and_disk(rate)?;
        let usage = disk.activity().since(&before, result.seconds);
        eprintln!(
            "  p99 {:.0} µs; {:.0} µs with {:.1} MB/s of disk reads",
            without.last().copied().unwrap_or_default(),
            result.latency.p99_us,
            usage.read_bytes / 1e6
        );
        with.push(result.latency.p99_us);
        read.push(usage.read_bytes / 1e6);
    }
    let of = |values| median(values).context("rounds");
    let (without, with, read) = (of(without)?, of(with)?, of(read)?);
    anyhow::ensure!(read > 1.0, "nothing was read from the disk");
    let note = format!(
        "{without:.0} µs; {with:.0} µs with {read:.1} MB/s of disk reads, at {:.0} hits/s",
        most * SHARE
    );
    Ok((with / without.max(1.0), note))
}

struct Trial<'a> {
    bench: &'a Bench<'a>,
    sluice: &'a Sluice,
}

impl Trial<'_> {
    fn plan(&self, path: &str, objects: u64) -> LoadPlan {
        LoadPlan {
            numbers: Some((0, objects)),
            expect_length: Some(LENGTH),
            core: Some(self.bench.options.load_core),
            timeout_seconds: 60.0,
            ..LoadPlan::new(self.sluice.addr(), &format!("{path}{{n}}"))
        }
    }

    fn run(&self, plan: &LoadPlan) -> anyhow::Result<LoadResult> {
        let result = roles::run_load(plan, self.bench.folder.path())?;
        anyhow::ensure!(result.errors.total() == 0, "{:?}", result.errors);
        Ok(result)
    }

    fn hot(&self, rate: Option<f64>) -> anyhow::Result<LoadResult> {
        self.run(&LoadPlan {
            rate,
            seconds: Some(self.bench.options.seconds_per_run),
            connections: HOT_CONNECTIONS,
            ..self.plan("/hot/", HOT)
        })
    }

    /// Measures a load of memory hits while other clients request objects that are not in memory.
    fn load_on_hits_and_disk(&self, rate: Option<f64>) -> anyhow::Result<LoadResult> {
        let cold = LoadPlan {
            seconds: Some(self.bench.options.seconds_per_run),
            connections: COLD_CONNECTIONS,
            ..self.plan("/cold/", COLD)
        };
        thread::scope(|scope| {
            let cold = scope.spawn(|| self.run(&cold));
            let hot = self.hot(rate);
            let cold = cold.join();
            cold.map_err(|_| anyhow::anyhow!("the other load panicked"))??;
            hot
        })
    }
}
