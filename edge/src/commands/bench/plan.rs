//! The load that the options of `sluice bench` describe.

use std::io::{self, BufRead};
use std::path::Path;
use std::thread::available_parallelism;

use sluice_lab::load::{Choice, LoadPlan, LoadTls};

use super::options::BenchArgs;
use super::replay::Log;
use super::url::Targets;
use crate::commands::output::{failed, harmless, misused};
use crate::sys::{disk, limits};
use crate::tls;

/// Descriptors besides those of the connections.
const OTHER_DESCRIPTORS: usize = 64;
/// Duration of a load without any other end.
const USUAL_SECONDS: f64 = 10.0;
/// Length in seconds of the periods in which a rising load looks for saturation.
const WINDOW_SECONDS: f64 = 0.5;
/// Streams of a connection with `--http2`, unless `--streams` or `--close` is given.
const USUAL_STREAMS: u32 = 10;
/// Most streams on all connections together.
const STREAMS_MAX: usize = 1_000_000;
/// Headers that a request over HTTP/2 may not have (RFC 9113 8.2.2).
const CONNECTION_HEADERS: [&str; 5] = [
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "http2-settings",
];
/// The place for a number in a URL.
const PLACE: &str = "{n}";
/// Numbers of `--unique`: more than any load uses.
const NUMBERS: u64 = 1 << 48;

/// A load, and the number of threads that run it.
#[derive(Debug)]
pub struct Load {
    pub plan: LoadPlan,
    pub threads: usize,
    /// The log that is repeated; its requests are in the plan.
    pub log: Option<Log>,
}

/// Returns the load that these options describe.
///
/// # Errors
///
/// Options contradict one another, a file can't be read, or the host has no address.
pub fn load(args: &BenchArgs) -> anyhow::Result<Load> {
    let targets = Targets::parse(&args.urls)
        .map_err(|(url, help)| misused(url, "this is no URL for a load", help))?;
    check(args, &targets)?;
    let connections = args.connections as usize;
    let most = limits::raise_descriptors().saturating_sub(OTHER_DESCRIPTORS);
    if connections > most {
        let help = format!("use at most {most}, or raise the limit with `ulimit -n`");
        let option = format!("--connections {connections}");
        return Err(misused(
            option,
            "more than the limit of open files permits",
            help,
        ));
    }
    let streams = streams(args)?;
    let address = targets.address(args.sources > 0).map_err(|error| {
        let help = "check the host name, or write an IP address";
        failed(format!("{} has no address: {error}", targets.host), help)
    })?;
    let (choice, log) = choice(args)?;
    let tls = targets.is_tls.then(|| tls_of(args, &targets));
    if let Some(tls) = &tls {
        check_tls(args, tls)?;
    }
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let has_end = args.requests.is_some() || args.replay.is_some();
    let usual = (!has_end).then_some(USUAL_SECONDS);
    let plan = LoadPlan {
        paths: targets.paths.clone(),
        numbers: args.unique.then_some((0, NUMBERS)),
        choice,
        host: targets.authority.clone(),
        headers: args.header.clone(),
        connections,
        keepalive: !args.close,
        // An open loop uses all connections, although fewer would often do.
        rotate: args.rate.is_some() || args.replay.is_some(),
        requests: args.requests,
        seconds: args.duration.map(|time| time.as_secs_f64()).or(usual),
        rate: args.rate,
        rising_to: args.rising_to,
        window_seconds: args.rising_to.map(|_| WINDOW_SECONDS),
        saturated_us: args
            .rising_to
            .map(|_| args.saturated.as_secs_f64() * 1_000_000.0),
        expect_status: args.expect,
        verify: args.verify,
        sources: args.sources,
        timeout_seconds: args.timeout.as_secs_f64(),
        consecutive_errors_max: None,
        tls,
        streams,
        ..LoadPlan::new(address, "/")
    };
    Ok(Load {
        plan,
        threads: threads.min(connections),
        log,
    })
}

/// Checks that the options fit the URLs and one another.
fn check(args: &BenchArgs, targets: &Targets) -> anyhow::Result<()> {
    check_numbers(args, targets)?;
    check_rising(args)?;
    check_replay(args, targets)?;
    if let Some(file) = &args.ca
        && let Err(error) = disk::read_start(file, 1)
    {
        let option = harmless(&format!("--ca {}", file.display()));
        let title = format!("this file can't be read: {error}");
        return Err(misused(
            option,
            title,
            "name a file with certificates in PEM",
        ));
    }
    if !targets.is_tls && (args.insecure || args.ca.is_some()) {
        let help = "begin the URL with https://, or leave --insecure and --ca out";
        return Err(misused(
            &args.urls[0],
            "a URL without TLS has no certificate",
            help,
        ));
    }
    let is_local = targets.host.starts_with("127.") || targets.host == "localhost";
    if args.sources > 0 && !is_local {
        let help = "write a URL at 127.0.0.1, or leave --sources out";
        let option = format!("--sources {}", args.sources);
        return Err(misused(
            option,
            "these addresses reach only this machine",
            help,
        ));
    }
    Ok(())
}

/// Checks that all URLs have a place for a number if there are numbers, and otherwise none has.
fn check_numbers(args: &BenchArgs, targets: &Targets) -> anyhow::Result<()> {
    let has_place = |path: &String| path.contains(PLACE);
    let numbered = match (args.unique, args.zipf) {
        (true, _) => Some("--unique".to_owned()),
        (_, Some(exponent)) => Some(format!("--zipf {exponent}")),
        _ => None,
    };
    match numbered {
        Some(option) if !targets.paths.iter().all(has_place) => {
            let help = "write {n} where the number belongs, as in http://127.0.0.1:8080/{n}.ts";
            Err(misused(option, "a URL has no place for the number", help))
        }
        None if targets.paths.iter().any(has_place) => {
            let url = args.urls.iter().find(|url| has_place(url));
            let url = harmless(url.map_or("", String::as_str));
            let help = "add --unique, or --zipf with --set, which choose the numbers";
            Err(misused(url, "nothing says which numbers replace {n}", help))
        }
        _ => Ok(()),
    }
}

