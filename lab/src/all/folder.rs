//! The folder of a run: the result of each step, the record of the run, and the report. Files are replaced as a whole, so
//! that an interrupted run leaves none in part.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use tempfile::{NamedTempFile, TempDir};

use super::plan::names;
use crate::report::{Run, Setup, Step, html};

/// The advice for a folder with results that can't be used.
const REMEDY: &str = "name another folder with --folder, or remove this one";

/// Beginning of the name of a step's temporary folder, which the run's process id follows.
const STEP: &str = ".step-";

/// The advice for a folder that can't be written.
const ELSEWHERE: &str = "name another folder with --folder";

/// The folder of a run.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: &Path) -> Folder {
        Folder(path.to_owned())
    }

    /// Creates the folder if it does not exist, and removes what a killed run has left in it.
    pub(super) fn create(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.0).with_context(|| {
            format!(
                "the folder {} can't be created; {ELSEWHERE}",
                self.0.display()
            )
        })?;
        for entry in fs::read_dir(&self.0)?.flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(STEP));
            let pid = rest.and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // A folder that can't be removed does no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    /// Returns a new temporary folder within this one.
    pub(super) fn temporary(&self) -> anyhow::Result<TempDir> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{STEP}{}-", std::process::id()))
            .tempdir_in(&self.0);
        folder.with_context(|| {
            format!(
                "the folder {} can't be written; {ELSEWHERE}",
                self.0.display()
            )
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the stored results of all steps, in the order of a run.
    ///
    /// Errors: a result can't be read, or belongs to a run with another setup than this one.
    pub(super) fn steps(&self, setup: &Setup) -> anyhow::Result<Vec<Step>> {
        let mut steps = Vec::new();
        for name in names() {
            let file = self.file_of(name);
            let text = match fs::read_to_string(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => {
                    text.with_context(|| format!("{} can't be read; {ELSEWHERE}", file.display()))?
                }
            };
            let step: Step = serde_json::from_str(&text).map_err(|error| {
                anyhow::anyhow!(
                    "{} is no result of this version of `sluice lab all`: {error}\n{REMEDY}",
                    file.display()
                )
            })?;
            let differences = step.setup.differences(setup);
            anyhow::ensure!(
                differences.is_empty(),
                "the folder {} has results of another run, which can't be in one report with new ones\n  {}\n{REMEDY}",
                self.0.display(),
                differences.join("\n  ")
            );
            steps.push(step);
        }
        Ok(steps)
    }

    /// Stores the result of a step.
    pub(super) fn keep(&self, step: &Step) -> anyhow::Result<()> {
        self.write(&self.file_of(&step.name), &json(step)?)
    }

    /// Stores the record of the run and its report. Returns the path of the report.
    pub(super) fn finish(&self, run: &Run) -> anyhow::Result<PathBuf> {
        self.write(&self.file_of("run"), &json(run)?)?;
        let report = self.0.join("report.html");
        self.write(&report, &html::render(run))?;
        Ok(report)
    }

    fn file_of(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    fn write(&self, file: &Path, text: &str) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            let mut new = NamedTempFile::new_in(&self.0)?;
            new.write_all(text.as_bytes())?;
            new.as_file().sync_all()?;
            let readable = fs::Permissions::from_mode(0o644);
            new.as_file().set_permissions(readable)?;
            new.persist(file)?;
            Ok(())
        };
        write().with_context(|| format!("{} can't be written; {ELSEWHERE}", file.display()))
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}
