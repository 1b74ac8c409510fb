//! Contests: servers on one core receive the same load in turns, and their CPU time per response is measured.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::sluice::{Sluice, SluiceOptions};
use super::table::{Row, Unit};
use super::{Bench, http2, median};
use crate::client::{self, Reply};
use crate::load::{LoadPlan, LoadResult, LoadTls};
use crate::process::Process;
use crate::rivals::{FloorOptions, HaproxyOptions, NginxOptions, RunningRival};
use crate::roles::{self, RoleServer};

/// Duration in seconds of the load that warms up each server before its first measured run.
const WARM_UP_SECONDS: f64 = 0.5;

/// Number of source addresses of short connections. One address would run out of ports.
pub(crate) const SOURCES: u32 = 1000;

/// The load and the expected responses of one row of the bench.
pub(super) struct Contest {
    pub(super) name: String,
    /// The request target. If there are several objects, `{n}` in the target is replaced by the number of each.
    pub(super) path: String,
    /// Number of objects, which are requested in turn.
    pub(super) objects: u64,
    pub(super) headers: Vec<(String, String)>,
    pub(super) connections: usize,
    pub(super) keepalive: bool,
    pub(super) answer: Answer,
    /// Unit per which CPU time is reported, such as a request.
    pub(super) per: Per,
    /// TLS of the load's connections; `None`: clear text.
    pub(super) tls: Option<LoadTls>,
    /// Concurrent streams on each connection of a load with HTTP/2, which h2load makes; `None`: HTTP/1.1.
    pub(super) streams: Option<usize>,
}

/// The content that all responses of a contest must have.
pub(super) enum Answer {
    /// The lab's offset body in version 0, of this many bytes (see [`crate::offset`]).
    Offset(u64),
    /// This content, compressed with gzip.
    Gzip(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    Request,
    Mebibyte,
}

/// The column of the bench's table in which a server's figures appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Nginx,
    Haproxy,
    /// h2o, whose figure is in the row's note.
    H2o,
    Sluice,
    /// The build of Sluice named by `--against`.
    Earlier,
    Floor,
    /// nginx, with a pre-compressed file next to the requested file.
    NginxBeside,
    /// Sluice, with a pre-compressed file next to the requested file.
    SluiceBeside,
}

impl Column {
    /// Whether the servers in this column are Sluice.
    pub(super) fn is_sluice(self) -> bool {
        matches!(
            self,
            Column::Sluice | Column::Earlier | Column::SluiceBeside
        )
    }
}

pub(super) struct Contender {
    pub(super) column: Column,
    pub(super) label: &'static str,
    pub(super) server: Server,
}

/// A running server that is measured. Dropping the value ends the server.
#[derive(Debug)]
pub(crate) enum Server {
    Rival(RunningRival),
    Sluice(Box<Sluice>),
    Floor(RoleServer),
}

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Server::Rival(rival) => rival.addr(),
            Server::Sluice(sluice) => sluice.addr(),
            Server::Floor(floor) => floor.address,
        }
    }

    pub(crate) fn process(&self) -> &Process {
        match self {
            Server::Rival(rival) => rival.process(),
            Server::Sluice(sluice) => sluice.process(),
            Server::Floor(floor) => &floor.process,
        }
    }

    /// Returns the text of the server's configuration file; `None` if the server has none.
    pub(crate) fn configuration(&self) -> Option<&str> {
        match self {
            Server::Rival(rival) => Some(rival.configuration()),
            Server::Sluice(sluice) => Some(sluice.configuration()),
            Server::Floor(_) => None,
        }
    }
}

/// Medians of the results of one server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    column: Column,
    label: &'static str,
    pub(super) cpu_us: f64,
    pub(super) rate: f64,
}

/// Results of one measured run.
struct Run {
    cpu_us: f64,
    rate: f64,
}

