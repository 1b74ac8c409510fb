//! `sluice serve`: runs Sluice until a signal ends it.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;

use super::output::{announce, log_messages, warn};
use super::source;
use crate::config::{self, Loaded};
use crate::sys::memory;
use crate::wiring;

const USAGE: &str = "sluice serve [--config <FILE>]
       sluice serve --origin <URL> [OPTIONS]
       sluice serve --files <FOLDER> [OPTIONS]";

const SIGNALS: &str = "Signals:
  SIGHUP                    Read the configuration file again
  SIGUSR1                   Reopen the log files, as after renaming them
  SIGTERM, SIGQUIT, SIGINT  Finish running requests, then end; a second signal ends at once";

#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = SIGNALS)]
pub struct ServeArgs {
    /// Configuration file, or - for standard input; can't be combined with other options [default:
    /// SLUICE_CONFIG, or ./sluice.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Origin server, as in http://127.0.0.1:9000; may be given several times
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,
    /// Folder whose files are served, in place of an origin
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["origin", "volume", "placement", "fill", "slice"])]
    files: Option<String>,
    /// Address to listen on for clients [default: 0.0.0.0:8080]; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Admin address, for `sluice status`, `inspect`, `reload` and `purge`, or "false" for none [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Size of the cache in memory [default: 256MiB]; with --files, memory for small files [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Cache on disk: a file or block device and its size, as in /mnt/disk1/sluice.vol:5GiB; may be given
    /// several times
    #[arg(long, value_name = "PATH:SIZE")]
    volume: Vec<String>,
    /// How objects are distributed over several volumes: hash, stripe or mirror [default: hash]
    #[arg(long, value_name = "P")]
    placement: Option<String>,
    /// How missing bytes are fetched: whole, lock, slice or auto [default: auto]
    #[arg(long, value_name = "MODE")]
    fill: Option<String>,
    /// Size of the blocks in which parts of a file are fetched, from 64KiB to 16MiB [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    slice: Option<String>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N")]
    workers: Option<u64>,
    /// Path of the access log, or "-" for standard output [default: none]
    #[arg(long, value_name = "PATH")]
    access_log: Option<String>,
    /// Name for which a certificate is obtained from Let's Encrypt and renewed, as in cdn.example.com; Sluice then listens
    /// on ports 80 and 443 in place of --listen, as other ports need a file; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "listen")]
    tls: Vec<String>,
    /// Directory of the authority that issues certificates (ACME) [default: Let's Encrypt]
    #[arg(long, value_name = "URL", requires = "tls")]
    acme_directory: Option<String>,
    /// File of the authorities (PEM) by which the directory's own certificate is verified [default: the system's]
    #[arg(long, value_name = "FILE", requires = "tls")]
    acme_ca: Option<String>,
    /// Folder of the certificates and their keys [default: /var/lib/sluice/certificates, or for other users than root
    /// ~/.local/state/sluice/certificates]
    #[arg(long, value_name = "FOLDER", requires = "tls")]
    acme_state: Option<String>,
}

pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let signals = wiring::Signals::take()?;
    // Reading the configuration takes much more memory than is kept of it.
    let (running, signals) = memory::for_a_short_time(|| begin(args, signals))?;
    running.wait_for_signals(signals)
}

fn begin(
    args: &ServeArgs,
    signals: wiring::Signals,
) -> anyhow::Result<(wiring::Running, wiring::AllSignals)> {
    let (Loaded { plan, warnings }, source) = load(args)?;
    warn(&warnings);
    log_messages(&plan.log)?;
    let log = plan.log.clone();
    let running = wiring::start(plan, source)?;
    let signals = signals.catch_all()?;
    announce(&running, &log)?;
    Ok((running, signals))
}

fn load(args: &ServeArgs) -> anyhow::Result<(Loaded, Option<wiring::Source>)> {
    let by_options = !args.origin.is_empty() || args.files.is_some();
    if args.config.is_none() && by_options {
        return Ok((options(args).load()?, None));
    }
    let Some(path) = source::config_file(args.config.as_deref()) else {
        let text = format!(
            "{}\nName a file with --config, or an origin with --origin, or a folder with --files.\n\n\
             Usage: {USAGE}\n",
            source::NO_CONFIG
        );
        clap::Error::raw(ErrorKind::MissingRequiredArgument, text).exit();
    };
    if let Some((option, key)) = beside_a_file(args) {
        let file = match &args.config {
            Some(_) => "--config".to_owned(),
            None => format!("the configuration file {}", path.display()),
        };
        let text = format!("{option} can't be used with {file}: put it into the file, as {key}\n");
        clap::Error::raw(ErrorKind::ArgumentConflict, text).exit();
    }
    let loaded = config::load(&path, config::Purpose::Start)
        .map_err(|report| source::with_variable(report, args.config.as_deref(), &path))?;
    if config::is_standard_input(&path) {
        return Ok((loaded, None));
    }
    let file = path.clone();
    let read = Box::new(move || match config::load(&path, config::Purpose::Reload) {
        Ok(loaded) => Ok(loaded),
        Err(report) => Err(report.render(false)),
    });
    let text = loaded.warnings.text.clone();
    let source = wiring::Source { file, text, read };
    Ok((loaded, Some(source)))
}

/// Returns the first option that must be a key of the configuration file instead, and that key.
/// None of these options may be combined with a file.
fn beside_a_file(args: &ServeArgs) -> Option<(&'static str, &'static str)> {
    let options = [
        (
            !args.origin.is_empty(),
            "--origin",
            "`servers` in [upstream.NAME]",
        ),
        (args.files.is_some(), "--files", "`files` in [[site.route]]"),
        (
            !args.listen.is_empty(),
            "--listen",
            "`address` in [[listener]]",
        ),
        (args.admin.is_some(), "--admin", "`address` in [admin]"),
        (
            args.memory.is_some(),
            "--memory",
            "`memory` in [cache.NAME]",
        ),
        (
            !args.volume.is_empty(),
            "--volume",
            "`path` and `size` in [volume.NAME]",
        ),
        (
            args.placement.is_some(),
            "--placement",
            "`placement` in [cache.NAME]",
        ),
        (args.fill.is_some(), "--fill", "`fill` in [cache.NAME]"),
        (args.slice.is_some(), "--slice", "`slice` in [cache.NAME]"),
        (args.workers.is_some(), "--workers", "`workers` in [server]"),
        (
            args.access_log.is_some(),
            "--access-log",
            "`access` in [log]",
        ),
        (
            !args.tls.is_empty(),
            "--tls",
            "`hosts` and `tls = \"auto\"` in [[site]]",
        ),
    ];
    let mut given = options.into_iter().filter(|(given, ..)| *given);
    given.next().map(|(_, option, key)| (option, key))
}

fn options(args: &ServeArgs) -> config::Options {
    config::Options {
        origins: args.origin.clone(),
        files: args.files.clone(),
        listen: args.listen.clone(),
        admin: args.admin.clone(),
        memory: args.memory.clone(),
        volumes: args.volume.clone(),
        placement: args.placement.clone(),
        fill: args.fill.clone(),
        slice: args.slice.clone(),
        workers: args.workers,
        access_log: args.access_log.clone(),
        tls: args.tls.clone(),
        acme_directory: args.acme_directory.clone(),
        acme_ca: args.acme_ca.clone(),
        acme_state: args.acme_state.clone(),
    }
}
