//! The command line of `sluice`: its subcommands, each in a file of its own, and helpers that they share.

mod admin;
mod admin_exchange;
mod admin_url;
mod bench;
mod certs;
mod check;
mod completions;
mod demo;
mod dns_program;
mod explain;
mod generated_requests;
mod help;
mod hit_ratio;
mod inspect;
mod lab;
mod man;
mod nothing;
mod output;
mod purge;
mod reload;
mod serve;
mod servers;
mod sign;
mod signals;
mod source;
mod status;
mod system;
#[cfg(feature = "top")]
mod top;
mod trust;
mod what_if;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::acme::dns::COMMAND as DNS_PROGRAM;
use crate::config::{Report, without_error_numbers};
use admin::AdminArgs;
use nothing::Nothing;
use output::{choose_colours, in_colour};

/// Help text about the environment and the exit statuses of all commands. clap itself ends with 2.
const AFTER_HELP: &str = "Environment:
  SLUICE_CONFIG       Configuration file [default: ./sluice.toml]
  SLUICE_ADMIN        Admin address of the running Sluice
  SLUICE_ADMIN_TOKEN  Token for the admin address, if that has tokens
  SSL_CERT_FILE       Authorities that are trusted [default: those of the system]
  NO_COLOR            No colours

Exit status:
  0  Success
  1  Error
  2  Unknown, missing or invalid arguments
  3  `sluice inspect`, `sluice servers` or `sluice certs` found nothing";

/// A caching reverse proxy that serves any byte of a file as soon as it has arrived from the origin
#[derive(Debug, Parser)]
#[command(name = "sluice", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// When to colour messages, help and the view of `top`; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send requests to any HTTP server, and measure rates and latencies
    Bench(bench::Bench),
    /// Run Sluice with a configuration file, or with --origin or --files and other options
    Serve(serve::ServeArgs),
    /// Show the certificates of a running Sluice, or renew or revoke one from an authority
    Certs(certs::CertsArgs),
    /// Check a configuration file or, with --system, this machine's kernel settings
    Check(check::CheckArgs),
    /// Run a slow origin and Sluice in front of it, with three requests to try
    Demo(demo::DemoArgs),
    /// Run experiments that measure and verify Sluice, nginx and Varnish on this machine
    Lab(lab::LabArgs),
    /// Remove stored responses from a running Sluice, or mark them stale
    Purge(purge::PurgeArgs),
    /// Make a running Sluice read its configuration file again
    Reload(AdminArgs),
    /// Show the servers of a running Sluice's upstreams, or take one out of use and back
    Servers(servers::ServersArgs),
    /// Sign a URL for a route that requires signed URLs
    Sign(sign::SignArgs),
    /// Say how to trust the local authority, which signs certificates for development
    Trust(trust::TrustArgs),
    /// Show the counters, caches and upstreams of a running Sluice
    Status(status::StatusArgs),
    /// Show the traffic, caches, volumes and servers of a running Sluice live in the terminal
    #[cfg(feature = "top")]
    Top(top::TopArgs),
    /// Draw which bytes of a URL are stored, being fetched or missing, with recent decisions and their reasons
    Inspect(inspect::InspectArgs),
    /// Print completions of the command line for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page of a command, or write those of all commands
    Man(man::ManArgs),
    /// Run a program that sets DNS records, for the Sluice that has started this command
    #[command(hide = true, name = DNS_PROGRAM)]
    DnsProgram(dns_program::DnsProgramArgs),
}

/// Parses the command line, runs the command and returns the exit status of the process.
pub fn run() -> ExitCode {
    let cli = parse();
    choose_colours(cli.color);
    let done = match cli.command {
        Command::Bench(bench) => bench::run(bench),
        Command::Serve(args) => serve::run(&args),
        Command::Certs(args) => certs::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Servers(args) => servers::run(&args),
        Command::Sign(args) => sign::run(&args),
        Command::Trust(args) => trust::run(&args),
        Command::Status(args) => status::run(&args),
        #[cfg(feature = "top")]
        Command::Top(args) => top::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Completions(args) => completions::run(&args, program()),
        Command::Man(args) => man::run(&args, program()),
        Command::DnsProgram(args) => dns_program::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            exit_code(&error)
        }
    }
}

/// Returns the parser of the command line.
fn program() -> clap::Command {
    help::with_groups_and_examples(Cli::command())
}

/// Parses the command line. An invalid one ends the process, with advice for habits from other
/// programs.
fn parse() -> Cli {
    let mut program = program().color(colours_of_help());
    let parsed = program.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let parsed = parsed.map_err(|error| error.format(&mut program));
    parsed.unwrap_or_else(|mut error| {
        if let Some(tip) = tip(&error) {
            let tip = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tip);
        }
        error.exit()
    })
}

/// Finds `--color` in the arguments before they are parsed, for the help and for errors of the parser.
fn colours_of_help() -> ColorChoice {
    let words = std::env::args_os();
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let after = words.windows(2).filter(|pair| pair[0] == "--color");
    let after = after.map(|pair| pair[1].as_str());
    let joined = words
        .iter()
        .filter_map(|word| word.strip_prefix("--color="));
    after
        .chain(joined)
        .find_map(|word| word.parse().ok())
        .unwrap_or_default()
}

/// Returns advice on an unknown argument: a file after `serve`, or an option of nginx.
fn tip(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let command = std::env::args().nth(1)?;
    match (unknown.as_str(), command.as_str()) {
        ("-t" | "-T", first) if first == unknown => {
            Some("to check a configuration file, run `sluice check FILE`".to_owned())
        }
        ("-s", first) if first == unknown => {
            Some("to read the configuration again, run `sluice reload`".to_owned())
        }
        ("-c", first) if first == unknown => {
            Some("to run Sluice with this file, run `sluice serve -c FILE`".to_owned())
        }
        (file, "serve") if !file.starts_with('-') => Some(format!(
            "to run Sluice with this file, run `sluice serve -c {file}`"
        )),
        _ => None,
    }
}

/// Returns the exit status for an error: 3 if the command found nothing, 2 if options of the
/// command line are invalid, else 1.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let report = error.downcast_ref::<Report>();
    match error.is::<Nothing>() {
        true => ExitCode::from(3),
        false if report.is_some_and(Report::is_about_options) => ExitCode::from(2),
        false => ExitCode::FAILURE,
    }
}

/// Prints an error to standard error.
fn print_error(error: &anyhow::Error) {
    let text = match report(error) {
        Some(report) => report.render(in_colour()),
        None => format!("error: {}\n", without_error_numbers(&format!("{error:#}"))),
    };
    // Writing fails if standard error is closed. The exit status is then the only sign of the
    // error.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Returns the report of an error that has one, which shows positions and advice.
fn report(error: &anyhow::Error) -> Option<Report> {
    if let Some(report) = error.downcast_ref::<Report>() {
        return Some(report.clone());
    }
    let nothing = error.downcast_ref::<Nothing>()?;
    Some(nothing.report())
}
