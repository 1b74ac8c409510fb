//! Rows that compare CPU time a request: hits, uncached proxying, short connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::sluice::{Sluice, SluiceOptions, Volume};
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client;
use crate::disk;
use crate::load::{LoadPlan, LoadResult};
use crate::origin::{Origin, OriginOptions};
use crate::process::Process;
use crate::rivals::{FloorOptions, Nginx, NginxMode, NginxOptions};
use crate::roles::{self, RoleServer};

const SMALL: u64 = 5 << 10;
const LARGE: u64 = 1 << 20;

/// Load before the first run that counts.
const WARM_UP_SECONDS: f64 = 0.5;

/// Source addresses of short connections, so that ports last.
const SOURCES: u32 = 1000;

pub(super) fn hit_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    hits(bench, "memory hit, 5 KB, 64 connections", SMALL, 64, 0.62)
}

pub(super) fn hit_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    hits(bench, "memory hit, 1 MiB, 16 connections", LARGE, 16, 0.72)
}

pub(super) fn proxy_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    proxying(bench, "uncached proxying, 5 KB, 64 connections", SMALL, 64)
}

pub(super) fn proxy_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    proxying(bench, "uncached proxying, 1 MiB, 16 connections", LARGE, 16)
}

pub(super) fn short_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest {
        name: "one connection per request, 5 KB hit",
        body: SMALL,
        connections: 64,
        keepalive: false,
        objects: 1,
    };
    contest.of_hits(bench, 0.95)
}

/// Objects that don't fit into Sluice's memory tier, and do into the page cache.
const STORED_OBJECTS: u64 = 512;
const STORED_TIER: &str = "64MiB";
const STORED_SIZE: u64 = 2 << 30;

/// How often they are asked for before the first run: fetched, read from the disk, read from the page cache.
const STORED_PASSES: usize = 3;
const STORED_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn stored_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest {
        name: "page cache hit, 1 MiB, 16 connections",
        body: LARGE,
        connections: 16,
        keepalive: true,
        objects: STORED_OBJECTS,
    };
    contest.of_stored(bench, 1.15)
}

fn hits(
    bench: &Bench<'_>,
    name: &'static str,
    body: u64,
    connections: usize,
    goal: f64,
) -> anyhow::Result<Vec<Row>> {
    let contest = Contest {
        name,
        body,
        connections,
        keepalive: true,
        objects: 1,
    };
    contest.of_hits(bench, goal)
}

fn proxying(
    bench: &Bench<'_>,
    name: &'static str,
    body: u64,
    connections: usize,
) -> anyhow::Result<Vec<Row>> {
    let contest = Contest {
        name,
        body,
        connections,
        keepalive: true,
        objects: 1,
    };
    let mut options = FloorOptions::new(body);
    options.core = Some(bench.options.load_core);
    let origin = roles::start_floor(&options, bench.folder.path())?;
    let mut contenders = Vec::new();
    if bench.nginx {
        contenders.push(nginx(bench, NginxMode::Proxy, origin.address, true, None)?);
    }
    contenders.extend(sluice(bench, origin.address, None, Vec::new())?);
    let measured = contest.measure(bench, contenders)?;
    Ok(contest.rows(&measured, 1.0))
}

/// What all contenders of a row are asked.
struct Contest {
    name: &'static str,
    body: u64,
    connections: usize,
    keepalive: bool,
    /// How many objects are asked for in turn.
    objects: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Nginx,
    Sluice,
    Floor,
}

struct Contender {
    who: Who,
    label: &'static str,
    server: Server,
}

enum Server {
    Nginx(Nginx),
    Sluice(Sluice),
    Floor(RoleServer),
}

impl Server {
    fn address(&self) -> SocketAddr {
        match self {
            Server::Nginx(nginx) => nginx.addr(),
            Server::Sluice(sluice) => sluice.addr(),
            Server::Floor(floor) => floor.address,
        }
    }

    fn process(&self) -> &Process {
        match self {
            Server::Nginx(nginx) => nginx.process(),
            Server::Sluice(sluice) => sluice.process(),
            Server::Floor(floor) => &floor.process,
        }
    }
}

/// Medians of one contender.
struct Measured {
    who: Who,
    label: &'static str,
    cpu_us: f64,
    rate: f64,
}