impl Contest {
    /// Creates a contest in which responses contain an offset body of this many bytes, as the lab's origin sends.
    pub(super) fn of_offset(name: &str, body: u64, connections: usize) -> Contest {
        Contest {
            name: name.to_owned(),
            path: format!("/offset/{body}"),
            objects: 1,
            headers: Vec::new(),
            connections,
            keepalive: true,
            answer: Answer::Offset(body),
            per: Per::Request,
            tls: None,
            streams: None,
        }
    }

    /// Makes the load request this many objects in turn. `{n}` in `path` is replaced by the object's number.
    pub(super) fn of_many(mut self, path: &str, objects: u64) -> Contest {
        self.path = path.to_owned();
        self.objects = objects;
        self
    }

    /// Makes the load use a new connection for each request.
    pub(super) fn short(mut self) -> Contest {
        self.keepalive = false;
        self
    }

    pub(super) fn measure(
        &self,
        bench: &Bench<'_>,
        contenders: &[Contender],
    ) -> anyhow::Result<Vec<Measured>> {
        let all: Vec<&Contender> = contenders.iter().collect();
        self.measure_each(bench, &all)
    }

    /// Measures some of the servers.
    pub(super) fn measure_each(
        &self,
        bench: &Bench<'_>,
        contenders: &[&Contender],
    ) -> anyhow::Result<Vec<Measured>> {
        let mut lengths = Vec::new();
        for one in contenders {
            let length = self.check(one)?;
            self.load(bench, one, length, WARM_UP_SECONDS)?;
            lengths.push(length);
        }
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..bench.options.rounds.max(1) {
            for ((one, length), runs) in contenders.iter().zip(&lengths).zip(&mut runs) {
                runs.push(self.run(bench, one, *length)?);
            }
        }
        contenders
            .iter()
            .zip(runs)
            .map(|(one, runs)| {
                let of = |pick: fn(&Run) -> f64| median(runs.iter().map(pick).collect());
                Ok(Measured {
                    column: one.column,
                    label: one.label,
                    cpu_us: of(|run| run.cpu_us).context("at least one run")?,
                    rate: of(|run| run.rate).context("at least one run")?,
                })
            })
            .collect()
    }

    fn run(&self, bench: &Bench<'_>, one: &Contender, length: u64) -> anyhow::Result<Run> {
        let before = one.server.process().cpu()?;
        let result = self.load(bench, one, length, bench.options.seconds_per_run)?;
        let used = one.server.process().cpu()?.saturating_sub(before);
        let count = match self.per {
            Per::Request => result.requests as f64,
            Per::Mebibyte => result.bytes as f64 / f64::from(1 << 20),
        };
        let cpu_us = used.as_secs_f64() * 1e6 / count.max(1e-9);
        let share = |seconds: f64| 100.0 * seconds / result.seconds.max(1e-9);
        eprintln!(
            "  {}: {}, {:.0} requests/s, {:.0}% of its core, {:.0}% of the load's, median {:.0} µs",
            one.label,
            self.unit().show(cpu_us),
            result.rate(),
            share(used.as_secs_f64()),
            share(result.cpu_seconds),
            result.latency.p50_us,
        );
        Ok(Run {
            cpu_us,
            rate: result.rate(),
        })
    }

    fn unit(&self) -> Unit {
        match self.per {
            Per::Request => Unit::CpuPerRequest,
            Per::Mebibyte => Unit::CpuPerMebibyte,
        }
    }

    /// Requests the content once and checks every byte. Returns the length of the body as sent.
    fn check(&self, one: &Contender) -> anyhow::Result<u64> {
        let fields = self.headers.iter();
        let fields: Vec<_> = fields.map(|(name, value)| (&**name, &**value)).collect();
        let path = self.path.replace("{n}", "0");
        let reply = client::get(one.server.address(), &path, &fields)
            .with_context(|| format!("asking {}", one.label))?;
        self.answer
            .judge(&reply)
            .map_err(|wrong| anyhow::anyhow!("{}: {wrong}", one.label))?;
        Ok(reply.body.len() as u64)
    }

