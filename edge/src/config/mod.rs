//! The configuration: turns the text of a file into a checked plan.
//!
//! The modules are layers. Each imports only modules above it in this list:
//!
//! - `report`: problems, and how they are shown; `suggestions`: the most similar known word
//! - `value`: the types of single values, such as sizes, times and lists
//! - `file`: the sections of the file, where each value has its position; `syntax`: errors of the
//!   TOML parser
//! - `plan`: the result, ready to run; `reach`: the files that a plan needs; `checks`: collects
//!   problems
//! - `lints`: warnings about configurations that are hardly intended, or dangerous
//! - `planner`: makes the plan from the file, with bounds and defaults
//! - `describe`: a plan in sentences; `changes`: the differences between two plans
//! - `loading`: reads, checks and plans a file; `options`: plans the options of the command line

mod changes;
mod checks;
mod describe;
mod file;
mod lints;
mod loading;
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

pub use changes::changes;
pub use describe::describe;
#[cfg(test)]
pub use loading::parse;
pub use loading::{Loaded, load};
pub use options::Options;
pub use plan::{
    ADMIN, LeadsTo, ListenerPlan, LogOptions, Plan, Proxied, RoutePlan, SitePlan, goes_on,
};
pub use reach::{folder_of, looks_up_names, reach};
pub use report::Report;
pub use value::{Level, Sandbox, show_size, show_time};

#[cfg(test)]
use loading::examine;
