//! Rows of the bench with HTTP/2: cache hits, memory of idle connections, and uploads. h2load makes the load. h2o takes
//! part with static files where it is installed.

use std::path::{Path, PathBuf};

use super::contest::{Column, Contender, Contest, Per, Server, nginx, nginxes, sluice};
use super::encrypted::Certified;
use super::table::{Row, Unit};
use super::{Bench, SluiceOptions, median, memory};
use crate::client;
use crate::load::LoadResult;
use crate::load::h2load::H2Load;
use crate::offset;
use crate::origin::{Origin, OriginOptions};
use crate::rivals::{H2O, H2oOptions, NginxMode, NginxOptions};
use crate::roles::{self, OriginPlan};

const SMALL: u64 = 5 << 10;
const LARGE: u64 = 1 << 20;
const CONNECTIONS: usize = 16;
/// Streams of a connection that loads large objects.
const LARGE_STREAMS: usize = 4;
/// Number of idle connections. The lab has two descriptors for each, and the server one, of 20,000.
const IDLE: usize = 4000;
/// Length of the upload in bytes.
const UPLOAD: u64 = 1 << 30;

/// Runs a contest's load with HTTP/2. `length`: length of each response.
pub(super) fn load(
    bench: &Bench<'_>,
    contest: &Contest,
    one: &Contender,
    (length, seconds): (u64, f64),
    streams: usize,
) -> anyhow::Result<LoadResult> {
    let load = H2Load {
        tls: contest.tls.is_some(),
        connections: contest.connections,
        streams,
        seconds: Some(seconds),
        core: Some(bench.options.load_core),
        ..H2Load::new(one.server.address(), &contest.path)
    };
    let result = load.run(bench.folder.path())?;
    let (failed, whole) = (result.failed, result.bytes >= result.requests * length);
    anyhow::ensure!(
        failed == 0 && result.requests > 0 && whole,
        "{} under load: {failed} requests failed, {} did not, with {} bytes",
        one.label,
        result.requests,
        result.bytes
    );
    Ok(result.into_load_result())
}

/// Servers that have the same object of a length: caches in front of an origin, and nginx with a file.
pub(super) struct Servers {
    pub(super) contenders: Vec<Contender>,
    /// Folder of the file.
    root: PathBuf,
    _origin: Origin,
}

impl Servers {
    /// Starts the servers. `certified`: the certificate, or clear text.
    pub(super) fn start(
        bench: &Bench<'_>,
        certified: Option<&Certified>,
        length: u64,
    ) -> anyhow::Result<Servers> {
        let origin = Origin::start(OriginOptions::default())?;
        let root = bench.folder.path().join("http2");
        file(&root, length)?;
        let options = |mode, origin| {
            let mut options = match certified {
                Some(certified) => certified.nginx(mode, origin),
                None => NginxOptions::new(mode, origin),
            };
            options.http2 = true;
            options
        };
        let mut contenders = nginxes(bench, &options(NginxMode::Cached, Some(origin.addr())))?;
        if bench.nginx {
            let mut files = nginx(bench, &options(NginxMode::Static(root.clone()), None))?;
            files.label = "nginx, static file";
            contenders.push(files);
        }
        contenders.extend(sluice(bench, |binary| {
            let options = SluiceOptions {
                memory: Some("256MiB".to_owned()),
                http2: true,
                ..SluiceOptions::new(binary, origin.addr())
            };
            match certified {
                Some(certified) => certified.sluice(options),
                None => options,
            }
        })?);
        if let Some(certified) = certified {
            certified.trust(&contenders);
        }
        for one in &contenders {
            client::speak_http2_to(one.server.address());
        }
        Ok(Servers {
            contenders,
            root,
            _origin: origin,
        })
    }

    /// Adds h2o with the file, if it is installed.
    fn with_h2o(
        mut self,
        bench: &Bench<'_>,
        certified: Option<&Certified>,
    ) -> anyhow::Result<Servers> {
        if let Err(missing) = H2O.find() {
            eprintln!("  {missing}");
            return Ok(self);
        }
        let h2o = H2oOptions {
            root: self.root.clone(),
            tls: certified.map(|certified| certified.pair.clone()),
            core: Some(bench.options.server_core),
        };
        let one = Contender {
            column: Column::H2o,
            label: "h2o, static file",
            server: Server::Rival(h2o.start()?),
        };
        if let Some(certified) = certified {
            certified.trust(std::slice::from_ref(&one));
        }
        client::speak_http2_to(one.server.address());
        self.contenders.push(one);
        Ok(self)
    }
}

/// Writes the file that has the path and the content of the origin's object.
pub(super) fn file(root: &Path, length: u64) -> anyhow::Result<()> {
    let folder = root.join("offset");
    std::fs::create_dir_all(&folder)?;
    let content = offset::offset_bytes(0, length as usize);
    Ok(std::fs::write(folder.join(length.to_string()), content)?)
}

