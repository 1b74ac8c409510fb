//! Rows of the bench for an ordinary client among hostile TLS clients: some stop in the middle of their handshake, some
//! send empty records or handshakes within a session, and some make one handshake after the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustls::{ClientConfig, ContentType};

use super::contest::{Contender, SOURCES};
use super::encrypted::{Certified, NAME};
use super::memory::settled;
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::client;
use crate::load::{LoadPlan, LoadResult};
use crate::origin::{Origin, OriginOptions};
use crate::process::{pin_to_core, run_pinned};
use crate::raw_tls::{self, RawTls};
use crate::roles;

const PATH: &str = "/offset/5120";
/// Number of clients that stop in their handshake, and of clients that send useless records.
const EACH: usize = 1000;
const SECONDS: f64 = 30.0;
/// Length in seconds of the periods of which the 99th percentile of the latency is taken.
const PERIOD: f64 = 1.0;
/// Largest share of a period that the hypervisor may take from this machine. Otherwise the period does not count, as its
/// latency says nothing about the server.
pub(super) const MOST_STOLEN: f64 = 0.02;
/// Seconds for which the ordinary client runs alone, for comparison.
const QUIET_SECONDS: f64 = 5.0;
/// Requests per second of the ordinary client, and handshakes per second of the attackers.
const RATE: f64 = 200.0;
const CONNECTIONS: usize = 16;
/// Most growth of the server's memory in MB.
const GROWTH_MB: f64 = 32.0;
/// Nice value of the attackers, so that the ordinary client has priority on their core.
const NICE: i32 = 10;
/// Each connection of the attackers acts once per round. Rounds are divided into steps.
const STEPS: usize = 20;
const STEP: Duration = Duration::from_millis(50);
/// Most connections that the attackers open in a step, after the first round.
const OPENED_PER_STEP: usize = 10;
/// Empty records in a row. Servers end a connection after 32.
const EMPTY_RECORDS: usize = 30;

/// The measurements of one run against a server: latency of its ordinary client, and memory.
struct Outcome {
    /// The 99th percentile in microseconds of each period without disturbance, during the attack and before it.
    p99_us: Vec<f64>,
    quiet_p99_us: Vec<f64>,
    growth_mb: f64,
    errors: u64,
    handshakes: u64,
    /// CPU time of the server during the attack.
    cpu: Duration,
}

/// Measures the 99th percentile of an ordinary client's latency during an attack, and the growth of memory. The servers
/// are attacked in turns. The latency is the median of the periods of all runs, and the growth is that of the worst run.
pub(super) fn attack(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let origin = Origin::start(OriginOptions::default())?;
    let mut contenders = certified.caches(bench, &origin)?;
    // nginx's configurations differ only in sendfile, so the first one is measured.
    let mut measured_nginx = false;
    contenders
        .retain(|one| one.column.is_sluice() || !std::mem::replace(&mut measured_nginx, true));
    let mut outcomes: Vec<Vec<Outcome>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.options.rounds.max(1) {
        for (one, outcomes) in contenders.iter().zip(&mut outcomes) {
            outcomes.push(measure(bench, &certified, one)?);
        }
    }
    let mut latency = Row::new("TLS attack, ordinary client: p99", Unit::Microseconds);
    let mut memory = Row::new("TLS attack: growth of memory", Unit::Megabytes);
    for (one, outcomes) in contenders.iter().zip(&outcomes) {
        let p99 = p99_us(outcomes, |one| &one.p99_us);
        let growth = outcomes.iter().map(|one| one.growth_mb).reduce(f64::max);
        match one.column.is_sluice() {
            true => (latency.sluice, memory.sluice) = (p99, growth),
            false => (latency.nginx, memory.nginx) = (p99, growth),
        }
        latency = latency.note(&summary(one.label, outcomes));
    }
    Ok(vec![latency.goal_ratio(1.0), memory.goal_most(GROWTH_MB)])
}

