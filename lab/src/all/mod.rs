//! All experiments one after the other, as child processes: the plan, the steps that have no result yet, the record of
//! the run and its report.

mod child;
mod folder;
mod host;
mod plan;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use crate::caches::{self, Rival};
use crate::ramp::StaticRival;
use crate::report::machine::{Identity, Machine};
use crate::report::values::duration;
use crate::report::{FORMAT, Run, Setup, Step};
use crate::rivals::Program;
use crate::scratch;

use child::End;
use folder::Folder;
pub use plan::{Host, LIMIT_SECONDS, Plan, PlannedStep, QUICK_LIMIT_SECONDS, Wishes, names};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Hash of that file. A stored result of another program is not used.
    pub program_hash: String,
    /// Version of the program.
    pub version: String,
    /// Profile with which the program was built: `release` or `debug`.
    pub profile: String,
    /// Folder for the results, which is created if necessary.
    pub folder: PathBuf,
    /// Choices that the plan depends on.
    pub wishes: Wishes,
}

/// The end of a run.
#[derive(Debug)]
pub enum Outcome {
    /// All steps have a result or an error. The path is that of the report, the names are those of failed steps.
    Done(PathBuf, Vec<String>),
    /// The run was interrupted. The results so far are stored.
    Interrupted,
}

/// A run with its plan, before it begins.
#[derive(Debug)]
pub struct PlannedRun {
    options: Options,
    setup: Setup,
    folder: Folder,
    plan: Plan,
    /// Results in the folder, also those of experiments that are not in the plan.
    stored: Vec<Step>,
}

impl PlannedRun {
    /// Makes the plan for this machine.
    ///
    /// Errors: an unknown step, nginx is required and not installed, or the folder has results of another kind of run:
    /// of another program, another machine, other versions of the servers, or with other choices.
    pub fn new(options: Options) -> anyhow::Result<PlannedRun> {
        if options.wishes.nginx {
            caches::rivals(&[Rival::Nginx], &[])?;
        }
        let plan = plan::plan(&options.wishes, &host::detect())?;
        let setup = Setup {
            version: options.version.clone(),
            program: options.program_hash.clone(),
            profile: options.profile.clone(),
            quick: options.wishes.quick,
            against: options.wishes.nginx.then(|| "nginx".to_owned()),
            machine: Identity::read(),
            servers: Some(match options.wishes.nginx {
                true => measured_servers(),
                false => Vec::new(),
            }),
        };
        let folder = Folder::new(&options.folder);
        Ok(PlannedRun {
            stored: folder.steps(&setup)?,
            folder,
            options,
            setup,
            plan,
        })
    }

    /// Renders the plan.
    pub fn render(&self) -> String {
        self.plan.render(|step| self.result(step).is_some())
    }

    /// Returns the stored result of a step.
    fn result(&self, planned: &PlannedStep) -> Option<&Step> {
        let step = self.stored.iter().find(|step| step.name == planned.name)?;
        step.is_result_of(&planned.command(), &self.setup)
            .then_some(step)
    }

    /// Runs the steps that have no result yet, and writes the record and the report. A step that fails does not stop the
    /// others. The run ends early when `stopped` becomes true.
    ///
    /// Errors: the folder can't be created or written, or the program can't be started.
    pub fn run(
        self,
        stopped: &AtomicBool,
        progress: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Outcome> {
        self.folder.create()?;
        scratch::adopt_orphans();
        let all = self.plan.steps.len();
        let stored: Vec<Option<Step>> = self
            .plan
            .steps
            .iter()
            .map(|step| self.result(step).cloned())
            .collect();
        let pending = self.plan.steps.iter().zip(&stored);
        let pending = pending.filter(|(_, step)| step.is_none());
        let mut rest: u64 = pending.map(|(planned, _)| planned.seconds).sum();
        let mut steps = Vec::new();
        for ((number, planned), step) in (1..).zip(&self.plan.steps).zip(stored) {
            let name = planned.name;
            if let Some(step) = step {
                progress(&format!("{number} of {all}, {name}: has a result already"));
                steps.push(step);
                continue;
            }
            let left = duration(rest as f64);
            rest = rest.saturating_sub(planned.seconds);
            if stopped.load(Ordering::Relaxed) {
                return Ok(Outcome::Interrupted);
            }
            progress(&format!("{number} of {all}, {name}, about {left} left"));
            let Some(step) = self.step(planned, stopped, progress)? else {
                return Ok(Outcome::Interrupted);
            };
            if let Some(error) = &step.error {
                progress(&format!("{name} failed: {error}"));
            }
            self.folder.keep(&step)?;
            steps.push(step);
        }
        self.finish(steps)
    }

    /// Runs one step. Returns `None` if it was interrupted.
    fn step(
        &self,
        planned: &PlannedStep,
        stopped: &AtomicBool,
        progress: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Option<Step>> {
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let clock = Instant::now();
        let output = self.folder.temporary()?;
        let end = child::run(
            &self.options.program,
            planned,
            output.path(),
            stopped,
            progress,
        )?;
        let End::Done { data, error } = end else {
            return Ok(None);
        };
        Ok(Some(Step {
            name: planned.name.to_owned(),
            command: planned.command(),
            setup: self.setup.clone(),
            begun: begun.map_or(0, |time| time.as_secs()),
            seconds: clock.elapsed().as_secs_f64(),
            data,
            error,
        }))
    }

    /// Writes the record and the report: new results beside the stored ones of experiments that the plan does not have.
    fn finish(self, new: Vec<Step>) -> anyhow::Result<Outcome> {
        let failed = new.iter().filter(|step| step.error.is_some());
        let failed = failed.map(|step| step.name.clone()).collect();
        let mut left_out = self.plan.left_out;
        left_out.extend(self.plan.not_chosen);
        let (mut steps, mut others) = (new, self.stored);
        others.retain(|old| steps.iter().all(|step| step.name != old.name));
        steps.append(&mut others);
        left_out.retain(|one| steps.iter().all(|step| step.name != one.name));
        let place = |name: &str| names().position(|known| known == name);
        steps.sort_by_key(|step| place(&step.name));
        left_out.sort_by_key(|one| place(&one.name));
        let mut machine = Machine::read(self.folder.path());
        let versions = steps.iter().filter_map(|step| step.setup.servers.as_ref());
        machine.set_versions(versions.flatten());
        let run = Run {
            format: FORMAT,
            quick: self.setup.quick,
            against: self.setup.against,
            version: self.setup.version,
            profile: self.setup.profile,
            machine,
            steps,
            left_out,
        };
        Ok(Outcome::Done(self.folder.finish(&run)?, failed))
    }
}

/// Returns names and versions of the installed servers that a run with nginx measures.
fn measured_servers() -> Vec<(String, String)> {
    let programs = StaticRival::ALL.map(StaticRival::program);
    let version = |program: &Program| Some((program.name.to_owned(), program.version().ok()?));
    programs.into_iter().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::NGINX;

    #[test]
    fn the_servers_beside_which_a_run_measures_have_their_version() {
        let servers = measured_servers();
        let nginx = servers.iter().find(|(name, _)| name == "nginx");
        let version = nginx.map(|(_, version)| version.clone());
        assert_eq!(version, NGINX.version().ok());
        assert!(servers.iter().all(|(name, _)| name != "Squid"));
    }
}
