//! `sluice check`: reports mistakes in a configuration file, and kernel settings that limit the number of connections, and
//! explains a request.

mod memory;
mod network;

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;

use super::explain::{self, RequestArgs};
use super::output::{failed, say, warn};
use super::source;
use super::system;
use crate::config::{self, show_count};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file, or - for standard input [default: SLUICE_CONFIG, or ./sluice.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Configuration file, like FILE
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Fail if there are warnings or, with --system, settings to change
    #[arg(long)]
    strict: bool,
    /// Ask no name server and no authority: certificates that are obtained are checked without the network
    #[arg(long)]
    offline: bool,
    /// Show what Sluice would do with a request for this URL, as far as that does not depend on what is stored
    #[arg(long, value_name = "URL")]
    explain: Option<String>,
    /// Header of the request to explain: "Accept-Language: de"; may be given several times
    #[arg(
        short = 'H',
        long = "header",
        value_name = "NAME: VALUE",
        requires = "explain"
    )]
    headers: Vec<String>,
    #[command(flatten)]
    request: RequestArgs,
    /// Print the explanation as JSON
    #[arg(long, requires = "explain")]
    json: bool,
    /// List kernel settings to change for many connections. With this option, a configuration file is
    /// checked only if one is named
    #[arg(long)]
    system: bool,
}

pub fn run(args: &CheckArgs) -> anyhow::Result<()> {
    let mut changes = 0;
    if args.system {
        changes = system::print(&system::ThisMachine)?;
    }
    let named = args.file.as_ref().or(args.config.as_ref());
    if args.system && named.is_none() {
        return settings(args, changes);
    }
    let Some(file) = source::config_file(named.map(PathBuf::as_path)) else {
        let text = format!(
            "{}\nName a file, as in `sluice check FILE`, or set SLUICE_CONFIG.\n",
            source::NO_CONFIG
        );
        clap::Error::raw(ErrorKind::MissingRequiredArgument, text).exit();
    };
    let mut loaded = config::load(&file, config::Purpose::Check)
        .map_err(|report| source::with_variable(report, named.map(PathBuf::as_path), &file))?;
    if !args.offline {
        network::check(&mut loaded)?;
    }
    warn(&loaded.warnings);
    let warnings = loaded.warnings.problems.len() as u64;
    if args.strict && warnings > 0 {
        return Err(failed(
            format!("{} in {}", show_count(warnings, "warning"), file.display()),
            "without --strict, warnings are no errors",
        ));
    }
    if let Some(url) = &args.explain {
        let question = args.request.question(url, &args.headers);
        return explain::print_plan(&loaded.plan, &question, args.json, false);
    }
    say(&config::describe(&loaded.plan))?;
    say(&format!("{}\n", memory::describe(&loaded.plan)))?;
    settings(args, changes)
}

/// With --strict, fails if there are settings of the kernel to change.
fn settings(args: &CheckArgs, changes: u64) -> anyhow::Result<()> {
    match args.strict && changes > 0 {
        true => Err(failed(
            format!("{} to change", show_count(changes, "setting")),
            "without --strict, these are no errors",
        )),
        false => Ok(()),
    }
}