impl Contest {
    fn of_hits(&self, bench: &Bench<'_>, goal: f64) -> anyhow::Result<Vec<Row>> {
        let origin = Origin::start(OriginOptions::default())?;
        let mut contenders = Vec::new();
        if bench.nginx {
            contenders.push(nginx(bench, NginxMode::Cached, origin.addr(), true, None)?);
            contenders.push(nginx(bench, NginxMode::Cached, origin.addr(), false, None)?);
        }
        contenders.extend(sluice(bench, origin.addr(), Some("256MiB"), Vec::new())?);
        let caches = contenders.len();
        let mut floor = FloorOptions::new(self.body);
        floor.close = !self.keepalive;
        floor.core = Some(bench.options.server_core);
        contenders.push(Contender {
            who: Who::Floor,
            label: "floor",
            server: Server::Floor(roles::start_floor(&floor, bench.folder.path())?),
        });
        let measured = self.measure(bench, contenders)?;
        let asked = origin.requests().len();
        anyhow::ensure!(
            asked == caches,
            "{caches} caches asked the origin {asked} times: not all answers were hits"
        );
        Ok(self.rows(&measured, goal))
    }

    /// Hits of what lies in files that the page cache holds, all on the same file system.
    fn of_stored(&self, bench: &Bench<'_>, goal: f64) -> anyhow::Result<Vec<Row>> {
        let origin = Origin::start(OriginOptions::default())?;
        let folder = |name: &str| {
            let path = bench.folder.path().join(name);
            std::fs::create_dir_all(&path).map(|()| path)
        };
        let mut contenders = Vec::new();
        for (sendfile, name) in [(true, "sendfile"), (false, "buffers")] {
            if bench.nginx {
                let store = Some(folder(name)?);
                let (mode, origin) = (NginxMode::Cached, origin.addr());
                contenders.push(nginx(bench, mode, origin, sendfile, store)?);
            }
        }
        let volume = Volume::new(folder("sluice")?.join("volume"), STORED_SIZE);
        let stored = sluice(bench, origin.addr(), Some(STORED_TIER), vec![volume])?;
        contenders.extend(stored);
        for one in &contenders {
            self.store(bench, one)?;
        }
        let asked = || origin.read_record(|record| record.requests_total);
        let (fetched, before) = (asked(), disk::of_path(bench.folder.path()));
        let measured = self.measure(bench, contenders)?;
        anyhow::ensure!(asked() == fetched, "not all answers were hits");
        let read = disk::of_path(bench.folder.path())
            .and_then(|after| Ok(after.read_bytes.saturating_sub(before?.read_bytes)));
        let note = match read {
            Ok(bytes) => format!(
                "{} objects; {} MiB read meanwhile",
                self.objects,
                bytes >> 20
            ),
            Err(error) => format!("{error:#}"),
        };
        let mut rows = self.rows(&measured, goal);
        if let Some(cpu) = rows.first_mut() {
            *cpu = cpu.clone().note(&note);
        }
        Ok(rows)
    }