/// Returns the median of the periods of all runs.
fn p99_us(outcomes: &[Outcome], of: impl Fn(&Outcome) -> &[f64]) -> Option<f64> {
    median(outcomes.iter().flat_map(|one| of(one).to_vec()).collect())
}

fn summary(label: &str, outcomes: &[Outcome]) -> String {
    let without = match p99_us(outcomes, |one| &one.quiet_p99_us) {
        Some(p99) => format!("{p99:.0} µs"),
        None => "unknown".to_owned(),
    };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    format!(
        "{label}: p99 without an attack {without}, {} undisturbed seconds, {:.2} s of CPU, {} failed requests, {} \
         handshakes of attackers",
        sum(|one| one.p99_us.len() as u64),
        outcomes
            .iter()
            .map(|one| one.cpu.as_secs_f64())
            .sum::<f64>(),
        sum(|one| one.errors),
        sum(|one| one.handshakes),
    )
}

/// Returns the 99th percentiles of the periods in which the hypervisor did not disturb the load. A period with missing
/// responses counts as infinitely slow.
fn undisturbed(load: &LoadResult) -> Vec<f64> {
    let quiet = load.windows.iter().filter(|one| one.stolen <= MOST_STOLEN);
    quiet
        .map(|one| one.p99_us.unwrap_or(f64::INFINITY))
        .collect()
}

fn measure(bench: &Bench<'_>, certified: &Certified, one: &Contender) -> anyhow::Result<Outcome> {
    let address = one.server.address();
    for _ in 0..100 {
        client::get(address, PATH, &[])?;
    }
    let ordinary = |seconds: f64| LoadPlan {
        connections: CONNECTIONS,
        rate: Some(RATE),
        seconds: Some(seconds),
        window_seconds: Some(PERIOD),
        core: Some(bench.options.load_core),
        tls: Some(certified.load.clone()),
        ..LoadPlan::new(address, PATH)
    };
    let handshakes = LoadPlan {
        keepalive: false,
        sources: SOURCES,
        connections: EACH,
        ..ordinary(SECONDS)
    };
    let folder = bench.folder.path();
    let quiet = roles::run_load(&ordinary(QUIET_SECONDS), folder)?;
    let before = settled(one.server.process())?;
    let cpu = one.server.process().cpu()?;
    let (stop, core) = (AtomicBool::new(false), bench.options.load_core);
    let mut crowd = Crowd::new(address, certified);
    let outcome: anyhow::Result<Outcome> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let pinned = pin_to_core(core);
            yield_to_the_ordinary_client();
            if pinned.is_ok() {
                crowd.run(&stop);
            }
        });
        let many = scope.spawn(|| {
            yield_to_the_ordinary_client();
            roles::run_load(&handshakes, folder)
        });
        let load = scope.spawn(|| roles::run_load(&ordinary(SECONDS), folder));
        let most = run_pinned(Some(core), || {
            let mut most = before;
            while !load.is_finished() {
                std::thread::sleep(Duration::from_millis(500));
                if let Ok(memory) = one.server.process().memory() {
                    most = most.max(memory.rss);
                }
            }
            Ok(most)
        });
        stop.store(true, Ordering::Relaxed);
        let finished = |joined: std::thread::Result<anyhow::Result<LoadResult>>| {
            joined.map_err(|_| anyhow::anyhow!("the load panicked"))?
        };
        let (load, many) = (finished(load.join())?, finished(many.join())?);
        Ok(Outcome {
            p99_us: undisturbed(&load),
            quiet_p99_us: undisturbed(&quiet),
            growth_mb: (most? - before) as f64 / 1e6,
            errors: load.errors.total(),
            handshakes: many.connects,
            cpu: one.server.process().cpu()?.saturating_sub(cpu),
        })
    });
    outcome.with_context(|| one.label.to_owned())
}

