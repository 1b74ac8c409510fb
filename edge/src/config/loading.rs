//! Loads a configuration: reads the file, checks it, and makes the plan.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::account::Purpose;
use super::checks::Checks;
use super::plan::{ADMIN, Plan};
use super::planner::{self, Examine, ReadPage};
use super::report::{Problem, Report};
use super::startup;
use super::syntax;
use crate::acme;
use crate::sys::ListenAddress;
use crate::sys::disk;
use crate::sys::disk::path_info;

/// Longest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A plan, and the warnings about its configuration.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The plan of the configuration.
    pub plan: Plan,
    /// The warnings. Contains no errors.
    pub warnings: Report,
}

/// Whether this path means standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads and checks a configuration file. The path `-` means standard input.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn load(path: &Path, purpose: Purpose) -> Result<Loaded, Report> {
    let (name, text) = read(path)?;
    parse_here(&name, &text, purpose)
}

/// Returns the name and the text of a configuration file.
fn read(path: &Path) -> Result<(String, String), Report> {
    let (name, text) = match is_standard_input(path) {
        true => (
            "standard input".to_owned(),
            disk::read_input(FILE_BYTES_MAX),
        ),
        false => {
            let text = disk::read_text_or_pipe(path, FILE_BYTES_MAX);
            (path.display().to_string(), text)
        }
    };
    match text {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(Report {
            problems: vec![Problem::error(format!(
                "can't read the configuration: {error}"
            ))],
            ..Report::new(name, String::new())
        }),
    }
}

/// The place of the admin API of a running Sluice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlace {
    /// The address on which it listens.
    pub address: ListenAddress,
    /// The files of its certificates, if it has TLS.
    pub certificates: Option<Vec<PathBuf>>,
    /// The files with tokens, those of operators first.
    pub tokens: Vec<PathBuf>,
}

/// Returns the place of the admin API that a configuration file sets, or the default; `None` if the file
/// switches the admin API off. Mistakes elsewhere in the file are ignored, because a running Sluice
/// may have read an earlier version of the file.
///
/// # Errors
///
/// The file can't be read, or its admin address is not an address.
pub fn admin_place(path: &Path) -> Result<Option<AdminPlace>, Report> {
    let (name, text) = read(path)?;
    let (mut tree, _) = DeTable::parse_recoverable(&text);
    syntax::expand_here(tree.get_mut());
    let admin = tree.get_ref().get("admin").map(Spanned::get_ref);
    let typed = admin.and_then(|admin| admin.get("address"));
    let address = match typed.map(Spanned::get_ref) {
        None => planner::parse_listen_address(ADMIN),
        Some(DeValue::Boolean(false)) => return Ok(None),
        Some(value) => value.as_str().and_then(planner::parse_listen_address),
    };
    let Some(address) = address else {
        let mut problem = Problem::error("`address` is not an address");
        if let Some(typed) = typed {
            problem = problem.at(typed.span());
        }
        return Err(Report {
            problems: vec![problem],
            ..Report::new(name, text.clone())
        });
    };
    let tls = admin.and_then(|admin| admin.get("tls"));
    let tls = tls.filter(|tls| tls.get_ref().is_table());
    Ok(Some(AdminPlace {
        address,
        certificates: tls.map(|tls| paths(tls.get_ref().get("certificate"))),
        tokens: ["token", "operators", "readers"]
            .into_iter()
            .filter_map(|key| admin?.get(key))
            .flat_map(|typed| paths(typed.get_ref().get("file")))
            .collect(),
    }))
}

/// Returns the paths in a value, which is a string or a list of strings.
fn paths(typed: Option<&Spanned<DeValue<'_>>>) -> Vec<PathBuf> {
    let value = typed.map(Spanned::get_ref);
    let one = value.and_then(DeValue::as_str).into_iter();
    let many = value.and_then(DeValue::as_array).into_iter().flatten();
    let many = many.filter_map(|entry| entry.get_ref().as_str());
    one.chain(many).map(PathBuf::from).collect()
}

/// The place of the certificates and keys of a Sluice with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePlace {
    /// Folder of accounts, certificates and keys.
    pub folder: PathBuf,
    /// The user to whom the folder belongs, with or without a group, as in `sluice:www-data`. `None`: the one who starts
    /// Sluice.
    pub user: Option<String>,
}

/// Returns the place of certificates and keys that a configuration file sets, or the default. Mistakes elsewhere in the
/// file are ignored, as by `admin_place`.
///
/// # Errors
///
/// The file can't be read.
pub fn state_place(path: &Path) -> Result<StatePlace, Report> {
    let (_, text) = read(path)?;
    let (mut tree, _) = DeTable::parse_recoverable(&text);
    syntax::expand_here(tree.get_mut());
    let value = |section: &str| tree.get_ref().get(section).map(Spanned::get_ref);
    let acme = value("tls").and_then(|tls| tls.get("acme"));
    let state = acme.and_then(|acme| acme.get_ref().get("state"));
    let state = state.and_then(|typed| typed.get_ref().as_str());
    let user = value("server").and_then(|server| server.get("user"));
    let user = user.and_then(|typed| typed.get_ref().as_str());
    Ok(StatePlace {
        folder: state.map_or_else(|| acme::state_folder().to_owned(), PathBuf::from),
        user: user.map(str::to_owned),
    })
}

/// Checks the text of a configuration, without examining the files that it names. `name` is the
/// text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
#[cfg(test)]
pub fn parse(name: &str, text: &str) -> Result<Loaded, Report> {
    examine(name, text, &|_| None, &|_| None, Purpose::Reload)
}

/// Checks the text of a configuration, and examines the files that it names, as far as `purpose`
/// demands. `name` is the text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn parse_here(name: &str, text: &str, purpose: Purpose) -> Result<Loaded, Report> {
    let read = |path: &Path| Some(disk::read_text(path, planner::PAGE_BYTES_MAX));
    let examine_path = |path: &Path| path_info::look(path).ok();
    examine(name, text, &examine_path, &read, purpose)
}

/// Checks the text of a configuration. `examine_path` and `read` examine the volumes, error pages and key
/// files that the text names; `name` is the text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn examine(
    name: &str,
    text: &str,
    examine_path: Examine<'_>,
    read: ReadPage<'_>,
    purpose: Purpose,
) -> Result<Loaded, Report> {
    let mut report = Report::new(name.to_owned(), text.to_owned());
    let file = match syntax::read(text) {
        Ok(file) => file,
        Err(problems) => {
            report.problems = problems;
            syntax::as_written(text, &mut report.problems);
            return Err(report);
        }
    };
    let (plan, problems) = planner::plan(&file, examine_path, read);
    report.problems = problems;
    if !report.is_fatal() && purpose != Purpose::Reload {
        let mut checks = Checks::default();
        startup::check(name, &file, &plan, purpose, &mut checks);
        report.add(checks.problems);
    }
    syntax::as_written(text, &mut report.problems);
    match report.is_fatal() {
        true => Err(report),
        false => Ok(Loaded {
            plan,
            warnings: report,
        }),
    }
}
