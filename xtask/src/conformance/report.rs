//! Results of the suite: failures with the suite's messages, and a table by section.

use std::fmt::Write as _;

use serde::Deserialize;

/// Kinds of tests in the suite: what a cache must do, optimizations, and differences that are not errors.
const KINDS: [&str; 3] = ["required", "optimal", "check"];

/// All sections, in the suite's order.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Sections(Vec<Section>);

#[derive(Debug, Deserialize)]
struct Section {
    name: String,
    tests: Vec<Test>,
}

/// A test and its result.
#[derive(Debug, Clone, Deserialize)]
pub struct Test {
    /// Id of the test.
    pub id: String,
    /// Description of the test.
    pub name: String,
    /// Kind of the test, one of [`KINDS`].
    pub kind: String,
    /// Failure message; `None` if the test passed.
    pub failure: Option<String>,
    /// Ids of the failing tests because of which this test's result is meaningless.
    pub void: Vec<String>,
}

impl Test {
    /// Returns the test and its result as text.
    pub fn line(&self) -> String {
        let result = self.failure.as_deref().unwrap_or("passed");
        let void = match &self.void[..] {
            [] => String::new(),
            ids => format!(" (meaningless, because these fail: {})", ids.join(", ")),
        };
        format!(
            "{:<8} {}: {result}{void}\n         {}",
            self.kind, self.id, self.name
        )
    }
}

impl Sections {
    /// Returns all tests of all sections.
    pub fn tests(&self) -> impl Iterator<Item = &Test> {
        self.0.iter().flat_map(|section| &section.tests)
    }

    /// Replaces the result of the test with the same id.
    pub fn replace(&mut self, result: &Test) {
        let tests = self.0.iter_mut().flat_map(|section| &mut section.tests);
        for test in tests.filter(|test| test.id == result.id) {
            *test = result.clone();
        }
    }

    /// Returns the failures of required and optimal tests as text.
    pub fn failures(&self) -> String {
        let mut text = String::new();
        for kind in &KINDS[..2] {
            let failed = |test: &&Test| test.kind == *kind && test.failure.is_some();
            for test in self.tests().filter(failed) {
                // Writing to a String never fails.
                let _ = writeln!(text, "{}", test.line());
            }
        }
        text
    }

    /// Returns a table of passed and total tests by section and kind.
    pub fn table(&self) -> String {
        let widest = self.0.iter().map(|section| section.name.len()).max();
        let width = widest.unwrap_or(0);
        let mut text = format!("{:width$}", "");
        for kind in KINDS {
            let _ = write!(text, " {kind:>9}");
        }
        text.push('\n');
        for section in &self.0 {
            line(&mut text, &section.name, width, &|| section.tests.iter());
        }
        line(&mut text, "all", width, &|| self.tests());
        text
    }
}

fn line<'a, T: Iterator<Item = &'a Test>>(
    text: &mut String,
    name: &str,
    width: usize,
    tests: &dyn Fn() -> T,
) {
    let _ = write!(text, "{name:width$}");
    for kind in KINDS {
        let of_kind = || tests().filter(|test| test.kind == kind);
        let passed = of_kind().filter(|test| test.failure.is_none()).count();
        let shown = match of_kind().count() {
            0 => "-".to_owned(),
            count => format!("{passed}/{count}"),
        };
        let _ = write!(text, " {shown:>9}");
    }
    text.push('\n');
}

/// Returns a section of required tests with these ids and failures, for tests.
#[cfg(test)]
pub fn sections(tests: &[(&str, Option<&str>)]) -> Sections {
    let tests = tests.iter().map(|(id, failure)| Test {
        id: (*id).to_owned(),
        name: format!("description of {id}"),
        kind: KINDS[0].to_owned(),
        failure: failure.map(str::to_owned),
        void: Vec::new(),
    });
    Sections(vec![Section {
        name: "Section".to_owned(),
        tests: tests.collect(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_section_and_kind() {
        let mut all = sections(&[("one", None), ("two", Some("Assertion: no"))]);
        all.0[0].tests.push(Test {
            id: "three".to_owned(),
            name: "description of three".to_owned(),
            kind: "check".to_owned(),
            failure: Some("Setup: retry".to_owned()),
            void: Vec::new(),
        });
        let table = all.table();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], KINDS);
        assert_eq!(rows[1], ["Section", "1/2", "-", "0/1"]);
        assert_eq!(rows[2], ["all", "1/2", "-", "0/1"]);
        let failures = all.failures();
        assert!(failures.contains("two: Assertion: no"), "{failures}");
        assert!(
            !failures.contains("one") && !failures.contains("three"),
            "{failures}"
        );
        let again = Test {
            failure: None,
            ..all.0[0].tests[1].clone()
        };
        all.replace(&again);
        assert!(all.failures().is_empty());
    }

    #[test]
    fn the_json_of_the_runner_is_parsed() {
        let told = r#"[{"name": "A", "tests": [
            {"id": "a", "name": "an A", "kind": "optimal", "failure": null, "void": ["b"]}]}]"#;
        let all: Sections = serde_json::from_str(told).expect("sections");
        assert_eq!(all.tests().count(), 1);
        assert!(all.table().contains("1/1"));
        let line = all.tests().next().map(Test::line).unwrap_or_default();
        assert!(
            line.starts_with("optimal  a: passed (meaningless, because these fail: b)\n"),
            "{line}"
        );
    }
}
