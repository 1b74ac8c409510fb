//! Rows of the bench that compare static files: small files on keepalive and on short connections, large files, pages
//! in gzip, and memory with many busy connections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::Bench;
use super::contest::{Answer, Column, Contender, Contest, Per, floor, nginxes, sluice, sluices};
use super::memory::settled;
use super::pages;
use super::sluice::{Files, SluiceOptions};
use super::table::{Row, Unit};
use crate::load::LoadPlan;
use crate::process::{Memory, Process, run_pinned};
use crate::rivals::{NginxMode, NginxOptions};
use crate::roles;

const SMALL: u64 = 5 << 10;
const SMALL_FILES: u64 = 1000;

const LARGE: u64 = 100 << 20;
const LARGE_FILES: u64 = 4;

pub(super) fn static_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let name = "static file, 5 KB, 64 connections";
    let contest = Contest::of_offset(name, SMALL, 64).of_many("/{n}", SMALL_FILES);
    small(bench, &contest, 0.78)
}

pub(super) fn static_close(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let name = "static file, 5 KB, one connection per request";
    let contest = Contest::of_offset(name, SMALL, 64).of_many("/{n}", SMALL_FILES);
    small(bench, &contest.short(), 0.95)
}

fn small(bench: &Bench<'_>, contest: &Contest, goal: f64) -> anyhow::Result<Vec<Row>> {
    let root = bench.folder.path().join("small");
    pages::offset_files(&root, SMALL_FILES, SMALL as usize)?;
    let mut contenders = nginxes(bench, &nginx_files(&root))?;
    contenders.extend(sluices(bench, |binary| {
        sluice_files(binary, Files::new(&root))
    })?);
    contenders.push(floor(bench, SMALL, contest.keepalive)?);
    let measured = contest.measure(bench, &contenders)?;
    Ok(contest.rows(&measured, goal))
}

pub(super) fn static_100m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let root = bench.folder.path().join("large");
    pages::offset_files(&root, LARGE_FILES, LARGE as usize)?;
    let mut contenders = nginxes(bench, &nginx_files(&root))?;
    contenders.extend(sluices(bench, |binary| {
        sluice_files(binary, Files::new(&root))
    })?);
    let mut rows = Vec::new();
    for (name, connections) in [
        ("static file, 100 MiB, one client", 1),
        ("static file, 100 MiB, 8 clients", 8),
    ] {
        let contest = Contest {
            per: Per::Mebibyte,
            ..Contest::of_offset(name, LARGE, connections).of_many("/{n}", LARGE_FILES)
        };
        let measured = contest.measure(bench, &contenders)?;
        rows.extend(contest.rows(&measured, 1.0));
    }
    std::fs::remove_dir_all(&root)?;
    Ok(rows)
}

const PAGE: usize = 50_000;
const PAGE_CONNECTIONS: usize = 64;

