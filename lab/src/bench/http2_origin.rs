//! The rows of the bench for requests that Sluice sends to an origin over HTTP/2: CPU time against HTTP/1.1 to the same
//! origin, and the number of connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;

use super::Bench;
use super::contest::{Column, Contender, Contest, Server};
use super::http2;
use super::sluice::{Files, Sluice, SluiceOptions};
use super::table::{Row, Unit};

const SMALL: u64 = 5 << 10;
const CLIENTS: usize = 64;
const NAME: &str = "uncached proxying, 5 KB, 64 connections, HTTP/2 to the origin";

/// Measures proxied requests of HTTP/1.1 clients, over HTTP/2 and over HTTP/1.1 to one origin, which is Sluice with a
/// static file on the load's core.
pub(super) fn proxied(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let mut factor = Row::new(&format!("{NAME}: CPU over HTTP/1.1"), Unit::Factor);
    let mut count = Row::new(&format!("{NAME}: connections to it"), Unit::Count);
    if let Some(binary) = &bench.options.sluice_binary {
        let origin = origin(bench, binary)?;
        let contenders = [
            proxy(bench, binary, origin.addr(), "1.1")?,
            proxy(bench, binary, origin.addr(), "2")?,
        ];
        let contest = Contest::of_offset(NAME, SMALL, CLIENTS);
        let measured = contest.measure(bench, &contenders)?;
        let [http1, http2] = measured[..] else {
            anyhow::bail!("{} servers were measured", measured.len());
        };
        factor.sluice = Some(http2.cpu_us / http1.cpu_us);
        factor = factor.note(&format!(
            "{:.2} µs over {:.2} µs per request, {:.0} and {:.0} requests/s",
            http2.cpu_us, http1.cpu_us, http2.rate, http1.rate
        ));
        count.sluice = Some(connects(&contenders[1])?);
        count = count.note(&format!("{} over HTTP/1.1", connects(&contenders[0])?));
    }
    Ok(vec![factor.goal_most(1.3), count.goal_most(1.0)])
}

/// Starts the origin, which speaks both versions of HTTP.
fn origin(bench: &Bench<'_>, binary: &Path) -> anyhow::Result<Sluice> {
    let root = bench.folder.path().join("http2-origin");
    http2::file(&root, SMALL)?;
    // No request goes there, but the configuration needs an origin.
    let unused = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    Sluice::start(&SluiceOptions {
        files: Some(Files::new(root)),
        http2: true,
        core: Some(bench.options.load_core),
        ..SluiceOptions::new(binary, unused)
    })
}

/// Starts Sluice on the servers' core. `version`: version of HTTP to the origin.
fn proxy(
    bench: &Bench<'_>,
    binary: &Path,
    origin: SocketAddr,
    version: &str,
) -> anyhow::Result<Contender> {
    let options = SluiceOptions {
        upstream: vec![("http".to_owned(), format!("\"{version}\""))],
        core: Some(bench.options.server_core),
        ..SluiceOptions::new(binary, origin)
    };
    Ok(Contender {
        column: Column::Sluice,
        label: match version {
            "2" => "Sluice, HTTP/2 to the origin",
            _ => "Sluice, HTTP/1.1 to the origin",
        },
        server: Server::Sluice(Box::new(Sluice::start(&options)?)),
    })
}

/// Returns the number of connections that Sluice has opened to the origin.
fn connects(one: &Contender) -> anyhow::Result<f64> {
    let Server::Sluice(sluice) = &one.server else {
        anyhow::bail!("{} is not Sluice", one.label);
    };
    let count = sluice.status()?["counters"]["upstream_connects"].as_u64();
    Ok(count.context("status: upstream_connects")? as f64)
}
