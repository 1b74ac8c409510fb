//! The comparison of two runs, of two reports of one experiment, or of two results of `sluice bench`: the figures that
//! differ, and whether they differ by more than the noise (see [`within_noise`]). If both runs have one round of a figure,
//! its noise is unknown.
//!
//! All numbers of both reports are compared, by their place. If a rival was measured in the same run, the ratio of
//! Sluice's figure to the rival's is compared, too. If the figures of all rivals differ in the same direction by more than
//! the noise, and the ratios to them within it, the machine has changed for all of them: so Sluice's figure differs within
//! the noise.

mod figures;
mod rivals;

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::run::{Run, Step};
use super::values::{digits, printable, text};
use crate::bench::plain;
use crate::spread::{Spread, noise_rule, within_noise};
use figures::{Figures, Path};

/// Longest name of an experiment in characters.
const NAME_MAX: usize = 60;
/// Longest description of a machine's property in characters.
const PROPERTY_MAX: usize = 200;
/// Most figures in the text that only one report has; the JSON has all.
const MISSING_MAX: usize = 40;

/// A figure of both runs that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the experiment; empty if reports of one experiment are compared.
    pub experiment: String,
    /// Name of the figure.
    pub figure: String,
    /// Value in the first run; the median, if there are several rounds.
    pub before: f64,
    /// Value in the second run.
    pub after: f64,
    /// Second value divided by the first; `None` if the first is zero.
    pub ratio: Option<f64>,
    /// Whether the difference is within the noise; `None` if the noise is unknown.
    pub within_noise: Option<bool>,
}

/// A figure that only one of both reports has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Missing {
    /// Name of the experiment; empty if reports of one experiment are compared.
    pub experiment: String,
    /// Name of the figure.
    pub figure: String,
    /// Value in the first run; `None` if the figure is missing there.
    pub before: Option<f64>,
    /// Value in the second run; `None` if the figure is missing there.
    pub after: Option<f64>,
}

/// The comparison of two runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Figures that differ, in the order of the reports.
    pub differences: Vec<Difference>,
    /// Number of figures with the same value in both.
    pub equal: usize,
    /// Figures that only one of both has.
    pub missing: Vec<Missing>,
    /// Remarks: experiments that only one of both has, and different machines, commands and settings.
    pub notes: Vec<String>,
}

/// Compares two records of runs, two reports of one experiment, or two results of a load.
///
/// Errors: both are not of the same kind, they are reports of different experiments, or a record can't be read.
pub fn compare(before: &Value, after: &Value) -> anyhow::Result<Report> {
    let mut report = Report::default();
    match (run_of(before)?, run_of(after)?) {
        (Some(before), Some(after)) => report.runs(&before, &after),
        (None, None) => {
            let names = [before, after].map(step_name);
            let (before, after) = (content(before), content(after));
            let is_load = figures::is_load(before);
            anyhow::ensure!(
                is_load == figures::is_load(after),
                "one file is a result of sluice bench, the other one is not"
            );
            same_experiment(names, before, after)?;
            report.data("", before, after);
        }
        _ => anyhow::bail!("one file is the record of a run (run.json), the other one is not"),
    }
    Ok(report)
}

fn run_of(value: &Value) -> anyhow::Result<Option<Run>> {
    value.get("steps").map(|_| Run::read(value)).transpose()
}

/// Returns the name of the experiment in the file of one step.
fn step_name(value: &Value) -> Option<&str> {
    value.get("command")?;
    text(value, "name")
}

/// Checks that two reports are of one experiment: by the names in their files, and otherwise by their figures, since the
/// output of an experiment does not name it.
fn same_experiment(names: [Option<&str>; 2], before: &Value, after: &Value) -> anyhow::Result<()> {
    if let [Some(one), Some(other)] = names {
        let (one, other) = (safe(one), safe(other));
        anyhow::ensure!(
            one == other,
            "these are different experiments: {one} and {other}"
        );
        return Ok(());
    }
    let (before, after) = (Figures::of(before), Figures::of(after));
    let is_any_empty = before.all.is_empty() || after.all.is_empty();
    let has_common = before.all.iter().any(|(path, _)| after.get(path).is_some());
    anyhow::ensure!(
        is_any_empty || has_common,
        "these are different experiments: no figure is in both files"
    );
    Ok(())
}

/// Returns the report within the file of one step, or the value itself.
fn content(value: &Value) -> &Value {
    let is_step = value.get("command").is_some();
    value.get("data").filter(|_| is_step).unwrap_or(value)
}

/// Returns the name of an experiment in a form that can't control a terminal.
fn safe(name: &str) -> String {
    printable(name, NAME_MAX)
}