/// Longest wait until a server sends a response in gzip.
const ENCODING_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures a page in gzip that is compressed for each request, compressed once, or pre-compressed in a file.
pub(super) fn gzip_50k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let page = pages::page(PAGE);
    let (alone, beside) = page_folders(bench, &page)?;
    let contest = Contest {
        headers: vec![("Accept-Encoding".to_owned(), "gzip".to_owned())],
        answer: Answer::Gzip(page),
        path: "/page.html".to_owned(),
        ..Contest::of_offset("page of 50 KB in gzip", PAGE as u64, PAGE_CONNECTIONS)
    };
    let mut contenders = gzip_rivals(bench, &alone, &beside)?;
    let mut missing = Vec::new();
    let mut once = Files::new(&alone);
    once.route = vec![("compress".to_owned(), "[\"gzip\"]".to_owned())];
    let mut lying = Files::new(&beside);
    lying.settings = vec![("precompressed".to_owned(), "true".to_owned())];
    for (column, label, files) in [
        (Column::Sluice, "Sluice, compressed once", once),
        (Column::SluiceBeside, "Sluice, .gz file", lying),
    ] {
        let started = sluice(bench, |binary| sluice_files(binary, files));
        let ready = started.and_then(|started| {
            let Some(one) = started else { return Ok(None) };
            contest.wait_until_encoded(&one, ENCODING_TIMEOUT)?;
            Ok(Some(one))
        });
        match ready {
            Ok(one) => contenders.extend(one.map(|one| Contender {
                column,
                label,
                ..one
            })),
            // If a server can't be measured, the table shows the error, and the other servers are still measured.
            Err(error) => missing.push(Row::failed(label, &error)),
        }
    }
    let measured = contest.measure(bench, &contenders)?;
    let cpu = |what: &str, nginx, sluice| contest.cpu(&measured, what, nginx, sluice);
    let mut rows = vec![
        cpu(", once / each request", Column::Nginx, Column::Sluice).goal_ratio(0.03),
        cpu(", once / .gz file", Column::NginxBeside, Column::Sluice).goal_ratio(0.9),
        cpu(
            ", .gz file / .gz file",
            Column::NginxBeside,
            Column::SluiceBeside,
        )
        .goal_ratio(0.9),
    ];
    rows.append(&mut missing);
    Ok(rows)
}

/// Creates two folders: one with the page alone, and one that also contains a gzip file that is not older than the
/// page.
fn page_folders(bench: &Bench<'_>, page: &[u8]) -> anyhow::Result<(PathBuf, PathBuf)> {
    let alone = bench.folder.path().join("alone");
    let beside = bench.folder.path().join("beside");
    for folder in [&alone, &beside] {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("page.html"), page)?;
    }
    std::fs::write(beside.join("page.html.gz"), pages::gzip(page)?)?;
    Ok((alone, beside))
}

fn gzip_rivals(bench: &Bench<'_>, alone: &Path, beside: &Path) -> anyhow::Result<Vec<Contender>> {
    let each_time = nginx_files(alone)
        .directive("gzip", "on")
        .directive("gzip_types", "*");
    let mut contenders = nginxes(bench, &each_time)?;
    let lying = nginx_files(beside).directive("gzip_static", "on");
    contenders.extend(nginxes(bench, &lying)?.into_iter().map(|one| Contender {
        column: Column::NginxBeside,
        label: match one.label {
            "nginx, sendfile on" => "nginx, .gz file, sendfile on",
            _ => "nginx, .gz file, sendfile off",
        },
        ..one
    }));
    Ok(contenders)
}

/// Number of connections for measuring memory. The server and the load generator each have one end of a connection, and
/// each process may have 20,000 descriptors.
const BUSY: usize = 10_000;

/// Memory in MB that Sluice may use in addition to its memory for files, by the row's goal.
const ABOVE_TIER: f64 = 32.0;

/// Sluice's memory for files in bytes: enough for all 1,000 files of 5 KB.
const TIER: u64 = 8 << 20;

/// Interval at which a server's memory is read.
const MEMORY_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn rss_10k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let root = bench.folder.path().join("small");
    pages::offset_files(&root, SMALL_FILES, SMALL as usize)?;
    let name = |what: &str| format!("{BUSY} busy connections, 5 KB files: {what}");
    let mut resident = Row::new(&name("resident"), Unit::Megabytes);
    let mut anonymous = Row::new(&name("anonymous"), Unit::Megabytes);
    let mut each = Row::new(&name("growth of each"), Unit::Bytes);
    let mut files = Files::new(&root);
    files.settings = vec![("memory".to_owned(), format!("\"{TIER}\""))];
    let mut contenders: Vec<Contender> = nginxes(bench, &nginx_files(&root))?;
    contenders.extend(sluice(bench, |binary| sluice_files(binary, files))?);
    for one in &contenders {
        let busy = busy_memory(bench, one)?;
        let (rss, rss_anonymous) = (megabytes(busy.peak.rss), megabytes(busy.peak.anonymous));
        eprintln!(
            "  {}: {rss:.1} MB resident, {rss_anonymous:.1} anonymous, {:.0} B a connection, \
             {:.0} requests/s, {} to {} on each",
            one.label, busy.each, busy.rate, busy.least, busy.most
        );
        for (row, figure) in [
            (&mut resident, rss),
            (&mut anonymous, rss_anonymous),
            (&mut each, busy.each),
        ] {
            let place = match one.column {
                Column::Sluice => &mut row.sluice,
                _ => &mut row.nginx,
            };
            *place = Some(place.map_or(figure, |other| other.min(figure)));
        }
    }
    let note = format!("of which up to {:.1} MB are file contents", megabytes(TIER));
    let goal = ABOVE_TIER + megabytes(TIER);
    Ok(vec![resident.goal_most(goal).note(&note), anonymous, each])
}

