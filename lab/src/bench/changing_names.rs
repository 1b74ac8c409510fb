//! Rows of the bench for a name whose addresses change all the time, while one of them is dead.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Bench;
use super::contest;
use super::sluice::SluiceOptions;
use super::table::{Row, Unit};
use crate::dns::NameServer;
use crate::load::{LoadPlan, LoadResult};
use crate::process::free_port;
use crate::roles::{self, OriginPlan, RoleServer};

const NAME: &str = "origin.test";
const BODY: u64 = 5 << 10;
const RATE: f64 = 2000.0;
const CONNECTIONS: usize = 64;
/// Number of servers, of which the name has some at a time.
const SERVERS: u8 = 5;
/// Addresses that the name has at a time. The last one is that of a server that does not run.
const ADDRESSES: u8 = 4;
const DEAD: u8 = SERVERS + 1;
/// Number of changes, one per second.
const CHANGES: u8 = 30;

/// Counts the errors that clients see while the addresses of the servers' name change each second.
pub(super) fn changing_names(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let port = free_port()?;
    let _origins: Vec<RoleServer> = (1..=SERVERS)
        .map(|last| origin(bench, SocketAddr::new(ip(last), port)))
        .collect::<anyhow::Result<_>>()?;
    let dns = NameServer::start()?;
    dns.set(NAME, &addresses(0));
    let mut errors = Row::new(
        "addresses of a name change each second: errors",
        Unit::Count,
    );
    let mut p99 = Row::new(
        "addresses of a name change each second: p99",
        Unit::Microseconds,
    );
    let one = contest::sluice(bench, |binary| SluiceOptions {
        name: Some((NAME.to_owned(), dns.addr())),
        ..SluiceOptions::new(binary, SocketAddr::new(ip(1), port))
    })?;
    if let Some(one) = one {
        let load = run(bench, &dns, one.server.address())?;
        eprintln!("  {}: {:?}", one.label, load.errors);
        errors.sluice = Some(load.errors.total() as f64);
        p99.sluice = Some(load.latency.p99_us);
    }
    let note = format!("{RATE} requests per second; one of {ADDRESSES} addresses is dead; TTL 1 s");
    Ok(vec![errors.goal_most(0.0).note(&note), p99])
}

/// Returns an address on loopback.
fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// Returns the addresses of the name after this number of changes.
fn addresses(change: u8) -> Vec<IpAddr> {
    let running = (0..ADDRESSES - 1).map(|n| ip(1 + (change + n) % SERVERS));
    running.chain([ip(DEAD)]).collect()
}

fn origin(bench: &Bench<'_>, address: SocketAddr) -> anyhow::Result<RoleServer> {
    let plan = OriginPlan {
        address,
        core: Some(bench.options.load_core),
        ..OriginPlan::default()
    };
    roles::start_origin(&plan, bench.folder.path())
}

/// Runs the load, and changes the addresses meanwhile.
fn run(bench: &Bench<'_>, dns: &NameServer, address: SocketAddr) -> anyhow::Result<LoadResult> {
    let plan = LoadPlan {
        connections: CONNECTIONS,
        rate: Some(RATE),
        seconds: Some(f64::from(CHANGES) + 1.0),
        expect_length: Some(BODY),
        verify: true,
        consecutive_errors_max: None,
        core: Some(bench.options.load_core),
        ..LoadPlan::new(address, &format!("/offset/{BODY}"))
    };
    let folder = bench.folder.path();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| roles::run_load(&plan, folder));
        for change in 1..=CHANGES {
            std::thread::sleep(Duration::from_secs(1));
            dns.set(NAME, &addresses(change));
        }
        let load = load.join();
        load.map_err(|_| anyhow::anyhow!("the load panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_takes_one_running_server_away_and_adds_another() {
        for change in 0..CHANGES {
            let (before, after) = (addresses(change), addresses(change + 1));
            let kept = after.iter().filter(|one| before.contains(one)).count();
            assert_eq!((before.len(), kept), (4, 3));
            assert!(after.contains(&ip(DEAD)));
        }
    }
}