impl Report {
    fn runs(&mut self, before: &Run, after: &Run) {
        let mut note = |is: bool, text: &str| self.notes.extend(is.then(|| text.to_owned()));
        note(
            before.quick || after.quick,
            "a quick run has more noise than the ranges show",
        );
        note(
            before.profile != after.profile,
            "the build profiles differ (debug and release)",
        );
        let differences = before.machine.differences(&after.machine);
        if !differences.is_empty() {
            let differences: Vec<String> = differences
                .iter()
                .map(|one| printable(one, PROPERTY_MAX))
                .collect();
            self.notes
                .push(format!("the machines differ: {}", differences.join("; ")));
        }
        let new: HashMap<&str, &Step> = by_name(after);
        let old: HashMap<&str, &Step> = by_name(before);
        for step in &before.steps {
            match new.get(&*step.name) {
                Some(new) => self.step(step, new),
                None => self
                    .notes
                    .push(format!("{}: only in the first run", safe(&step.name))),
            }
        }
        for step in &after.steps {
            if !old.contains_key(&*step.name) {
                self.notes
                    .push(format!("{}: only in the second run", safe(&step.name)));
            }
        }
    }

    fn step(&mut self, old: &Step, new: &Step) {
        let name = &safe(&old.name);
        if old.command != new.command {
            self.notes.push(format!(
                "{name}: the commands differ, so the figures may not be comparable"
            ));
        }
        match (&old.data, &new.data) {
            (Some(before), Some(after)) => self.data(name, before, after),
            (None, None) => self.notes.push(format!("{name}: no run has a result")),
            (None, _) => self
                .notes
                .push(format!("{name}: the first run has no result")),
            (_, None) => self
                .notes
                .push(format!("{name}: the second run has no result")),
        }
    }

    /// Compares two reports of one experiment.
    fn data(&mut self, experiment: &str, before: &Value, after: &Value) {
        self.settings(experiment, before, after);
        let (before, after) = (Figures::of(before), Figures::of(after));
        let mut ratios = self.ratios(experiment, &before, &after);
        for (path, old) in &before.all {
            let Some(new) = after.get(path) else {
                self.missing
                    .push(missing(experiment, path, Some(old), None));
                continue;
            };
            let (of_rivals, has_machine_changed) = ratios.remove(path).unwrap_or_default();
            if old.median == new.median {
                self.equal += 1;
            } else {
                let is_noise = verdict(old, new).map(|is_noise| is_noise || has_machine_changed);
                self.differences
                    .push(difference(experiment, path, old, new, is_noise));
            }
            self.differences.extend(of_rivals);
        }
        for (path, new) in &after.all {
            if before.get(path).is_none() {
                self.missing
                    .push(missing(experiment, path, None, Some(new)));
            }
        }
    }

    /// Adds a note for each setting that differs.
    fn settings(&mut self, experiment: &str, before: &Value, after: &Value) {
        let new: HashMap<&str, &Value> = figures::settings(after).collect();
        for (name, old) in figures::settings(before) {
            if let Some(new) = new.get(name).filter(|new| **new != old) {
                let of = prefix(experiment);
                let shown = |value: &Value| safe(&value.to_string());
                self.notes.push(format!(
                    "{of}the setting {} differs ({} and {}), so the figures may not be comparable",
                    safe(name),
                    shown(old),
                    shown(new)
                ));
            }
        }
    }

    /// Compares the ratios of Sluice's figures to those of rivals. Returns for each of Sluice's figures the ratios that
    /// differ, and whether the figures of all rivals show that the machine has changed.
    fn ratios(
        &mut self,
        experiment: &str,
        before: &Figures,
        after: &Figures,
    ) -> HashMap<Path, (Vec<Difference>, bool)> {
        let new: HashMap<Path, Spread> = rivals::relative(after)
            .into_iter()
            .map(|one| (one.path, one.ratio))
            .collect();
        let mut found: HashMap<Path, (Vec<Difference>, bool)> = HashMap::new();
        for old in rivals::relative(before) {
            let Some(new) = new.get(&old.path) else {
                continue;
            };
            let is_noise = verdict(&old.ratio, new);
            let own = direction(&old.own, before, after);
            // A rival whose rounds differ much makes the ratio's noise large, so the ratio alone excuses nothing.
            let is_moved = own.is_some() && own == direction(&old.rival, before, after);
            let (differences, has_machine_changed) =
                found.entry(old.own).or_insert_with(|| (Vec::new(), true));
            *has_machine_changed &= is_noise == Some(true) && is_moved;
            match old.ratio.median == new.median {
                true => self.equal += 1,
                false => {
                    differences.push(difference(experiment, &old.path, &old.ratio, new, is_noise));
                }
            }
        }
        found
    }