/// Lowers the priority of this thread and of the processes that it starts.
pub(super) fn yield_to_the_ordinary_client() {
    // If this fails, the attackers run at the same priority, which only makes the latency worse.
    let _ = rustix::process::nice(NICE);
}

/// The connections of the attackers.
struct Crowd {
    address: SocketAddr,
    configs: [Arc<ClientConfig>; 2],
    /// The beginning of a handshake.
    hello: Vec<u8>,
    half: Vec<Option<TcpStream>>,
    noisy: Vec<Option<RawTls>>,
    /// Number of connections opened so far, from which the source address follows.
    opened: u32,
}

impl Crowd {
    fn new(address: SocketAddr, certified: &Certified) -> Crowd {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let configs = versions.map(|version| raw_tls::config(&certified.authority, version));
        Crowd {
            address,
            configs,
            hello: certified.hello(),
            half: (0..EACH).map(|_| None).collect(),
            noisy: (0..EACH).map(|_| None).collect(),
            opened: 0,
        }
    }

    /// Attacks until `stop` is set.
    fn run(&mut self, stop: &AtomicBool) {
        let mut step = 0;
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            // In the first round, all connections are opened.
            let mut left = match step < STEPS {
                true => 2 * EACH,
                false => OPENED_PER_STEP,
            };
            for index in (0..EACH).filter(|index| index % STEPS == step % STEPS) {
                self.stop_in_handshake(index, &mut left);
                self.make_noise(index, &mut left);
            }
            step += 1;
            std::thread::sleep(STEP.saturating_sub(began.elapsed()));
        }
    }

    fn open(&mut self, left: &mut usize) -> Option<TcpStream> {
        *left = left.checked_sub(1)?;
        self.opened += 1;
        let [_, a, b, c] = self.opened.to_be_bytes();
        let source = IpAddr::from(Ipv4Addr::new(127, a.wrapping_add(64), b, c.max(1)));
        raw_tls::connect(self.address, Some(source)).ok()
    }

    /// Keeps a connection open that has sent half of its first message.
    fn stop_in_handshake(&mut self, index: usize, left: &mut usize) {
        let slot = &mut self.half[index];
        if slot.as_ref().is_some_and(is_open) {
            return;
        }
        *slot = None;
        if let Some(mut socket) = self.open(left)
            && socket
                .write_all(&self.hello[..self.hello.len() / 2])
                .is_ok()
        {
            self.half[index] = Some(socket);
        }
    }

    /// Sends useless records on a connection, which is opened again if the server has closed it.
    fn make_noise(&mut self, index: usize, left: &mut usize) {
        let renegotiates = index % 2 == 1;
        let is_open = |noisy: &RawTls| is_open(noisy.socket());
        if !self.noisy[index].as_ref().is_some_and(is_open) {
            self.noisy[index] = None;
            let config = self.configs[usize::from(renegotiates)].clone();
            let socket = self.open(left);
            let noisy = socket.and_then(|one| RawTls::handshake(one, &config, NAME).ok());
            self.noisy[index] = noisy;
        }
        let Some(noisy) = &mut self.noisy[index] else {
            return;
        };
        let sent = match renegotiates {
            // The first message of a handshake, without the header of its record.
            true => noisy.send(&[(ContentType::Handshake, &self.hello[5..])]),
            false => {
                let mut records = vec![(ContentType::ApplicationData, &b""[..]); EMPTY_RECORDS];
                records.push((ContentType::ApplicationData, b"G"));
                noisy.send(&records)
            }
        };
        if sent.is_err() {
            self.noisy[index] = None;
        }
    }
}

/// Discards what has arrived, and returns whether the server has left the connection open.
fn is_open(socket: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    if socket.set_nonblocking(true).is_err() {
        return false;
    }
    let is_open = loop {
        match (&mut &*socket).read(&mut buffer) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == ErrorKind::WouldBlock,
        }
    };
    is_open && socket.set_nonblocking(false).is_ok()
}
