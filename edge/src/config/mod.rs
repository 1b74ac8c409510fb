//! The configuration: `file` (what was typed) becomes a `Plan` (what will happen).

mod caches;
mod changes;
mod checks;
mod compress;
mod connections;
mod describe;
mod doubts;
mod edit;
mod file;
mod files;
mod gate;
mod kept;
mod logs;
mod names;
mod options;
mod plan;
mod privileges;
mod report;
mod respond;
mod rules;
mod sites;
#[cfg(test)]
mod tests;
mod unknown;
mod upstreams;
mod value;
mod volumes;
mod words;

use std::path::Path;

pub use changes::{Changes, changes};
pub use connections::ListenerPlan;
pub use describe::describe;
pub use options::Options;
pub use plan::{ADMIN, LISTEN, LogOptions, Plan};
pub use privileges::{Privileges, User, folder_of, looks_up_names, reach};
pub use report::{Problem, Report};
pub use sites::{LeadsTo, Proxied, RoutePlan, SitePlan};
pub use value::{Level, Sandbox, show_size, show_time};
pub use volumes::goes_on;

use crate::sys::disk;
use crate::sys::disk::path_info;
use edit::Read;
use volumes::Look;

/// Longest configuration file, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A plan, and what is doubtful about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What will happen.
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

/// Looks whether the keys can be read that are in files.
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

/// Checks the text of a configuration. `name` is what the report calls it. What it says of files is
/// taken for true.
///
/// # Errors
/// A report with everything that is wrong, each with its line.
pub fn parse(name: &str, text: &str) -> Result<Loaded, Report> {
    examine(name, text, &|_| None, &|_| None)
}

/// The same, and looks what is at the paths of volumes and of error pages.
fn parse_here(name: &str, text: &str) -> Result<Loaded, Report> {
    let read = |path: &Path| Some(disk::read_text(path, edit::PAGE_BYTES_MAX));
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
            report.problems.push(unknown::from_parser(&error));
            return Err(report);
        }
    };
    let (plan, problems) = plan::build(&file, look, read);
    report.problems = problems;
    match report.is_fatal() {
        true => Err(report),
        false => Ok(Loaded {
            plan,
            warnings: report,
        }),
    }
}