/// Checks that the URL of a replayed log only names the server.
fn check_replay(args: &BenchArgs, targets: &Targets) -> anyhow::Result<()> {
    let mut urls = args.urls.iter().zip(&targets.paths);
    match urls.find(|(_, path)| args.replay.is_some() && *path != "/") {
        None => Ok(()),
        Some((url, _)) => {
            let scheme = if targets.is_tls { "https" } else { "http" };
            let help = format!("write {scheme}://{}/", targets.authority);
            let title = "--replay requests the paths of the log, and none of a URL";
            Err(misused(harmless(url), title, harmless(&help)))
        }
    }
}

/// Checks the options of a rising rate.
fn check_rising(args: &BenchArgs) -> anyhow::Result<()> {
    let Some(to) = args.rising_to else {
        return Ok(());
    };
    if let Some(rate) = args.rate.filter(|rate| to <= *rate) {
        let help = format!("write a number above that of --rate, {rate}");
        return Err(misused(
            format!("--rising-to {to}"),
            "the rate does not rise",
            help,
        ));
    }
    if args.requests.is_some() {
        let help = "write --duration, the time in which the rate rises, in place of --requests";
        return Err(misused("--rising-to", "a rising rate has a duration", help));
    }
    Ok(())
}

/// Returns the number of streams on each connection of HTTP/2.
fn streams(args: &BenchArgs) -> anyhow::Result<Option<usize>> {
    if !args.http2 {
        return Ok(None);
    }
    let usual = if args.close { 1 } else { USUAL_STREAMS };
    let streams = args.streams.unwrap_or(usual);
    let option = format!("--streams {streams}");
    if args.close && streams > 1 {
        let help = "leave --close or --streams out";
        return Err(misused(
            option,
            "a connection with --close has one request",
            help,
        ));
    }
    let all = args.connections as usize * streams as usize;
    if all > STREAMS_MAX {
        let help = format!("use at most {STREAMS_MAX} streams on all connections together");
        return Err(misused(
            option,
            "more than the load generator can hold",
            help,
        ));
    }
    let is_reserved = |name: &str| CONNECTION_HEADERS.contains(&name.to_ascii_lowercase().as_str());
    if let Some((name, _)) = args.header.iter().find(|(name, _)| is_reserved(name)) {
        let help = "leave the header or --http2 out";
        let option = format!("--header {name}");
        return Err(misused(option, "HTTP/2 does not have this header", help));
    }
    Ok(Some(streams as usize))
}

fn tls_of(args: &BenchArgs, targets: &Targets) -> LoadTls {
    let authority = match (args.insecure, &args.ca) {
        (true, _) => Path::new("").to_owned(),
        (false, Some(file)) => file.clone(),
        (false, None) => tls::system_file(),
    };
    LoadTls {
        authority,
        name: targets.host.clone(),
        group: None,
        resumed: false,
    }
}

/// Checks that the file of authorities has certificates.
fn check_tls(args: &BenchArgs, tls: &LoadTls) -> anyhow::Result<()> {
    let Err(error) = tls.check() else {
        return Ok(());
    };
    let file = harmless(&tls.authority.display().to_string());
    let error = harmless(&format!("{:#}", error.root_cause()));
    Err(match &args.ca {
        Some(_) => misused(
            format!("--ca {file}"),
            format!("this file has no usable certificate: {error}"),
            "name a file with the certificates of authorities in PEM (-----BEGIN CERTIFICATE-----), or with one in DER",
        ),
        None => misused(
            harmless(&args.urls[0]),
            format!("the authorities in {file} can't be used: {error}"),
            "--ca or SSL_CERT_FILE names a file of authorities in PEM; --insecure accepts any certificate",
        ),
    })
}

/// Returns the choice of requests, and the log that it repeats.
fn choice(args: &BenchArgs) -> anyhow::Result<(Choice, Option<Log>)> {
    if let Some(file) = &args.replay {
        let mut log = replay(file, args.speed)?;
        let requests = std::mem::take(&mut log.requests);
        return Ok((Choice::Replay(requests.into()), Some(log)));
    }
    let choice = match (args.range, args.zipf, args.set) {
        (Some(size), ..) if args.seek => Choice::Seeks { size },
        (Some(size), ..) => Choice::Ranges { size },
        (None, Some(exponent), Some(objects)) => Choice::Zipf { objects, exponent },
        _ => Choice::InTurn,
    };
    Ok((choice, None))
}

/// Reads a log. `-` is standard input.
fn replay(file: &Path, speed: f64) -> anyhow::Result<Log> {
    let option = harmless(&format!("--replay {}", file.display()));
    let help = "name a log in the combined format, or with Sluice's JSON lines";
    let from: io::Result<Box<dyn BufRead>> = match file.as_os_str() == "-" {
        true => Ok(Box::new(io::stdin().lock())),
        false => disk::open_or_pipe(file).map(|file| Box::new(file) as Box<dyn BufRead>),
    };
    let log = from.and_then(|from| Log::read(from, speed));
    let log = log.map_err(|error| {
        let title = format!("the log can't be read: {error}");
        misused(option.as_str(), title, help)
    })?;
    if !log.requests.is_empty() {
        return Ok(log);
    }
    let why = match log.describe() {
        empty if empty.is_empty() => "the log is empty".to_owned(),
        left_out => format!("no line can be repeated; {left_out}"),
    };
    Err(misused(option, why, help))
}