    /// Has everything fetched, stored, and read until the page cache holds it.
    fn store(&self, bench: &Bench<'_>, one: &Contender) -> anyhow::Result<()> {
        for _ in 0..STORED_PASSES {
            let plan = LoadPlan {
                requests: Some(self.objects),
                seconds: None,
                connections: 4,
                verify: true,
                ..self.plan(bench, one)
            };
            let result = roles::run_load(&plan, bench.folder.path())?;
            anyhow::ensure!(
                result.errors.total() == 0,
                "{}: {:?}",
                one.label,
                result.errors
            );
            if let Server::Sluice(sluice) = &one.server {
                sluice.wait_stored(STORED_TIMEOUT)?;
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        bench: &Bench<'_>,
        contenders: Vec<Contender>,
    ) -> anyhow::Result<Vec<Measured>> {
        for one in &contenders {
            self.check(one)?;
            self.load(bench, one, WARM_UP_SECONDS)?;
        }
        let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new(); contenders.len()];
        for _ in 0..bench.options.rounds.max(1) {
            for (one, runs) in contenders.iter().zip(&mut runs) {
                let before = one.server.process().cpu()?;
                let result = self.load(bench, one, bench.options.seconds_per_run)?;
                let used = one.server.process().cpu()?.saturating_sub(before);
                let cpu_us = micros(used) / result.requests.max(1) as f64;
                eprintln!(
                    "  {}: {cpu_us:.2} µs, {:.0} requests/s, {:.0}% of its core, median {:.0} µs",
                    one.label,
                    result.rate(),
                    100.0 * used.as_secs_f64() / result.seconds.max(1e-9),
                    result.latency.p50_us,
                );
                runs.push((cpu_us, result.rate()));
            }
        }
        contenders
            .iter()
            .zip(runs)
            .map(|(one, runs)| {
                let of = |pick: fn(&(f64, f64)) -> f64| median(runs.iter().map(pick).collect());
                Ok(Measured {
                    who: one.who,
                    label: one.label,
                    cpu_us: of(|run| run.0).context("at least one run")?,
                    rate: of(|run| run.1).context("at least one run")?,
                })
            })
            .collect()
    }

    /// The first of the objects.
    fn path(&self) -> String {
        match self.objects {
            1 => format!("/offset/{}", self.body),
            _ => format!("/offset/{}?0", self.body),
        }
    }

    /// One answer, every byte of it.
    fn check(&self, one: &Contender) -> anyhow::Result<()> {
        let reply = client::get(one.server.address(), &self.path(), &[])
            .with_context(|| format!("asking {}", one.label))?;
        reply
            .verify_whole(self.body)
            .map_err(|wrong| anyhow::anyhow!("{}: {wrong}", one.label))
    }

    fn plan(&self, bench: &Bench<'_>, one: &Contender) -> LoadPlan {
        let (path, numbers) = match self.objects {
            1 => (self.path(), None),
            objects => (format!("/offset/{}?{{n}}", self.body), Some((0, objects))),
        };
        LoadPlan {
            numbers,
            connections: self.connections,
            keepalive: self.keepalive,
            expect_length: Some(self.body),
            sources: if self.keepalive { 0 } else { SOURCES },
            core: Some(bench.options.load_core),
            ..LoadPlan::new(one.server.address(), &path)
        }
    }

    fn load(&self, bench: &Bench<'_>, one: &Contender, seconds: f64) -> anyhow::Result<LoadResult> {
        let plan = LoadPlan {
            seconds: Some(seconds),
            ..self.plan(bench, one)
        };
        let result = roles::run_load(&plan, bench.folder.path())?;
        anyhow::ensure!(
            result.errors.total() == 0,
            "{} under load: {:?}",
            one.label,
            result.errors
        );
        Ok(result)
    }

    /// CPU time, and throughput for information. nginx's figures are those of its configuration with less CPU time.
    fn rows(&self, measured: &[Measured], goal: f64) -> Vec<Row> {
        let best = |who| {
            measured
                .iter()
                .filter(|one| one.who == who)
                .min_by(|one, other| one.cpu_us.total_cmp(&other.cpu_us))
        };
        let (nginx, sluice, floor) = (best(Who::Nginx), best(Who::Sluice), best(Who::Floor));
        let mut cpu = Row::new(&format!("{}: CPU", self.name), Unit::CpuPerRequest);
        let mut rate = Row::new(&format!("{}: rate", self.name), Unit::RequestsPerSecond);
        for (row, figure) in [
            (&mut cpu, (|one| one.cpu_us) as fn(&Measured) -> f64),
            (&mut rate, |one| one.rate),
        ] {
            row.nginx = nginx.map(figure);
            row.sluice = sluice.map(figure);
            row.floor = floor.map(figure);
        }
        let label = nginx.map_or("", |nginx| nginx.label);
        vec![cpu.goal_ratio(goal).note(label), rate]
    }
}

fn nginx(
    bench: &Bench<'_>,
    mode: NginxMode,
    origin: SocketAddr,
    sendfile: bool,
    store: Option<PathBuf>,
) -> anyhow::Result<Contender> {
    let mut options = NginxOptions::new(mode, Some(origin));
    options.stores = store.into_iter().collect();
    options.sendfile = sendfile;
    options.core = Some(bench.options.server_core);
    Ok(Contender {
        who: Who::Nginx,
        label: if sendfile {
            "nginx, sendfile on"
        } else {
            "nginx, sendfile off"
        },
        server: Server::Nginx(Nginx::start(&options)?),
    })
}

fn sluice(
    bench: &Bench<'_>,
    origin: SocketAddr,
    memory: Option<&str>,
    volumes: Vec<Volume>,
) -> anyhow::Result<Option<Contender>> {
    let Some(binary) = &bench.options.sluice_binary else {
        return Ok(None);
    };
    let sluice = Sluice::start(&SluiceOptions {
        memory: memory.map(str::to_owned),
        volumes,
        core: Some(bench.options.server_core),
        ..SluiceOptions::new(binary, origin)
    })?;
    Ok(Some(Contender {
        who: Who::Sluice,
        label: "Sluice",
        server: Server::Sluice(sluice),
    }))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}
