//! Loads a configuration: reads the file, checks it, and makes the plan.

use std::path::Path;

use super::plan::Plan;
use super::planner::{self, Look, Read};
use super::report::{Problem, Report};
use super::{file, syntax};
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

/// Reads and checks a configuration file.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let name = path.display().to_string();
    match disk::read_text(path, FILE_BYTES_MAX) {
        Ok(text) => parse_here(&name, &text).and_then(with_keys),
        Err(error) => Err(Report {
            problems: vec![Problem::error(format!(
                "can't read the configuration: {error}"
            ))],
            name,
            text: String::new(),
        }),
    }
}

/// Checks that the key files of signed URLs can be read.
fn with_keys(mut loaded: Loaded) -> Result<Loaded, Report> {
    let routes = loaded.plan.sites.iter().flat_map(|site| &site.routes);
    let gates = routes.filter_map(|route| route.gate.as_deref());
    let mut problems: Vec<Problem> = gates
        .filter_map(|gate| crate::gate::keys(gate.signed.as_ref()?).err())
        .map(|error| Problem::error(error.to_string()))
        .collect();
    problems.dedup_by(|a, b| a.title == b.title);
    match problems.is_empty() {
        true => Ok(loaded),
        false => {
            loaded.warnings.problems = problems;
            Err(loaded.warnings)
        }
    }
}

/// Checks the text of a configuration, without examining the files that it names. `name` is the
/// text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
#[cfg(test)]
pub fn parse(name: &str, text: &str) -> Result<Loaded, Report> {
    examine(name, text, &|_| None, &|_| None)
}

/// Checks the text of a configuration, and examines the volumes and error pages that it names.
/// `name` is the text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn parse_here(name: &str, text: &str) -> Result<Loaded, Report> {
    let read = |path: &Path| Some(disk::read_text(path, planner::PAGE_BYTES_MAX));
    examine(name, text, &|path| path_info::look(path).ok(), &read)
}

/// Checks the text of a configuration. `look` and `read` examine the volumes and error pages that
/// the text names; `name` is the text's name in the report.
///
/// # Errors
///
/// A report with all problems, each with its line.
pub fn examine(name: &str, text: &str, look: Look<'_>, read: Read<'_>) -> Result<Loaded, Report> {
    let mut report = Report {
        name: name.to_owned(),
        text: text.to_owned(),
        problems: Vec::new(),
    };
    let file: file::File = match toml::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            report.problems.push(syntax::from_parser(&error));
            return Err(report);
        }
    };
    let (plan, problems) = planner::plan(&file, look, read);
    report.problems = problems;
    match report.is_fatal() {
        true => Err(report),
        false => Ok(Loaded {
            plan,
            warnings: report,
        }),
    }
}
