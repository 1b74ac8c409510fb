//! Rows of the bench that compare CPU time per request: cache hits, proxying without a cache, and short connections.

use std::net::SocketAddr;
use std::time::Duration;

use super::Bench;
use super::contest::{
    Contender, Contest, Per, Server, floor, haproxies, nginx, nginxes, sluice, sluices,
};
use super::sluice::{SluiceOptions, Volume};
use super::table::Row;
use crate::disk;
use crate::load::LoadPlan;
use crate::origin::{Origin, OriginOptions};
use crate::rivals::{FloorOptions, NginxMode, NginxOptions};
use crate::roles;

const SMALL: u64 = 5 << 10;
const LARGE: u64 = 1 << 20;

pub(super) fn hit_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest::of_offset("memory hit, 5 KB, 64 connections", SMALL, 64);
    hits(bench, &contest, SMALL, 0.62)
}

pub(super) fn hit_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest::of_offset("memory hit, 1 MiB, 16 connections", LARGE, 16);
    hits(bench, &contest, LARGE, 0.72)
}

pub(super) fn proxy_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest::of_offset("uncached proxying, 5 KB, 64 connections", SMALL, 64);
    let mut rows = proxying(bench, &contest, SMALL, 0.85)?;
    if let Some(cpu) = rows.first_mut() {
        *cpu = cpu.clone().goal_haproxy(1.0);
    }
    Ok(rows)
}

pub(super) fn proxy_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut contest = Contest::of_offset("uncached proxying, 1 MiB, 16 connections", LARGE, 16);
    contest.per = Per::Mebibyte;
    proxying(bench, &contest, LARGE, 0.8)
}

pub(super) fn short_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest::of_offset("one connection per request, 5 KB hit", SMALL, 64).short();
    hits(bench, &contest, SMALL, 0.95)
}

/// Number of stored objects: too many for Sluice's memory, few enough for the page cache.
const STORED_OBJECTS: u64 = 512;
const STORED_TIER: &str = "64MiB";
const STORED_SIZE: u64 = 2 << 30;

/// Number of passes over all objects before the first run: the first fetches the objects, the second reads them from
/// the disk, the third from the page cache.
const STORED_PASSES: usize = 3;
const STORED_TIMEOUT: Duration = Duration::from_secs(60);

/// Measures hits of objects that servers store in files. The files are in the page cache, and all on one file system.
pub(super) fn stored_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let contest = Contest::of_offset("page cache hit, 1 MiB, 16 connections", LARGE, 16)
        .of_many(&format!("/offset/{LARGE}?{{n}}"), STORED_OBJECTS);
    let origin = Origin::start(OriginOptions::default())?;
    let folder = |name: &str| {
        let path = bench.folder.path().join(name);
        std::fs::create_dir_all(&path).map(|()| path)
    };
    let mut contenders = Vec::new();
    for (sendfile, name) in [(true, "sendfile"), (false, "buffers")] {
        if bench.nginx {
            let mut options = NginxOptions::new(NginxMode::Cached, Some(origin.addr()));
            options.stores = vec![folder(name)?];
            options.sendfile = sendfile;
            contenders.push(nginx(bench, &options)?);
        }
    }
    let volume = Volume::new(folder("sluice")?.join("volume"), STORED_SIZE);
    contenders.extend(sluice(bench, |binary| SluiceOptions {
        volumes: vec![volume],
        ..cached(binary, origin.addr(), STORED_TIER)
    })?);
    for one in &contenders {
        store(bench, &contest, one)?;
    }
    let requests = || origin.read_record(|record| record.requests_total);
    let (fetched, before) = (requests(), disk::of_path(bench.folder.path()));
    let measured = contest.measure(bench, &contenders)?;
    anyhow::ensure!(requests() == fetched, "not all responses were hits");
    let read = disk::of_path(bench.folder.path())
        .and_then(|after| Ok(after.read_bytes.saturating_sub(before?.read_bytes)));
    let note = match read {
        Ok(bytes) => format!(
            "{STORED_OBJECTS} objects; {} MiB read from disk during the runs",
            bytes >> 20
        ),
        Err(error) => format!("{error:#}"),
    };
    let mut rows = contest.rows(&measured, 1.15);
    if let Some(cpu) = rows.first_mut() {
        *cpu = cpu.clone().note(&note);
    }
    Ok(rows)
}

/// Requests all objects until the server has stored them and the page cache contains them.
fn store(bench: &Bench<'_>, contest: &Contest, one: &Contender) -> anyhow::Result<()> {
    for _ in 0..STORED_PASSES {
        let plan = LoadPlan {
            requests: Some(contest.objects),
            seconds: None,
            connections: 4,
            verify: true,
            ..contest.plan(bench, one)
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

fn cached(binary: &std::path::Path, origin: SocketAddr, memory: &str) -> SluiceOptions {
    SluiceOptions {
        memory: Some(memory.to_owned()),
        ..SluiceOptions::new(binary, origin)
    }
}

fn hits(bench: &Bench<'_>, contest: &Contest, body: u64, goal: f64) -> anyhow::Result<Vec<Row>> {
    let origin = Origin::start(OriginOptions::default())?;
    let options = NginxOptions::new(NginxMode::Cached, Some(origin.addr()));
    let mut contenders = nginxes(bench, &options)?;
    contenders.extend(sluices(bench, |binary| {
        cached(binary, origin.addr(), "256MiB")
    })?);
    let caches = contenders.len();
    contenders.push(floor(bench, body, contest.keepalive)?);
    let measured = contest.measure(bench, &contenders)?;
    let requests = origin.requests().len();
    anyhow::ensure!(
        requests == caches,
        "{caches} caches sent {requests} requests to the origin: not all responses were hits"
    );
    Ok(contest.rows(&measured, goal))
}

fn proxying(
    bench: &Bench<'_>,
    contest: &Contest,
    body: u64,
    goal: f64,
) -> anyhow::Result<Vec<Row>> {
    let mut options = FloorOptions::new(body);
    options.core = Some(bench.options.load_core);
    let origin = roles::start_floor(&options, bench.folder.path())?;
    let mut contenders = Vec::new();
    if bench.nginx {
        let options = NginxOptions::new(NginxMode::Proxy, Some(origin.address));
        contenders.push(nginx(bench, &options)?);
    }
    contenders.extend(haproxies(bench, origin.address)?);
    contenders.extend(sluices(bench, |binary| {
        SluiceOptions::new(binary, origin.address)
    })?);
    let measured = contest.measure(bench, &contenders)?;
    Ok(contest.rows(&measured, goal))
}
