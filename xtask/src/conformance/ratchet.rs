//! The list of passing tests. A test on the list must not fail, and a passing test must be on the list.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::report::Sections;

/// The list of passing tests, read from its file: one id per line, in order.
pub struct Ratchet {
    file: PathBuf,
    ids: BTreeSet<String>,
}

/// Deviations of the results from the list.
#[derive(Debug, Default, PartialEq)]
pub struct Judgement {
    /// Tests on the list that fail or that the suite does not contain.
    pub lost: Vec<Lost>,
    /// Tests that pass and are not on the list.
    pub new: Vec<String>,
}

/// A test on the list that fails.
#[derive(Debug, PartialEq)]
pub struct Lost {
    /// Id of the test.
    pub id: String,
    /// Failure message of the suite.
    pub failure: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.id, self.failure)
    }
}

impl Judgement {
    /// Returns the ids of all tests that deviate from the list.
    pub fn deviating(&self) -> impl Iterator<Item = &str> {
        let lost = self.lost.iter().map(|lost| lost.id.as_str());
        lost.chain(self.new.iter().map(String::as_str))
    }
}

impl Ratchet {
    /// Reads the list. Fails if the file can't be read, or if the ids are not in order, because two edits would then
    /// be hard to merge.
    pub fn read(file: PathBuf) -> Result<Ratchet> {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let ids: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        if written(&ids) != text {
            bail!(
                "{} is not a list of ids in order, each once",
                file.display()
            );
        }
        Ok(Ratchet { file, ids })
    }

    /// Compares the results with the list.
    pub fn judge(&self, sections: &Sections) -> Judgement {
        let mut judgement = Judgement::default();
        let mut unseen: BTreeSet<&str> = self.ids.iter().map(String::as_str).collect();
        for test in sections.tests() {
            match (unseen.remove(test.id.as_str()), &test.failure) {
                (true, Some(failure)) => judgement.lost.push(Lost {
                    id: test.id.clone(),
                    failure: failure.clone(),
                }),
                (false, None) => judgement.new.push(test.id.clone()),
                _ => {}
            }
        }
        judgement.lost.extend(unseen.into_iter().map(|id| Lost {
            id: id.to_owned(),
            failure: "the suite has no such test".to_owned(),
        }));
        judgement
    }

    /// Adds the ids of tests to the list and writes the list's file.
    pub fn add(&mut self, new: &[String]) -> Result<()> {
        self.ids.extend(new.iter().cloned());
        fs::write(&self.file, written(&self.ids)).with_context(|| self.file.display().to_string())
    }
}

fn written(ids: &BTreeSet<String>) -> String {
    ids.iter().map(|id| format!("{id}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::sections;
    use super::*;

    fn ratchet(text: &str) -> (tempfile::TempDir, Result<Ratchet>) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("passing.txt");
        fs::write(&file, text).expect("written");
        (folder, Ratchet::read(file))
    }

    #[test]
    fn newly_failing_and_newly_passing_tests_are_reported() {
        let (_folder, ratchet) = ratchet("gone\nkept\nlost\n");
        let mut ratchet = ratchet.expect("a list");
        let now = sections(&[("kept", None), ("lost", Some("too late")), ("new", None)]);
        let judgement = ratchet.judge(&now);
        let lost: Vec<_> = judgement.lost.iter().map(ToString::to_string).collect();
        assert_eq!(lost, ["lost: too late", "gone: the suite has no such test"]);
        assert_eq!(judgement.new, ["new"]);
        assert_eq!(
            judgement.deviating().collect::<Vec<_>>(),
            ["lost", "gone", "new"]
        );
        ratchet.add(&judgement.new).expect("written");
        let text = fs::read_to_string(&ratchet.file).expect("a file");
        assert_eq!(text, "gone\nkept\nlost\nnew\n");
        assert!(ratchet.judge(&now).new.is_empty());
    }

    #[test]
    fn an_unordered_list_is_refused() {
        for text in ["b\na\n", "a\na\n", "a\n\nb\n", "a"] {
            assert!(ratchet(text).1.is_err(), "{text:?}");
        }
        assert!(ratchet("").1.is_ok());
    }

    #[test]
    fn the_list_in_the_repository_is_valid() {
        assert!(Ratchet::read(super::super::list()).is_ok());
    }
}
