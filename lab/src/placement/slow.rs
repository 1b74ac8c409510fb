//! Layouts over two slow disks, and over tmpfs.

use anyhow::Context as _;

use super::bed::{Asking, Bed, PLAIN, Phase, Server, Storage, middle};
use super::{Layout, LayoutRow, Options};
use crate::bench::{Route, Sluice, SluiceOptions, Volume};
use crate::disk::{Pace, SlowDisk, Usage};
use crate::rivals::{Nginx, NginxMode, NginxOptions};

/// Load before the first run that counts.
const WARM_UP_SECONDS: f64 = 0.5;

/// A disk has this much more room than its cache is to take, so that one can be seen to take too much.
const ROOM: u64 = 2;

/// What is measured: Sluice with a layout, or nginx with caches of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Sluice(Layout),
    /// A cache on each of so many disks; whether threads write.
    Nginx(usize, bool),
    /// Both on tmpfs.
    SluiceTmpfs,
    NginxTmpfs,
}

impl Who {
    fn disks(self) -> usize {
        match self {
            Who::Sluice(layout) => layout.disks(),
            Who::Nginx(disks, _) => disks,
            Who::SluiceTmpfs | Who::NginxTmpfs => 1,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Who::Sluice(layout) => format!("Sluice {}", layout.name()),
            Who::Nginx(1, false) => "nginx single".to_owned(),
            Who::Nginx(1, true) => "nginx single, threads".to_owned(),
            Who::Nginx(_, false) => "nginx hash".to_owned(),
            Who::Nginx(_, true) => "nginx hash, threads".to_owned(),
            Who::SluiceTmpfs => "Sluice on tmpfs".to_owned(),
            Who::NginxTmpfs => "nginx on tmpfs".to_owned(),
        }
    }

    fn places(self, options: &Options) -> anyhow::Result<Vec<Storage>> {
        if matches!(self, Who::SluiceTmpfs | Who::NginxTmpfs) {
            return Ok(Vec::new());
        }
        let pace = Pace {
            rate: Some(options.rate),
            latency: options.latency,
        };
        let disk = |_| SlowDisk::new(options.size * ROOM, pace).map(Storage::Slow);
        (0..self.disks()).map(disk).collect()
    }
}

/// Measures one, everything of it new.
pub(super) fn measure(
    options: &Options,
    bed: &mut Bed,
    who: Who,
    tell: &dyn Fn(&str),
) -> anyhow::Result<LayoutRow> {
    let mut places = who.places(options)?;
    // Lives as long as the places do, which name it.
    let shm = match places.is_empty() {
        true => Some(
            tempfile::Builder::new()
                .prefix("lab-placement-")
                .tempdir_in("/dev/shm")
                .context("tmpfs at /dev/shm")?,
        ),
        false => None,
    };
    places.extend(shm.as_ref().map(|shm| Storage::Real(shm.path().to_owned())));
    let server = match who {
        Who::Sluice(layout) => sluice(options, bed, &places, layout)?,
        Who::SluiceTmpfs => sluice(options, bed, &places, Layout::Single)?,
        Who::Nginx(_, threads) => nginx(options, bed, &places, threads)?,
        Who::NginxTmpfs => nginx(options, bed, &places, false)?,
    };
    let mut run = |cached: bool, seconds: f64| {
        let asking = Asking {
            cached,
            rate: None,
            seconds,
        };
        let phase = bed.run(&server, &places, options.size, asking)?;
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
            tell(&format!(
                "{}: {:.0} MB/s without the cache, {:.0} with it, {:.1} to each disk",
                who.name(),
                plain.rate / 1e6,
                cached.rate / 1e6,
                mean_written(&cached.disks) / 1e6,
            ));
        }
    }
    Ok(row(who, &plain, &cached))
}

fn mean_written(disks: &[Usage]) -> f64 {
    let sum: f64 = disks.iter().map(|disk| disk.written_bytes).sum();
    sum / disks.len().max(1) as f64
}

fn row(who: Who, plain: &[Phase], cached: &[Phase]) -> LayoutRow {
    let ratios = plain.iter().zip(cached);
    let ratios = ratios.map(|(plain, cached)| cached.rate / plain.rate.max(1.0));
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
    let written: f64 = disks.iter().map(|disk| disk.written_bytes).sum();
    LayoutRow {
        name: who.name(),
        plain: middle(plain, |phase| phase.rate),
        clients: middle(cached, |phase| phase.rate),
        ratio: crate::bench::median(ratios.collect()).unwrap_or_default(),
        stored: match who {
            // Each byte is there twice.
            Who::Sluice(Layout::Mirror) => written / 2.0,
            _ => written,
        },
        shed: middle(cached, |phase| phase.shed as f64 / phase.seconds.max(1e-9)),
        hits: middle(cached, |phase| phase.hits),
        over: cached.iter().map(|phase| phase.over).fold(0.0, f64::max),
        disks,
    }
}

fn sluice(
    options: &Options,
    bed: &Bed,
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

/// Sluice with a route past its cache.
pub(super) fn start_sluice(
    options: &Options,
    bed: &Bed,
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

fn nginx(
    options: &Options,
    bed: &Bed,
    places: &[Storage],
    threads: bool,
) -> anyhow::Result<Server> {
    start_nginx(options, bed, places, options.size, threads)
}

/// nginx with a location past its cache.
pub(super) fn start_nginx(
    options: &Options,
    bed: &Bed,
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
    Ok(Server::Nginx(Box::new(Nginx::start(&wanted)?)))
}
