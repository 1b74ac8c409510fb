//! The sections of the report, one for each experiment: the question, the method, our figures beside those of the
//! articles, and charts. A section is a function of the experiment's JSON. A value that is missing is "not measured".

mod budget;
mod byte_range;
mod charts;
mod figures;
mod generic;
mod hit_ratios;
mod keepalive;
pub(super) mod peers;
mod placement;
mod ramp;
mod slow_clients;
mod static_files;
mod storm;
mod wan;

use serde_json::Value;

use super::page::Table;

/// The part of the report about one experiment.
pub(super) struct Section {
    /// Name of the experiment.
    pub(super) name: &'static str,
    /// Heading.
    pub(super) title: &'static str,
    /// The question that the experiment answers.
    pub(super) question: &'static str,
    /// Explanation of what was measured, and how.
    pub(super) method: &'static str,
    /// The article's setup and result in short; empty if no article describes this experiment.
    pub(super) article: &'static str,
    /// Returns sentences with the most important figures, as HTML.
    pub(super) summary: fn(&Value) -> Vec<String>,
    /// Returns tables and charts as HTML.
    pub(super) body: fn(&Value) -> String,
    /// Returns the tables with the figures that are published (`docs/figures.md`). They are in the body, too.
    pub(super) tables: fn(&Value) -> Vec<Table>,
}

/// Returns the section of an experiment. An unknown experiment has a section with tables of all its numbers.
pub(super) fn of(name: &str) -> &'static Section {
    let known = SECTIONS.iter().find(|section| section.name == name);
    known.unwrap_or(&generic::OTHER)
}

const SECTIONS: [Section; 14] = [
    byte_range::SECTION,
    storm::SECTION,
    storm::CHANGING,
    budget::SECTION,
    figures::CACHING,
    figures::PURGE,
    placement::SECTION,
    keepalive::SECTION,
    static_files::SECTION,
    ramp::SECTION,
    slow_clients::SECTION,
    hit_ratios::HIT_RATIO,
    hit_ratios::WHAT_IF,
    wan::SECTION,
];

/// Returns the colour of a server: one for Sluice, one for nginx, one for the origin (and h2o, which is in other charts),
/// one for others.
fn colour(server: &str) -> &'static str {
    let begins = |name: &str| server.starts_with(name);
    match () {
        () if begins("Sluice") => "a",
        () if begins("nginx") => "b",
        () if begins("origin") || begins("h2o") => "e",
        () => "c",
    }
}

/// Begin of a value that a limit of the measurement has made too small, such as a saturated load generator.
const AT_LEAST: &str = "at least ";

/// Begin of a value that is too large for the same reason.
const AT_MOST: &str = "at most ";

/// Returns whether the name of a row is one of Sluice's.
fn is_sluice(name: &str) -> bool {
    name.starts_with("Sluice")
}
