//! The row of the bench for large uploads over TLS, which the server passes to an origin without TLS.

use std::time::Duration;

use anyhow::Context as _;

use super::contest::{Contender, nginx, sluice};
use super::encrypted::Certified;
use super::table::{Row, Unit};
use super::{Bench, SluiceOptions, median};
use crate::client::Client;
use crate::process::pin_to_core;
use crate::rivals::NginxMode;
use crate::roles::{self, OriginPlan};

/// Length of the upload in bytes, and of the pieces in which the client writes it.
const UPLOAD: usize = 1 << 30;
const PIECE: usize = 1 << 20;

/// Measures the CPU time of an upload of 1 GiB for each MiB.
pub(super) fn upload_1g(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let plan = OriginPlan {
        core: Some(bench.options.load_core),
        ..OriginPlan::default()
    };
    let origin = roles::start_origin(&plan, bench.folder.path())?;
    let mut contenders = Vec::new();
    if bench.nginx {
        let options = certified
            .nginx(NginxMode::Proxy, Some(origin.address))
            .directive("client_max_body_size", "0")
            .directive("proxy_request_buffering", "off");
        contenders.push(nginx(bench, &options)?);
    }
    contenders.extend(sluice(bench, |binary| {
        let mut options = SluiceOptions::new(binary, origin.address);
        options.limits.push(("body".to_owned(), "0".to_owned()));
        certified.sluice(options)
    })?);
    certified.trust(&contenders);
    let mut row = Row::new("TLS upload of 1 GiB: CPU", Unit::CpuPerMebibyte);
    let mut measured: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.options.rounds.max(1) {
        for (one, measured) in contenders.iter().zip(&mut measured) {
            measured.push(cpu_us(bench, one)? / (UPLOAD / PIECE) as f64);
        }
    }
    for (one, measured) in contenders.iter().zip(measured) {
        let figure = median(measured);
        match one.column.is_sluice() {
            true => row.sluice = figure,
            false => row.nginx = figure,
        }
    }
    Ok(vec![row.goal_ratio(1.0)])
}

/// Uploads once, and returns the CPU time of the server in microseconds.
fn cpu_us(bench: &Bench<'_>, one: &Contender) -> anyhow::Result<f64> {
    let (address, core) = (one.server.address(), bench.options.load_core);
    let before = one.server.process().cpu()?;
    let upload = || -> anyhow::Result<u16> {
        pin_to_core(core)?;
        let mut client = Client::connect(address)?;
        client.set_timeout(Duration::from_secs(120))?;
        let head = format!("PUT /offset/1 HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n");
        client.send_raw(head.as_bytes())?;
        let piece = vec![b'x'; PIECE];
        for _ in 0..UPLOAD / PIECE {
            client.send_raw(&piece)?;
        }
        Ok(client.read_response()?.status)
    };
    // The thread is pinned to its core for the rest of its life.
    let status = std::thread::scope(|scope| scope.spawn(upload).join());
    let status = status.map_err(|_| anyhow::anyhow!("the upload panicked"))?;
    let status = status.with_context(|| one.label.to_owned())?;
    anyhow::ensure!(status == 200, "{}: status {status}", one.label);
    let used = one.server.process().cpu()?.saturating_sub(before);
    eprintln!("  {}: {:.2} s", one.label, used.as_secs_f64());
    Ok(used.as_nanos() as f64 / 1000.0)
}
