//! The parts `slow` and `tmpfs`: layouts on slow disks, and one volume on tmpfs.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::test_bed::{Asking, PLAIN, Phase, Server, Storage, TestBed, middle};
use super::{Layout, LayoutRow, Options};
use crate::bench::{Route, Sluice, SluiceOptions, Volume};
use crate::configurations::Configurations;
use crate::disk::{JoinedDisks, Pace, Profile, SlowDisk, Usage};
use crate::rivals::{NginxMode, NginxOptions};
use crate::scratch::Folder;
use crate::spread::Spread;

/// Duration in seconds of the warm-up load before the first measured run.
const WARM_UP_SECONDS: f64 = 0.5;

/// Capacity of a disk divided by the size of its cache, so that a cache that uses too much space is detected.
const ROOM: u64 = 2;

/// Values of all rounds of a layout, under the names of the medians.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayoutSpread {
    /// Bytes per second to clients, with the cache bypassed.
    pub plain: Spread,
    /// Bytes per second to clients, with the cache.
    pub clients: Spread,
    /// `clients / plain`.
    pub ratio: Spread,
    /// Bytes per second stored by the cache. Bytes that a mirror writes twice count once.
    pub stored: Spread,
}

impl LayoutSpread {
    /// Returns the values of these rounds without and with the cache, which writes each byte `copies` times; `None` without
    /// rounds.
    fn of(plain: &[Phase], cached: &[Phase], copies: usize) -> Option<LayoutSpread> {
        let stored = |phase: &Phase| {
            let written = phase.disks.iter().map(|disk| disk.written_bytes);
            written.sum::<f64>() / copies as f64
        };
        let ratios = plain.iter().zip(cached);
        let ratios = ratios.map(|(plain, cached)| cached.rate / plain.rate.max(1.0));
        Some(LayoutSpread {
            plain: Spread::of(plain.iter().map(|phase| phase.rate).collect())?,
            clients: Spread::of(cached.iter().map(|phase| phase.rate).collect())?,
            ratio: Spread::of(ratios.collect())?,
            stored: Spread::of(cached.iter().map(stored).collect())?,
        })
    }
}

/// The server under test and its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Sluice(Layout),
    /// nginx with a cache on each of this many disks. The flag says whether threads write.
    Nginx(usize, bool),
    /// nginx with one cache on disks that btrfs joins. The flag says whether threads write.
    NginxJoined(Profile, bool),
    /// Sluice and nginx on tmpfs.
    SluiceTmpfs,
    NginxTmpfs,
}

impl Subject {
    fn disks(self) -> usize {
        match self {
            Subject::Sluice(layout) => layout.disks(),
            Subject::Nginx(disks, _) => disks,
            Subject::NginxJoined(Profile::Mirror | Profile::Stripe, _) => 2,
            _ => 1,
        }
    }

    /// Returns the number of times that a byte of the cache is written.
    fn copies(self) -> usize {
        match self {
            Subject::Sluice(Layout::Mirror) | Subject::NginxJoined(Profile::Mirror, _) => 2,
            _ => 1,
        }
    }

    /// Returns the size in bytes of the cache in each storage place.
    fn size(self, options: &Options) -> u64 {
        match self {
            Subject::NginxJoined(..) => options.size * (self.disks() / self.copies()) as u64,
            _ => options.size,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Subject::Sluice(layout) => format!("Sluice {}", layout.name()),
            Subject::Nginx(1, false) => "nginx single".to_owned(),
            Subject::Nginx(1, true) => "nginx single, threads".to_owned(),
            Subject::Nginx(_, false) => "nginx hash".to_owned(),
            Subject::Nginx(_, true) => "nginx hash, threads".to_owned(),
            Subject::NginxJoined(Profile::Single, _) => "nginx single, btrfs".to_owned(),
            Subject::NginxJoined(Profile::Mirror, _) => "nginx mirror, btrfs".to_owned(),
            Subject::NginxJoined(Profile::Stripe, _) => "nginx stripe, btrfs".to_owned(),
            Subject::SluiceTmpfs => "Sluice on tmpfs".to_owned(),
            Subject::NginxTmpfs => "nginx on tmpfs".to_owned(),
        }
    }