    /// Sends requests until the response has the expected encoding, which a server may produce in the background.
    pub(super) fn wait_until_encoded(
        &self,
        one: &Contender,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let deadline = std::time::Instant::now() + patience;
        loop {
            match self.check(one) {
                Ok(_) => return Ok(()),
                Err(error) if std::time::Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    pub(super) fn plan(&self, bench: &Bench<'_>, one: &Contender) -> LoadPlan {
        LoadPlan {
            numbers: (self.objects > 1).then_some((0, self.objects)),
            headers: self.headers.clone(),
            connections: self.connections,
            keepalive: self.keepalive,
            sources: if self.keepalive { 0 } else { SOURCES },
            core: Some(bench.options.load_core),
            tls: self.tls.clone(),
            ..LoadPlan::new(one.server.address(), &self.path)
        }
    }

    fn load(
        &self,
        bench: &Bench<'_>,
        one: &Contender,
        length: u64,
        seconds: f64,
    ) -> anyhow::Result<LoadResult> {
        if let Some(streams) = self.streams {
            return http2::load(bench, self, one, (length, seconds), streams);
        }
        let plan = LoadPlan {
            seconds: Some(seconds),
            expect_length: Some(length),
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

    /// Returns two rows: CPU time, whose ratio must not exceed `goal`, and throughput for information.
    pub(super) fn rows(&self, measured: &[Measured], goal: f64) -> Vec<Row> {
        let cpu = self.cpu(measured, "", Column::Nginx, Column::Sluice);
        let mut rate = Row::new(&format!("{}: rate", self.name), Unit::RequestsPerSecond);
        rate.nginx = best(measured, Column::Nginx).map(|one| one.rate);
        rate.haproxy = best(measured, Column::Haproxy).map(|one| one.rate);
        rate.sluice = best(measured, Column::Sluice).map(|one| one.rate);
        rate.floor = best(measured, Column::Floor).map(|one| one.rate);
        vec![cpu.goal_ratio(goal), rate]
    }

    /// Returns a row that compares the CPU time of these two columns. Of nginx's configurations, the one with less CPU
    /// time counts.
    pub(super) fn cpu(
        &self,
        measured: &[Measured],
        what: &str,
        nginx: Column,
        sluice: Column,
    ) -> Row {
        let mut row = Row::new(&format!("{}: CPU{what}", self.name), self.unit());
        let nginx = best(measured, nginx);
        row.nginx = nginx.map(|one| one.cpu_us);
        let haproxy = best(measured, Column::Haproxy);
        row.haproxy = haproxy.map(|one| one.cpu_us);
        row.sluice = best(measured, sluice).map(|one| one.cpu_us);
        row.floor = best(measured, Column::Floor).map(|one| one.cpu_us);
        let earlier = best(measured, Column::Earlier).map_or_else(String::new, |earlier| {
            let (now_us, earlier_us) = (row.sluice.unwrap_or_default(), earlier.cpu_us);
            let shown = self.unit().show(earlier_us);
            format!("{:.3} of the earlier build's {shown}", now_us / earlier_us)
        });
        let h2o = best(measured, Column::H2o).map_or_else(String::new, |h2o| {
            format!("{}: {}", h2o.label, self.unit().show(h2o.cpu_us))
        });
        row.note(nginx.map_or("", |nginx| nginx.label))
            .note(&h2o)
            .note(haproxy.map_or("", |haproxy| haproxy.label))
            .note(&earlier)
    }
}

impl Answer {
    fn judge(&self, reply: &Reply) -> Result<(), String> {
        let page = match self {
            Answer::Offset(length) => return reply.verify_whole(*length),
            Answer::Gzip(page) => page,
        };
        let coding = reply.header("content-encoding");
        if reply.status != 200 || coding != Some("gzip") || reply.truncated() {
            return Err(format!(
                "no complete response in gzip: status {}, Content-Encoding {coding:?}, {} bytes",
                reply.status,
                reply.body.len()
            ));
        }
        match super::pages::gunzip(&reply.body) {
            Ok(decoded) if decoded == *page => Ok(()),
            Ok(decoded) => Err(format!("{} bytes of another page", decoded.len())),
            Err(error) => Err(format!("the response is not valid gzip: {error}")),
        }
    }
}

/// Returns the result with the least CPU time among the servers of a column.
fn best(measured: &[Measured], column: Column) -> Option<&Measured> {
    measured
        .iter()
        .filter(|one| one.column == column)
        .min_by(|one, other| one.cpu_us.total_cmp(&other.cpu_us))
}

/// Starts nginx on the servers' core.
pub(super) fn nginx(bench: &Bench<'_>, options: &NginxOptions) -> anyhow::Result<Contender> {
    let mut options = options.clone();
    options.core = Some(bench.options.server_core);
    Ok(Contender {
        column: Column::Nginx,
        label: match options.sendfile {
            true => "nginx, sendfile on",
            false => "nginx, sendfile off",
        },
        server: Server::Rival(options.start()?),
    })
}

/// Starts nginx once with sendfile on and once with sendfile off, if nginx is installed.
pub(super) fn nginxes(bench: &Bench<'_>, options: &NginxOptions) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for sendfile in [true, false] {
        if bench.nginx {
            let mut options = options.clone();
            options.sendfile = sendfile;
            contenders.push(nginx(bench, &options)?);
        }
    }
    Ok(contenders)
}

/// Starts HAProxy once with splicing and once without, if HAProxy is installed.
pub(super) fn haproxies(bench: &Bench<'_>, origin: SocketAddr) -> anyhow::Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for (splice, label) in [(true, "HAProxy, splice on"), (false, "HAProxy, splice off")] {
        if bench.haproxy {
            let options = HaproxyOptions {
                splice,
                core: Some(bench.options.server_core),
                ..HaproxyOptions::new(origin)
            };
            contenders.push(Contender {
                column: Column::Haproxy,
                label,
                server: Server::Rival(options.start()?),
            });
        }
    }
    Ok(contenders)
}

/// Starts Sluice on the servers' core, if a build of it was given.
pub(super) fn sluice(
    bench: &Bench<'_>,
    options: impl FnOnce(&Path) -> SluiceOptions,
) -> anyhow::Result<Option<Contender>> {
    let Some(binary) = &bench.options.sluice_binary else {
        return Ok(None);
    };
    let options = options(binary);
    start(bench, Column::Sluice, "Sluice", options).map(Some)
}

/// Starts Sluice and its earlier build on the servers' core, as far as builds were given.
pub(super) fn sluices(
    bench: &Bench<'_>,
    options: impl Fn(&Path) -> SluiceOptions,
) -> anyhow::Result<Vec<Contender>> {
    let now = sluice(bench, &options)?;
    let earlier = bench.options.against.as_deref();
    let earlier = earlier
        .map(|binary| {
            start(
                bench,
                Column::Earlier,
                "Sluice, earlier build",
                options(binary),
            )
        })
        .transpose()?;
    Ok(now.into_iter().chain(earlier).collect())
}

fn start(
    bench: &Bench<'_>,
    column: Column,
    label: &'static str,
    mut options: SluiceOptions,
) -> anyhow::Result<Contender> {
    options.core = Some(bench.options.server_core);
    Ok(Contender {
        column,
        label,
        server: Server::Sluice(Box::new(Sluice::start(&options)?)),
    })
}

/// Starts the lab's minimal server on the servers' core. Its responses have an offset body of `body` bytes.
pub(super) fn floor(bench: &Bench<'_>, body: u64, keepalive: bool) -> anyhow::Result<Contender> {
    let mut floor = FloorOptions::new(body);
    floor.close = !keepalive;
    floor.core = Some(bench.options.server_core);
    Ok(Contender {
        column: Column::Floor,
        label: "floor",
        server: Server::Floor(roles::start_floor(&floor, bench.folder.path())?),
    })
}
