//! Rows of the bench for the connections to origins: their number, their memory, a slow server among others, and the return
//! of servers that were all down.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Signal;

use super::contest::{self, Server};
use super::memory::settled;
use super::sluice::{Sluice, SluiceOptions};
use super::table::{Row, Unit};
use super::{Bench, median};
use crate::certificates::Authority;
use crate::client::{self, Client, Reply};
use crate::front::{self, TlsFront};
use crate::load::LoadPlan;
use crate::origin::{Origin, OriginOptions, Resource};
use crate::process::free_port;
use crate::rivals::FloorOptions;
use crate::roles::{self, OriginPlan, RoleServer};

const BODY: u64 = 5 << 10;
/// Number of requests, and of clients that send them, whose connections to the origin are counted.
const REQUESTS: u64 = 1_000_000;
const CLIENTS: usize = 64;
/// Requests on each connection to the origin in the second run.
const PER_CONNECTION: u64 = 1000;
/// Number of idle connections to the origin whose memory is measured, without and with TLS. The front with TLS has two
/// threads for each.
const IDLE: usize = 4000;
const IDLE_TLS: usize = 1000;
/// Paths at the origin whose responses arrive at once, and after `AT_ONCE`.
const FAST: &str = "/fast";
const SLOW: &str = "/slow";
/// Time in which all clients send a request.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Time after the last request within which Sluice returns unused memory to the system.
const GIVEN_BACK: Duration = Duration::from_secs(3);
/// Delay in milliseconds of the ordinary servers' responses, and of the slow server's.
const DELAY_MS: u64 = 2;
const SLOW_MS: u64 = 20;
/// Requests per second to the three servers, and seconds of each run.
const RATE: f64 = 1000.0;
const SECONDS: f64 = 10.0;
/// Seconds for which all servers are down.
const DOWN: f64 = 10.0;
/// Requests per second while they are down.
const DOWN_RATE: f64 = 500.0;

/// Counts the connections to an origin: without a limit of requests on each, and with one.
pub(super) fn connections(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut options = FloorOptions::new(BODY);
    options.core = Some(bench.options.load_core);
    let origin = roles::start_floor(&options, bench.folder.path())?;
    let mut rows = Vec::new();
    let limits = [
        (
            "without a limit".to_owned(),
            "false".to_owned(),
            2 * CLIENTS as u64,
        ),
        (
            format!("{PER_CONNECTION} requests on each"),
            PER_CONNECTION.to_string(),
            REQUESTS / PER_CONNECTION * 105 / 100,
        ),
    ];
    for (name, limit, most) in limits {
        let name = format!("connections to the origin for {REQUESTS} requests, {name}");
        let mut row = Row::new(&name, Unit::Count);
        let one = contest::sluice(bench, |binary| SluiceOptions {
            upstream: vec![("keepalive_requests".to_owned(), limit)],
            ..SluiceOptions::new(binary, origin.address)
        })?;
        if let Some(Server::Sluice(sluice)) = one.map(|one| one.server) {
            let plan = LoadPlan {
                connections: CLIENTS,
                requests: Some(REQUESTS),
                core: Some(bench.options.load_core),
                ..LoadPlan::new(sluice.addr(), &format!("/offset/{BODY}"))
            };
            let load = roles::run_load(&plan, bench.folder.path())?;
            let connects = sluice.status()?["counters"]["upstream_connects"].as_u64();
            row.sluice = Some(connects.context("status: upstream_connects")? as f64);
            row = row.note(&format!("{} failed requests", load.errors.total()));
        }
        rows.push(row.goal_most(most as f64));
    }
    Ok(rows)
}

/// Measures the memory of idle connections to an origin, without and with TLS.
pub(super) fn idle(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origin = Origin::start(OriginOptions {
        forget: true,
        ..OriginOptions::default()
    })?;
    origin.serve(FAST, Resource::offset(BODY));
    origin.serve(SLOW, Resource::offset(BODY).delay_head(AT_ONCE));
    let plain = idle_memory(bench, IDLE, |options| SluiceOptions {
        origin: origin.addr(),
        ..options
    })?;
    let authority = Authority::new("Bench authority");
    let ca = bench.folder.path().join("authority.pem");
    std::fs::write(&ca, authority.pem())?;
    let pair = authority.server(&["127.0.0.1"]);
    let front = TlsFront::start(origin.addr(), front::config(&pair, None))?;
    let encrypted = idle_memory(bench, IDLE_TLS, |mut options| {
        let tls = format!("{{ ca = {ca:?} }}");
        options.upstream.push(("tls".to_owned(), tls));
        SluiceOptions {
            origin: front.address(),
            origin_tls: true,
            ..options
        }
    })?;
    let row = |name, memory, goal, count| {
        let mut row = Row::new(name, Unit::Bytes);
        row.sluice = memory;
        row.goal_most(goal).note(&format!(
            "growth of a process with {count} clients, per connection, from {} to {count} idle connections", count / 4
        ))
    };
    let names = [
        "idle connection to an origin: memory",
        "idle TLS connection to an origin: memory",
    ];
    Ok(vec![
        row(names[0], plain, 1536.0, IDLE),
        row(names[1], encrypted, 20_480.0, IDLE_TLS),
    ])
}