struct Busy {
    /// Largest resident memory of the server during the load.
    peak: Memory,
    /// Growth of resident memory in bytes per connection.
    each: f64,
    rate: f64,
    /// Number of responses on the connection with the fewest (`least`) and on the connection with the most (`most`).
    least: u64,
    most: u64,
}

/// Measures a server's memory while a request is in progress on every connection.
fn busy_memory(bench: &Bench<'_>, one: &Contender) -> anyhow::Result<Busy> {
    let plan = LoadPlan {
        numbers: Some((0, SMALL_FILES)),
        expect_length: Some(SMALL),
        core: Some(bench.options.load_core),
        // Many concurrent connects overflow the listener's queue in the kernel. Some clients then send their SYN again,
        // which takes seconds.
        timeout_seconds: 30.0,
        ..LoadPlan::new(one.server.address(), "/{n}")
    };
    let warm = LoadPlan {
        requests: Some(5 * SMALL_FILES),
        connections: 16,
        ..plan.clone()
    };
    roles::run_load(&warm, bench.folder.path())?;
    let process = one.server.process();
    let before = settled(process)?;
    let busy = LoadPlan {
        // The run is long enough for several responses on each connection.
        seconds: Some(bench.options.seconds_per_run + 3.0),
        connections: BUSY,
        ..plan
    };
    let (result, peak) = thread::scope(|scope| {
        let load = scope.spawn(|| roles::run_load(&busy, bench.folder.path()));
        let peak = run_pinned(Some(bench.options.load_core), || {
            let mut peak = Memory::default();
            while !load.is_finished() {
                peak = greater(peak, process)?;
                thread::sleep(MEMORY_INTERVAL);
            }
            Ok(peak)
        });
        let result = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))??;
        anyhow::Ok((result, peak?))
    })?;
    anyhow::ensure!(
        result.errors.total() == 0,
        "{}: errors: {}",
        one.label,
        result.errors
    );
    let (least, most) = result.per_connection;
    anyhow::ensure!(least > 0, "{}: not all connections were served", one.label);
    Ok(Busy {
        peak,
        each: peak.rss.saturating_sub(before) as f64 / BUSY as f64,
        rate: result.rate(),
        least,
        most,
    })
}

fn greater(peak: Memory, process: &Process) -> anyhow::Result<Memory> {
    let now = process.memory()?;
    Ok(Memory {
        rss: peak.rss.max(now.rss),
        pss: peak.pss.max(now.pss),
        anonymous: peak.anonymous.max(now.anonymous),
    })
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Returns options for an nginx that serves this folder.
pub(crate) fn nginx_files(root: &Path) -> NginxOptions {
    NginxOptions::new(NginxMode::Static(root.to_owned()), None)
}

/// Returns options for a Sluice that serves these files and has no origin.
pub(crate) fn sluice_files(binary: &Path, files: Files) -> SluiceOptions {
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    SluiceOptions {
        files: Some(files),
        ..SluiceOptions::new(binary, nobody)
    }
}