    fn places(self, options: &Options) -> anyhow::Result<Vec<Storage>> {
        if matches!(self, Subject::SluiceTmpfs | Subject::NginxTmpfs) {
            return Ok(Vec::new());
        }
        let pace = Pace {
            rate: Some(options.rate),
            latency: options.latency,
        };
        let capacity = options.size * ROOM;
        if let Subject::NginxJoined(profile, _) = self {
            // btrfs frees the space of deleted files only later, so that all bytes of the experiment need space.
            let written = options.rate as f64 * options.seconds * options.rounds as f64;
            let image = capacity + written as u64;
            // The file system's own structures need space beside the image, too.
            let disk = |_| SlowDisk::uncached(image * ROOM, pace);
            let disks: anyhow::Result<Vec<SlowDisk>> = (0..self.disks()).map(disk).collect();
            let joined = JoinedDisks::new(disks?, image, profile)?;
            return Ok(vec![Storage::Joined(joined)]);
        }
        let disk = |_| SlowDisk::new(capacity, pace).map(Storage::Slow);
        (0..self.disks()).map(disk).collect()
    }
}

/// Measures one server and layout, with new disks and a new process, whose configuration is added to `configurations`.
pub(super) fn measure(
    options: &Options,
    bed: &mut TestBed,
    subject: Subject,
    configurations: &mut Configurations,
    progress: &dyn Fn(&str),
) -> anyhow::Result<LayoutRow> {
    let mut places = subject.places(options)?;
    // The storage places are in this folder, so it must exist for as long as they do.
    let shm = match places.is_empty() {
        true => Some(
            Folder::new_in("lab-placement-", Path::new("/dev/shm")).context("tmpfs at /dev/shm")?,
        ),
        false => None,
    };
    places.extend(shm.as_ref().map(|shm| Storage::Real(shm.path().to_owned())));
    let server = match subject {
        Subject::Sluice(layout) => sluice(options, bed, &places, layout)?,
        Subject::SluiceTmpfs => sluice(options, bed, &places, Layout::Single)?,
        Subject::Nginx(_, threads) | Subject::NginxJoined(_, threads) => {
            start_nginx(options, bed, &places, subject.size(options), threads)?
        }
        Subject::NginxTmpfs => start_nginx(options, bed, &places, options.size, false)?,
    };
    configurations.keep(&subject.name(), server.configuration());
    let mut run = |cached: bool, seconds: f64| {
        let asking = Asking {
            cached,
            rate: None,
            seconds,
        };
        let phase = bed.run(&server, &places, subject.size(options), asking)?;
        server.settle(&places)?;
        anyhow::Ok(phase)
    };
    run(false, WARM_UP_SECONDS)?;
    let (mut plain, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        plain.push(run(false, options.seconds)?);
        cached.push(run(true, options.seconds)?);
        let (plain, cached) = (plain.last(), cached.last());
        if let Some((plain, cached)) = plain.zip(cached) {
            progress(&format!(
                "{}: {:.0} MB/s without the cache, {:.0} MB/s with the cache, {:.1} MB/s to each disk",
                subject.name(),
                plain.rate / 1e6,
                cached.rate / 1e6,
                mean_written(&cached.disks) / 1e6,
            ));
        }
    }
    Ok(row(subject, &plain, &cached))
}

fn mean_written(disks: &[Usage]) -> f64 {
    let sum: f64 = disks.iter().map(|disk| disk.written_bytes).sum();
    sum / disks.len().max(1) as f64
}

