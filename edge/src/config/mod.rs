//! The configuration: from the text of a file to a checked plan.
//!
//! The modules are layers; each imports only those above it in this list:
//!
//! - `report`: problems, and how they are shown; `suggestions`: the most similar known word
//! - `value`: the types of single values, as sizes, times and lists
//! - `file`: the sections of the file, each value with its place; `syntax`: errors of the TOML parser
//! - `plan`: the result, ready to run; `reach`: the files that it needs; `checks`: collects problems
//! - `lints`: configurations that are hardly meant, or dangerous
//! - `planner`: makes the plan from the file, with bounds and defaults
//! - `describe`: a plan in sentences; `changes`: the differences between two plans
//! - `options`: the command line in place of a file

mod changes;
mod checks;
mod describe;
mod file;
mod lints;
mod options;
mod plan;
mod planner;
mod reach;
mod report;
mod suggestions;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

use std::path::Path;

pub use changes::{Changes, changes};
pub use describe::describe;
pub use options::Options;
pub use plan::{
    ADMIN, LISTEN, LeadsTo, ListenerPlan, LogOptions, Plan, Privileges, Proxied, RoutePlan,
    SitePlan, User, goes_on,
};
pub use reach::{folder_of, looks_up_names, reach};
pub use report::{Problem, Report};
pub use value::{Level, Sandbox, show_size, show_time};

use crate::sys::disk;
use crate::sys::disk::path_info;
use planner::{Look, Read};

/// Longest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A plan, and the warnings about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Warnings only.
    pub warnings: Report,
}

/// Reads and checks a configuration file.
///
/// # Errors
/// A report with everything that is wrong, each with its line.
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

/// Checks the text of a configuration, without looking at the files that it names. `name` is the
/// text's name in the report.
///
/// # Errors
/// A report with everything that is wrong, each with its line.
pub fn parse(name: &str, text: &str) -> Result<Loaded, Report> {
    examine(name, text, &|_| None, &|_| None)
}

/// The same, with a look at the volumes and error pages that it names.
fn parse_here(name: &str, text: &str) -> Result<Loaded, Report> {
    let read = |path: &Path| Some(disk::read_text(path, planner::PAGE_BYTES_MAX));
    examine(name, text, &|path| path_info::look(path).ok(), &read)
}

fn examine(name: &str, text: &str, look: Look<'_>, read: Read<'_>) -> Result<Loaded, Report> {
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