/// Returns the memory of one of `count` idle connections to an origin, in bytes. `change` sets the origin.
fn idle_memory(
    bench: &Bench<'_>,
    count: usize,
    change: impl Fn(SluiceOptions) -> SluiceOptions,
) -> anyhow::Result<Option<f64>> {
    let one = contest::sluice(bench, |binary| {
        let unset = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        change(SluiceOptions {
            upstream: vec![("keepalive".to_owned(), (2 * count).to_string())],
            ..SluiceOptions::new(binary, unset)
        })
    })?;
    let Some(Server::Sluice(sluice)) = one.map(|one| one.server) else {
        return Ok(None);
    };
    growth(&sluice, count).map(Some)
}

/// Returns the growth of the resident memory in bytes, per idle connection to the origin, while their number rises from a
/// quarter of `count` to `count`. `count` clients are connected all the time, so their own memory is in both
/// measurements, and no client ends in between, which would leave gaps of unused memory.
fn growth(sluice: &Sluice, count: usize) -> anyhow::Result<f64> {
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        let connected = Client::connect(sluice.addr());
        let mut client = connected.with_context(|| format!("after {number} clients"))?;
        expect_body(&client.get(FAST, &[])?)?;
        clients.push(client);
    }
    let (few, all) = (count / 4, count);
    let (few, before) = idle_after(sluice, &mut clients[..few])?;
    let (all, after) = idle_after(sluice, &mut clients[..all])?;
    anyhow::ensure!(all > few, "{few} and {all} connections are idle");
    Ok(after.saturating_sub(before) as f64 / (all - few) as f64)
}

/// Has each client send a request at the same time, twice. Returns the number of idle connections to the origin
/// afterwards, and the resident memory in bytes.
fn idle_after(sluice: &Sluice, clients: &mut [Client]) -> anyhow::Result<(u64, u64)> {
    for _ in 0..2 {
        for client in clients.iter_mut() {
            client.send("GET", SLOW, &[], b"")?;
        }
        for client in clients.iter_mut() {
            expect_body(&client.read_response()?)?;
        }
    }
    std::thread::sleep(GIVEN_BACK);
    let memory = settled(sluice.process())?;
    let idle = sluice.status()?["counters"]["upstream_idle_now"].as_u64();
    let idle = idle.context("status: upstream_idle_now")?;
    anyhow::ensure!(
        idle >= clients.len() as u64 * 9 / 10,
        "{idle} of {} connections are idle",
        clients.len()
    );
    Ok((idle, memory))
}

fn expect_body(reply: &Reply) -> anyhow::Result<()> {
    reply.verify_whole(BODY).map_err(anyhow::Error::msg)
}

fn origin(
    bench: &Bench<'_>,
    delay_ms: u64,
    address: Option<SocketAddr>,
) -> anyhow::Result<RoleServer> {
    let plan = OriginPlan {
        address: match address {
            Some(address) => address,
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
        },
        delay_ms,
        core: Some(bench.options.load_core),
        ..OriginPlan::default()
    };
    roles::start_origin(&plan, bench.folder.path())
}

/// Compares the 99th percentile of the latency over three servers, of which one is slow, by balancing policy. The figure
/// of round-robin is in the column of nginx.
pub(super) fn slow_server(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origins: Vec<RoleServer> = [DELAY_MS, DELAY_MS, SLOW_MS]
        .into_iter()
        .map(|delay_ms| origin(bench, delay_ms, None))
        .collect::<anyhow::Result<_>>()?;
    let addresses: Vec<SocketAddr> = origins.iter().map(|one| one.address).collect();
    let policies = ["round-robin", "least-time", "random-two"];
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..bench.options.rounds.max(1) {
        for (policy, times) in policies.iter().zip(&mut times) {
            times.extend(p99(bench, policy, &addresses)?);
        }
    }
    let [round_robin, others @ ..] = times.map(median);
    let rows = policies[1..].iter().zip(others).map(|(policy, p99)| {
        let name = format!("three servers, one slow, {policy}: p99");
        let mut row = Row::new(&name, Unit::Microseconds);
        row.nginx = round_robin;
        row.sluice = p99;
        row.goal_ratio(0.5)
            .note("compared with Sluice's round-robin")
    });
    Ok(rows.collect())
}