fn row(subject: Subject, plain: &[Phase], cached: &[Phase]) -> LayoutRow {
    let spread = LayoutSpread::of(plain, cached, subject.copies());
    let middle_of = |pick: fn(&LayoutSpread) -> &Spread| {
        let spread = spread.as_ref().map(pick);
        spread.map_or(0.0, |spread| spread.median)
    };
    let count = cached.first().map_or(0, |phase| phase.disks.len());
    let disk = |number: usize, of: fn(&Usage) -> f64| {
        middle(cached, |phase| phase.disks.get(number).map_or(0.0, of))
    };
    let disks: Vec<Usage> = (0..count)
        .map(|number| Usage {
            reads: disk(number, |usage| usage.reads),
            writes: disk(number, |usage| usage.writes),
            read_bytes: disk(number, |usage| usage.read_bytes),
            written_bytes: disk(number, |usage| usage.written_bytes),
            wait_ms: disk(number, |usage| usage.wait_ms),
            utilization: disk(number, |usage| usage.utilization),
        })
        .collect();
    LayoutRow {
        name: subject.name(),
        plain: middle_of(|spread| &spread.plain),
        clients: middle_of(|spread| &spread.clients),
        ratio: middle_of(|spread| &spread.ratio),
        stored: middle_of(|spread| &spread.stored),
        shed: middle(cached, |phase| phase.shed as f64 / phase.seconds.max(1e-9)),
        hits: middle(cached, |phase| phase.hits),
        over: cached.iter().map(|phase| phase.over).fold(0.0, f64::max),
        disks,
        spread,
    }
}

fn sluice(
    options: &Options,
    bed: &TestBed,
    places: &[Storage],
    layout: Layout,
) -> anyhow::Result<Server> {
    let volumes = places
        .iter()
        .map(|place| Volume::new(place.path().join("volume"), options.size));
    let mut cache = Vec::new();
    if places.len() > 1 {
        cache.push(("placement".to_owned(), format!("\"{}\"", layout.name())));
    }
    start_sluice(options, bed, volumes.collect(), cache)
}

/// Sluice with a route that bypasses its cache.
pub(super) fn start_sluice(
    options: &Options,
    bed: &TestBed,
    volumes: Vec<Volume>,
    cache: Vec<(String, String)>,
) -> anyhow::Result<Server> {
    let sluice = Sluice::start(&SluiceOptions {
        memory: Some(options.memory.to_string()),
        volumes,
        cache,
        routes: vec![Route {
            path: format!("{PLAIN}*"),
            origin: bed.origin().addr(),
            cached: false,
        }],
        workers: options.workers,
        ..SluiceOptions::new(&options.program, bed.origin().addr())
    })?;
    Ok(Server::Sluice(Box::new(sluice)))
}

/// nginx with a location that bypasses its cache.
pub(super) fn start_nginx(
    options: &Options,
    bed: &TestBed,
    places: &[Storage],
    size: u64,
    threads: bool,
) -> anyhow::Result<Server> {
    let mut wanted = NginxOptions::new(NginxMode::Cached, Some(bed.origin().addr()));
    wanted.stores = places.iter().map(|place| place.path().to_owned()).collect();
    wanted.max_size = size;
    wanted.workers = options.workers;
    wanted.threads = threads;
    wanted.plain = Some(PLAIN.to_owned());
    Ok(Server::Rival(wanted.start()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_medians_of_its_rounds_and_the_rounds() {
        let phase = |rate: f64, written: [f64; 2]| Phase {
            rate,
            bytes: 0,
            seconds: 1.0,
            cpu_ns: 0.0,
            hits: 0.0,
            disks: written
                .map(|written_bytes| Usage {
                    written_bytes,
                    ..Usage::default()
                })
                .to_vec(),
            over: 0.5,
            written: 0,
            shed: 0,
        };
        let plain = [100.0, 200.0, 400.0].map(|rate| phase(rate, [0.0; 2]));
        let cached = [
            phase(50.0, [30.0, 10.0]),
            phase(180.0, [10.0, 40.0]),
            phase(300.0, [20.0, 20.0]),
        ];
        let row = row(Subject::Sluice(Layout::Mirror), &plain, &cached);
        assert_eq!((row.plain, row.clients), (200.0, 180.0));
        assert_eq!((row.ratio, row.stored), (0.75, 20.0));
        let spread = row.spread.expect("rounds");
        assert_eq!(spread.ratio.rounds, [0.5, 0.9, 0.75]);
        assert_eq!(spread.stored.rounds, [20.0, 25.0, 20.0]);
        assert_eq!(spread.plain.rounds, [100.0, 200.0, 400.0]);
        assert_eq!(spread.clients.rounds, [50.0, 180.0, 300.0]);
        assert_eq!(row.disks[1].written_bytes, 20.0);
        assert_eq!(LayoutSpread::of(&[], &[], 1), None);
    }
}
