//! The report of a run of all experiments: one HTML page that works offline and is a function of the run's record. Also
//! the comparison of two runs.

pub mod diff;
pub mod html;
pub mod machine;
mod markdown;
pub mod page;
pub mod published;
pub mod run;
mod sections;
pub mod svg;
#[cfg(test)]
mod tests;
pub mod values;

pub use run::{FORMAT, LeftOut, NOT_CHOSEN, Run, Setup, Step};
