//! The configuration: turns the text of a file into a checked plan.
//!
//! The modules are layers. Each imports only modules above it in this list:
//!
//! - `report`: problems, and how they are shown; `suggestions`: the most similar known word
//! - `value`: the types of single values, such as sizes, times and lists
//! - `file`: the sections of the file, where each value has its position; `syntax`: reads them from
//!   the text, and reports unknown keys and values of the wrong type
//! - `plan`: the result, ready to run; `reach`: the files that a plan needs; `checks`: collects
//!   problems
//! - `lints`: warnings about configurations that are hardly intended, or dangerous
//! - `planner`: makes the plan from the file, with bounds and defaults
//! - `describe`: a plan in sentences; `changes`: the differences between two plans;
//!   `restart`: the keys of differences that need a restart
//! - `account`: the user with whose rights files are checked
//! - `startup`: checks of the machine on which Sluice starts; `certificates`: checks of the files of TLS;
//!   `token_files`: checks of files with tokens; `obtained`: checks of what certificates from authorities need;
//!   `unusable`: the lines of parts that a start or reload could not use
//! - `loading`: reads, checks and plans a file; `options`: plans the options of the command line

mod account;
mod certificates;
mod changes;
mod checks;
mod describe;
mod file;
mod lints;
mod loading;
mod obtained;
mod options;
mod plan;
mod planner;
mod reach;
mod report;
mod restart;
mod served_folders;
mod startup;
mod suggestions;
mod syntax;
#[cfg(test)]
mod tests;
mod token_files;
mod unusable;
mod value;

pub use account::Purpose;
pub use certificates::{expiry, expiry_of_file};
pub use changes::changes;
pub use describe::{describe, describe_edits, describe_fill, describe_rules};
#[cfg(test)]
pub use loading::parse;
pub use loading::{
    Loaded, StatePlace, admin_place, is_standard_input, load, parse_here, state_place,
};
pub use obtained::{DirectoryFinding, Findings, HostFinding, Obtained, obtained, report_findings};
pub use options::Options;
pub use plan::{
    ADMIN, HistoryPlan, ListenerPlan, LogOptions, Plan, Proxied, RouteHandler, RoutePlan, SitePlan,
    goes_on,
};
pub use planner::parse_address;
pub use reach::{dns_program, folder_of, looks_up_names, reach, tls_files};
pub use report::{Report, without_error_numbers};
pub use restart::restart;
pub use startup::PRIVILEGE;
pub use unusable::{Part, Unusable};
pub use value::{Level, Sandbox, show_count, show_size, show_time};

#[cfg(test)]
use loading::examine;
