//! The part `real`: throughput of the machine's disk, the cost of storing in a closed loop, and the effect of storing
//! on a load below the maximum.

use std::path::Path;
use std::process::Command;

use crate::scratch::Folder;
use anyhow::Context as _;
use serde_json::Value;

use super::slow::{start_nginx, start_sluice};
use super::test_bed::{Asking, LENGTH, Phase, Server, Storage, TestBed, middle, stored};
use super::{Options, RealRow};
use crate::bench::Volume;
use crate::figures::Measured;

/// Seconds for which fio writes.
const FIO_SECONDS: u32 = 4;

/// Size of fio's file in bytes.
const FIO_SIZE: u64 = 4 << 30;

/// Rate of the load below the maximum, relative to the throughput without a cache.
const SHARE: f64 = 0.7;

/// Names of caches in the table.
const MEMORY: &str = "cache in memory";
const DISK: &str = "cache on the disk";

fn row_name(server: &str, cache: &str) -> String {
    format!("{server}, {cache}")
}

/// A temporary folder on the machine's disk, and the throughput of that disk.
pub(super) struct Ground {
    folder: Folder,
    /// Bytes per second of sequential writes with direct I/O.
    pub(super) disk_rate: f64,
}

impl Ground {
    pub(super) fn new(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Ground> {
        let prefix = "lab-placement-";
        let folder = match &options.folder {
            Some(folder) => Folder::new_in(prefix, folder)?,
            None => Folder::new(prefix)?,
        };
        let disk_rate = direct_rate(folder.path())?;
        progress(&format!(
            "{} takes {:.0} MB/s of direct sequential writes (fio)",
            folder.path().display(),
            disk_rate / 1e6
        ));
        Ok(Ground { folder, disk_rate })
    }

    /// Returns a new folder for a server.
    fn place(&self, name: &str) -> anyhow::Result<Storage> {
        let path = self.folder.path().join(name);
        std::fs::create_dir(&path)?;
        Ok(Storage::Real(path))
    }
}

/// Measures sequential writes with direct I/O with fio, in bytes per second.
fn direct_rate(folder: &Path) -> anyhow::Result<f64> {
    let file = folder.join("fio");
    let output = Command::new("fio")
        .args(["--name=sequential", "--rw=write", "--bs=1M", "--direct=1"])
        .args(["--ioengine=libaio", "--iodepth=8", "--time_based"])
        .args(["--output-format=json", "--fallocate=posix", "--end_fsync=1"])
        .arg(format!("--runtime={FIO_SECONDS}"))
        .arg(format!("--size={FIO_SIZE}"))
        .arg(format!("--filename={}", file.display()))
        .output()
        .context("can't start fio: is it installed? (on Debian: apt-get install fio)")?;
    std::fs::remove_file(&file).ok();
    anyhow::ensure!(
        output.status.success(),
        "fio: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("fio's report")?;
    let rate = report["jobs"][0]["write"]["bw_bytes"].as_f64();
    rate.context("the report of fio has no rate")
}

/// Measures Sluice. The returned rows contain the details of the figures.
pub(super) fn sluice(
    options: &Options,
    bed: &mut TestBed,
    ground: &Ground,
    progress: &dyn Fn(&str),
    measured: &mut Measured,
) -> anyhow::Result<Vec<RealRow>> {
    let places = [ground.place("sluice")?];
    let volume = Volume::new(places[0].path().join("volume"), options.real_size);
    let storing = start_sluice(options, bed, vec![volume], Vec::new())?;
    let keeps_nothing = start_sluice(options, bed, Vec::new(), Vec::new())?;
    for (what, server) in [(MEMORY, &keeps_nothing), (DISK, &storing)] {
        measured
            .configurations
            .keep(&row_name("Sluice", what), server.configuration());
    }
    let mut trial = Trial {
        options,
        bed,
        places: &places,
    };
    let mut runs = Runs::default();
    for _ in 0..options.rounds {
        runs.plain.push(trial.run(&storing, false, None)?);
        runs.memory.push(trial.run(&keeps_nothing, true, None)?);
        runs.stored.push(trial.run(&storing, true, None)?);
    }
    let rows = runs.rows("Sluice");
    report_rows(progress, &rows);
    let written = |phase: &Phase| phase.disks.first().map_or(0.0, |disk| disk.written_bytes);
    let (offered, taken) = (
        middle(&runs.stored, |phase| phase.rate),
        middle(&runs.stored, written),
    );
    let cpu = |phases: &[Phase]| middle(phases, |phase| phase.cpu_ns).max(1e-9);
    measured.put("real_cpu_memory", cpu(&runs.stored) / cpu(&runs.memory));
    measured.put("real_cpu_plain", cpu(&runs.stored) / cpu(&runs.plain));
    measured.put("real_disk", taken / ground.disk_rate);
    measured.put("real_disk_offered", taken / offered.min(ground.disk_rate));
    let plain = middle(&runs.plain, |phase| phase.rate);
    trial.held(&storing, plain, "Sluice", progress, measured)?;
    let over = runs.stored.iter().map(|phase| phase.over);
    measured.put("real_over", over.fold(0.0, f64::max));
    Ok(rows)
}

/// Measures nginx.
pub(super) fn nginx(
    options: &Options,
    bed: &mut TestBed,
    ground: &Ground,
    progress: &dyn Fn(&str),
    measured: &mut Measured,
) -> anyhow::Result<Vec<RealRow>> {
    let places = [ground.place("nginx")?];
    let server = start_nginx(options, bed, &places, options.real_size, false)?;
    measured
        .configurations
        .keep(&row_name("nginx", DISK), server.configuration());
    let mut trial = Trial {
        options,
        bed,
        places: &places,
    };
    let mut runs = Runs::default();
    for _ in 0..options.rounds {
        runs.plain.push(trial.run(&server, false, None)?);
        runs.stored.push(trial.run(&server, true, None)?);
    }
    let rows = runs.rows("nginx");
    report_rows(progress, &rows);
    let written = |phase: &Phase| phase.disks.first().map_or(0.0, |disk| disk.written_bytes);
    let taken = middle(&runs.stored, written);
    measured.put("real_disk", taken / ground.disk_rate);
    let cpu = |phases: &[Phase]| middle(phases, |phase| phase.cpu_ns).max(1e-9);
    measured.put("real_cpu_plain", cpu(&runs.stored) / cpu(&runs.plain));
    let plain = middle(&runs.plain, |phase| phase.rate);
    trial.held(&server, plain, "nginx", progress, measured)?;
    let over = runs.stored.iter().map(|phase| phase.over);
    measured.put("real_over", over.fold(0.0, f64::max));
    Ok(rows)
}

fn report_rows(progress: &dyn Fn(&str), rows: &[RealRow]) {
    for row in rows {
        progress(&format!(
            "{}: {:.0} MB/s to clients, {:.0} MB/s to the disk, {:.3} ns of CPU per byte",
            row.name,
            row.clients / 1e6,
            row.disk.written_bytes / 1e6,
            row.cpu_ns
        ));
    }
}

/// Results of the runs in a closed loop.
#[derive(Default)]
struct Runs {
    plain: Vec<Phase>,
    memory: Vec<Phase>,
    stored: Vec<Phase>,
}

impl Runs {
    fn rows(&self, server_name: &str) -> Vec<RealRow> {
        let all = [
            ("no cache", &self.plain),
            (MEMORY, &self.memory),
            (DISK, &self.stored),
        ];
        let run = all.into_iter().filter(|(_, phases)| !phases.is_empty());
        run.map(|(what, phases)| {
            // The disk's activity in the run with the median throughput.
            let mut order: Vec<&Phase> = phases.iter().collect();
            order.sort_by(|one, other| one.rate.total_cmp(&other.rate));
            let median = order.get(order.len() / 2);
            RealRow {
                name: row_name(server_name, what),
                clients: middle(phases, |phase| phase.rate),
                cpu_ns: middle(phases, |phase| phase.cpu_ns),
                stored: middle(phases, |phase| {
                    phase.written as f64 / phase.bytes.max(1) as f64
                }),
                disk: median
                    .and_then(|phase| phase.disks.first().copied())
                    .unwrap_or_default(),
            }
        })
        .collect()
    }
}

struct Trial<'a> {
    options: &'a Options,
    bed: &'a mut TestBed,
    places: &'a [Storage],
}

impl Trial<'_> {
    fn run(&mut self, server: &Server, cached: bool, rate: Option<f64>) -> anyhow::Result<Phase> {
        let asking = Asking {
            cached,
            rate,
            seconds: self.options.real_seconds,
        };
        let size = self.options.real_size;
        let phase = self.bed.run(server, self.places, size, asking)?;
        server.settle(self.places)?;
        Ok(phase)
    }

    /// Runs a load at a share of the throughput without a cache. Measures the throughput to clients, and the share
    /// that is stored.
    fn held(
        &mut self,
        server: &Server,
        plain: f64,
        server_name: &str,
        progress: &dyn Fn(&str),
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let offered = plain * SHARE;
        let before = server.volumes()?;
        let phase = self.run(server, true, Some(offered / LENGTH as f64))?;
        // `after` includes the bytes that were still queued for the disk when the load ended.
        let after = server.volumes()?;
        measured.put("real_held", phase.rate / offered);
        if matches!(server, Server::Sluice(_)) {
            let share = |bytes: u64| bytes as f64 / phase.bytes.max(1) as f64;
            // The bytes written include heads and padding.
            let written = share(stored(&after).saturating_sub(stored(&before)));
            let shed = share(after.shed.saturating_sub(before.shed));
            measured.put("real_stored", written.min(1.0 - shed));
        }
        progress(&format!(
            "{server_name}: {:.0} MB/s of {:.0} MB/s offered",
            phase.rate / 1e6,
            offered / 1e6
        ));
        Ok(())
    }
}