fn p99(bench: &Bench<'_>, policy: &str, servers: &[SocketAddr]) -> anyhow::Result<Option<f64>> {
    let one = contest::sluice(bench, |binary| SluiceOptions {
        more_origins: servers[1..].to_vec(),
        upstream: vec![("balance".to_owned(), format!("\"{policy}\""))],
        ..SluiceOptions::new(binary, servers[0])
    })?;
    let Some(one) = one else { return Ok(None) };
    let plan = LoadPlan {
        connections: CLIENTS,
        rate: Some(RATE),
        seconds: Some(SECONDS),
        core: Some(bench.options.load_core),
        ..LoadPlan::new(one.server.address(), &format!("/offset/{BODY}"))
    };
    let load = roles::run_load(&plan, bench.folder.path())?;
    anyhow::ensure!(
        load.errors.total() == 0,
        "{policy}: errors: {}",
        load.errors
    );
    Ok(Some(load.latency.p99_us))
}

/// Measures the attempts to connect while all of three servers are down, and the time to the first good response once they
/// are back.
pub(super) fn all_down(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let origins: Vec<RoleServer> = (0..3)
        .map(|_| origin(bench, 0, None))
        .collect::<anyhow::Result<_>>()?;
    let addresses: Vec<SocketAddr> = origins.iter().map(|one| one.address).collect();
    let mut attempts = Row::new(
        "all servers down: attempts per second and server",
        Unit::Count,
    );
    let mut back = Row::new("all servers back: first good response", Unit::Seconds);
    let one = contest::sluice(bench, |binary| SluiceOptions {
        more_origins: addresses[1..].to_vec(),
        ..SluiceOptions::new(binary, addresses[0])
    })?;
    if let Some(Server::Sluice(sluice)) = one.map(|one| one.server) {
        let path = format!("/offset/{BODY}");
        client::get(sluice.addr(), &path, &[])?;
        for origin in &origins {
            origin.process.signal(Signal::KILL)?;
        }
        drop(origins);
        let plan = LoadPlan {
            connections: CLIENTS,
            rate: Some(DOWN_RATE),
            seconds: Some(DOWN),
            consecutive_errors_max: None,
            core: Some(bench.options.load_core),
            ..LoadPlan::new(sluice.addr(), &path)
        };
        let before = failed_attempts()?;
        let load = roles::run_load(&plan, bench.folder.path())?;
        let failed = failed_attempts()?.saturating_sub(before);
        attempts.sluice = Some(failed as f64 / DOWN / addresses.len() as f64);
        let probes = sluice.status()?["counters"]["upstream_probes"].as_u64();
        attempts = attempts.note(&format!(
            "{failed} failed attempts on this machine, {} probes; statuses of the responses: {:?}; errors: {}",
            probes.context("status: upstream_probes")?,
            load.statuses,
            load.errors
        ));
        back.sluice = Some(time_to_return(bench, &addresses, sluice.addr(), &path)?);
    }
    Ok(vec![attempts.goal_most(10.0), back.goal_most(1.0)])
}

/// Starts the servers again. Returns the time in seconds from the start of the first one to the first good response.
fn time_to_return(
    bench: &Bench<'_>,
    servers: &[SocketAddr],
    sluice: SocketAddr,
    path: &str,
) -> anyhow::Result<f64> {
    let start = |address: &SocketAddr| origin(bench, 0, Some(*address));
    let _first = start(&servers[0])?;
    let began = Instant::now();
    let _others: Vec<RoleServer> = servers[1..]
        .iter()
        .map(start)
        .collect::<anyhow::Result<_>>()?;
    while client::get(sluice, path, &[])?.status != 200 {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(60), "they stay down");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the number of failed attempts to connect on this machine since its start.
fn failed_attempts() -> anyhow::Result<u64> {
    parse_failed_attempts(&std::fs::read_to_string("/proc/net/snmp")?)
        .context("no AttemptFails in /proc/net/snmp")
}

fn parse_failed_attempts(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "AttemptFails")?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_attempts_are_parsed() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin ActiveOpens AttemptFails\nTcp: 200 17 5\n";
        assert_eq!(parse_failed_attempts(text), Some(5));
        assert_eq!(parse_failed_attempts("Udp: a\n"), None);
        assert!(failed_attempts().is_ok());
    }
}