pub(super) fn hit_5k(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let servers =
        Servers::start(bench, Some(&certified), SMALL)?.with_h2o(bench, Some(&certified))?;
    let mut rows = Vec::new();
    for (streams, goal) in [(32, 0.35), (4, 0.5), (1, 0.75)] {
        let name = format!("HTTP/2 TLS memory hit, 5 KB, {CONNECTIONS} x {streams} streams");
        let contest = Contest {
            tls: Some(certified.load.clone()),
            streams: Some(streams),
            ..Contest::of_offset(&name, SMALL, CONNECTIONS)
        };
        let measured = contest.measure(bench, &servers.contenders)?;
        rows.extend(contest.rows(&measured, goal));
    }
    Ok(rows)
}

pub(super) fn hit_5k_clear(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let servers = Servers::start(bench, None, SMALL)?.with_h2o(bench, None)?;
    let name = format!("HTTP/2 memory hit, 5 KB, {CONNECTIONS} x 32 streams");
    let contest = Contest {
        streams: Some(32),
        ..Contest::of_offset(&name, SMALL, CONNECTIONS)
    };
    let measured = contest.measure(bench, &servers.contenders)?;
    Ok(contest.rows(&measured, 0.3))
}

pub(super) fn hit_1m(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let servers =
        Servers::start(bench, Some(&certified), LARGE)?.with_h2o(bench, Some(&certified))?;
    let name = format!("HTTP/2 TLS memory hit, 1 MiB, {CONNECTIONS} x {LARGE_STREAMS} streams");
    let contest = Contest {
        per: Per::Mebibyte,
        tls: Some(certified.load.clone()),
        streams: Some(LARGE_STREAMS),
        ..Contest::of_offset(&name, LARGE, CONNECTIONS)
    };
    let measured = contest.measure(bench, &servers.contenders)?;
    Ok(contest.rows(&measured, 0.55))
}

pub(super) fn idle(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let servers = Servers::start(bench, Some(&certified), SMALL)?;
    let mut row = Row::new("HTTP/2 TLS idle connection: memory", Unit::Bytes);
    for one in &servers.contenders {
        let bytes = memory::idle_bytes_of(IDLE, one.server.address(), one.server.process())?;
        eprintln!("  {}: {bytes:.0} B", one.label);
        match one.column.is_sluice() {
            true => row.sluice = Some(bytes),
            false => row.nginx = Some(row.nginx.map_or(bytes, |other| other.min(bytes))),
        }
    }
    let note = format!("growth over {IDLE} connections that each made a request");
    Ok(vec![row.goal_most(12_000.0).note(&note)])
}

/// Measures the CPU time of an upload of 1 GiB over TLS for each MiB.
pub(super) fn upload(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let certified = Certified::new(bench)?;
    let plan = OriginPlan {
        core: Some(bench.options.load_core),
        ..OriginPlan::default()
    };
    let origin = roles::start_origin(&plan, bench.folder.path())?;
    let mut contenders = Vec::new();
    if bench.nginx {
        let mut options = certified
            .nginx(NginxMode::Proxy, Some(origin.address))
            .directive("client_max_body_size", "0")
            .directive("proxy_request_buffering", "off");
        options.http2 = true;
        contenders.push(nginx(bench, &options)?);
    }
    contenders.extend(sluice(bench, |binary| {
        let mut options = SluiceOptions::new(binary, origin.address);
        options.limits.push(("body".to_owned(), "0".to_owned()));
        options.http2 = true;
        certified.sluice(options)
    })?);
    // The file has no blocks on the disk, so reading it costs almost nothing.
    let file = bench.folder.path().join("upload");
    std::fs::File::create(&file)?.set_len(UPLOAD)?;
    let mut row = Row::new("HTTP/2 TLS upload of 1 GiB: CPU", Unit::CpuPerMebibyte);
    let mut measured: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.options.rounds.max(1) {
        for (one, measured) in contenders.iter().zip(&mut measured) {
            measured.push(upload_us(bench, one, &file)? / (UPLOAD >> 20) as f64);
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
fn upload_us(bench: &Bench<'_>, one: &Contender, file: &Path) -> anyhow::Result<f64> {
    let before = one.server.process().cpu()?;
    let load = H2Load {
        tls: true,
        upload: Some(file.to_owned()),
        core: Some(bench.options.load_core),
        ..H2Load::new(one.server.address(), "/offset/1")
    };
    let result = load.run(bench.folder.path())?;
    anyhow::ensure!(result.requests == 1, "{}: the upload failed", one.label);
    let used = one.server.process().cpu()?.saturating_sub(before);
    eprintln!(
        "  {}: {:.2} s of CPU in {:.2} s",
        one.label,
        used.as_secs_f64(),
        result.seconds
    );
    Ok(used.as_nanos() as f64 / 1000.0)
}