    /// Renders the table of differences, those beyond the noise first and those within it last, the figures that only one
    /// report has, and the notes.
    pub fn render(&self) -> String {
        let titles = ["figure", "before", "after", "ratio", ""].map(|title| (title, ""));
        let mut differences: Vec<&Difference> = self.differences.iter().collect();
        differences.sort_by_key(|difference| match difference.within_noise {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        });
        let is_noise_known = self.is_noise_known();
        let rows = differences.into_iter();
        let rows: Vec<Vec<String>> = rows.map(|one| one.cells(is_noise_known)).collect();
        let mut text = match rows.is_empty() {
            true => String::new(),
            false => format!("{}\n", plain(&titles, &rows)),
        };
        text.push_str(&self.counts());
        for one in self.missing.iter().take(MISSING_MAX) {
            let report = match one.before {
                Some(_) => "first",
                None => "second",
            };
            let (of, name) = (prefix(&one.experiment), &one.figure);
            text.push_str(&format!("only in the {report} report: {of}{name}\n"));
        }
        if self.missing.len() > MISSING_MAX {
            let more = self.missing.len() - MISSING_MAX;
            text.push_str(&format!(
                "and {more} more figures that only one report has (--json lists all)\n"
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

impl Report {
    /// Returns the number of differences with this verdict on the noise.
    fn count(&self, within_noise: Option<bool>) -> usize {
        let all = self.differences.iter();
        all.filter(|one| one.within_noise == within_noise).count()
    }

    /// Whether the noise of any difference is known.
    fn is_noise_known(&self) -> bool {
        self.count(None) < self.differences.len()
    }

    /// Returns the numbers of figures that differ and of equal ones, and the rule for the noise.
    fn counts(&self) -> String {
        let (unknown, equal) = (self.count(None), self.equal);
        if unknown > 0 && !self.is_noise_known() {
            return format!(
                "figures that differ: {unknown}, equal: {equal}\n\
                 One round each: the noise is unknown, so a difference may show nothing. Repeat both runs in turn.\n"
            );
        }
        let (beyond, within) = (self.count(Some(false)), self.count(Some(true)));
        let (unknown, one_round) = match unknown {
            0 => (String::new(), ""),
            _ => (
                format!(", with unknown noise: {unknown}"),
                "With one round in both, the noise is unknown, so a difference may show nothing.\n",
            ),
        };
        format!(
            "figures that differ by more than the noise: {beyond}, within it: {within}{unknown}, equal: {equal}\n\
             A difference is within the noise if {}.\n{one_round}",
            noise_rule()
        )
    }
}

/// Returns whether a difference is within the noise; `None` if that is unknown, since both figures have one round.
fn verdict(old: &Spread, new: &Spread) -> Option<bool> {
    let has_rounds = old.rounds.len() > 1 || new.rounds.len() > 1;
    has_rounds.then(|| within_noise(old, new))
}

/// Returns whether a figure has grown by more than the noise (`Some(true)`) or has become smaller (`Some(false)`); `None`
/// if it differs within the noise, or if that is unknown.
fn direction(path: &Path, before: &Figures, after: &Figures) -> Option<bool> {
    let (old, new) = (before.get(path)?, after.get(path)?);
    (verdict(old, new) == Some(false)).then_some(new.median > old.median)
}

fn by_name(run: &Run) -> HashMap<&str, &Step> {
    run.steps.iter().map(|step| (&*step.name, step)).collect()
}

/// Returns the name of an experiment as the begin of a line; nothing if there is only one.
fn prefix(experiment: &str) -> String {
    match experiment {
        "" => String::new(),
        experiment => format!("{experiment}: "),
    }
}

fn difference(
    experiment: &str,
    path: &Path,
    old: &Spread,
    new: &Spread,
    within_noise: Option<bool>,
) -> Difference {
    Difference {
        experiment: experiment.to_owned(),
        figure: path.join(": "),
        before: old.median,
        after: new.median,
        ratio: (old.median != 0.0).then(|| new.median / old.median),
        within_noise,
    }
}

fn missing(
    experiment: &str,
    path: &Path,
    before: Option<&Spread>,
    after: Option<&Spread>,
) -> Missing {
    let median = |spread: Option<&Spread>| spread.map(|spread| spread.median);
    Missing {
        experiment: experiment.to_owned(),
        figure: path.join(": "),
        before: median(before),
        after: median(after),
    }
}

impl Difference {
    /// Returns the cells of the table. An unknown noise is named if that of other differences is known.
    fn cells(&self, is_noise_known: bool) -> Vec<String> {
        let verdict = match self.within_noise {
            Some(true) => "within the noise",
            None if is_noise_known => "noise unknown",
            Some(false) | None => "",
        };
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
        vec![
            prefix(&self.experiment) + &self.figure,
            digits(self.before),
            digits(self.after),
            ratio.unwrap_or_else(|| "-".to_owned()),
            verdict.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests;
