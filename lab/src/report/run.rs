//! The record of a run: the machine, and each experiment with its command, its duration and its result. The report is a
//! function of this record alone.

use std::collections::HashSet;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::{Identity, Machine};

/// Number of the record's format. A reader refuses records with a higher number. The number grows when a program can no
/// longer read the records of the one before it: format 2 has the setup of each experiment.
pub const FORMAT: u32 = 2;

/// The reason for an experiment that the user did not choose.
pub const NOT_CHOSEN: &str = "not chosen (--only)";

/// All experiments of one run of `sluice lab all`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of the format of this record.
    pub format: u32,
    /// Whether the experiments had less time, and more noise, than usual.
    pub quick: bool,
    /// Name of the server that Sluice was compared with, if there was one.
    pub against: Option<String>,
    /// Version of Sluice.
    pub version: String,
    /// Profile with which the program was built: `release` or `debug`.
    pub profile: String,
    /// The machine.
    pub machine: Machine,
    /// The experiments that were run, in their order.
    pub steps: Vec<Step>,
    /// The experiments that were not run, and why.
    pub left_out: Vec<LeftOut>,
}

/// One experiment of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the experiment.
    pub name: String,
    /// The command line that runs the same experiment.
    pub command: String,
    /// The setup of the run. In JSON, its fields are fields of the step.
    #[serde(flatten)]
    pub setup: Setup,
    /// Time at which the experiment began, in seconds since 1970.
    pub begun: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// The experiment's report; `None` if there is none.
    pub data: Option<Value>,
    /// Why the experiment failed; `None` if it did not. A failed experiment may have a report, too.
    pub error: Option<String>,
}

impl Step {
    /// Returns whether this step is the result of the command with this setup, so that it need not be run again. A failed
    /// experiment is always run again.
    pub fn is_result_of(&self, command: &str, setup: &Setup) -> bool {
        let is_same = self.command == command && self.setup.differences(setup).is_empty();
        is_same && self.has_result()
    }

    /// Whether the experiment has a report and did not fail.
    fn has_result(&self) -> bool {
        self.error.is_none() && self.data.is_some()
    }
}

/// Everything that is the same for all experiments of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Version of Sluice.
    pub version: String,
    /// Hash of the program's file.
    pub program: String,
    /// Profile with which the program was built: `release` or `debug`.
    pub profile: String,
    /// Whether the experiments have less time, and more noise, than usual.
    pub quick: bool,
    /// Name of the server that Sluice is compared with, if there is one.
    pub against: Option<String>,
    /// The machine.
    pub machine: Identity,
    /// Names and versions of the other servers that the run measures, as far as they are installed; `None` in records of
    /// earlier versions of Sluice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<(String, String)>>,
}

impl Setup {
    /// Returns descriptions of the properties that differ from `other`, each with both values: first this one's.
    pub fn differences(&self, other: &Setup) -> Vec<String> {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        let rival = |one: &Setup| one.against.clone().unwrap_or_else(|| "nothing".to_owned());
        let bytes = |one: &Setup| {
            let bytes = one.machine.memory.map(|bytes| format!("{bytes} bytes"));
            known(&bytes)
        };
        let all = [
            ("version", self.version.clone(), other.version.clone()),
            (
                "program file (hash)",
                short(&self.program),
                short(&other.program),
            ),
            ("build profile", self.profile.clone(), other.profile.clone()),
            ("--quick", yes(self.quick), yes(other.quick)),
            ("--against", rival(self), rival(other)),
            (
                "processor",
                known(&self.machine.processor),
                known(&other.machine.processor),
            ),
            (
                "cores",
                self.machine.cores.to_string(),
                other.machine.cores.to_string(),
            ),
            ("memory", bytes(self), bytes(other)),
            (
                "kernel",
                known(&self.machine.kernel),
                known(&other.machine.kernel),
            ),
        ];
        let all = all.into_iter().chain(self.server_versions(other));
        let differ = all.filter(|(_, one, other)| one != other);
        differ
            .map(|(name, one, other)| format!("{name}: {one} there, {other} now"))
            .collect()
    }

    /// Returns the servers of which both setups know the version: name and both versions. A server that was installed or
    /// removed since makes no result wrong.
    fn server_versions<'a>(
        &'a self,
        other: &'a Setup,
    ) -> impl Iterator<Item = (&'a str, String, String)> {
        let own = self.servers.iter().flatten();
        own.filter_map(move |(name, version)| {
            let mut theirs = other.servers.iter().flatten();
            let (_, now) = theirs.find(|(known, _)| known == name)?;
            Some((&**name, version.clone(), now.clone()))
        })
    }
}

/// Returns the first digits of a hash, which are enough to tell two of them apart.
fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// An experiment that was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Name of the experiment.
    pub name: String,
    /// The reason, and how to change that.
    pub why: String,
}

impl Run {
    /// Reads a record.
    ///
    /// Errors: the value is no record, or its format is newer, or older and unreadable.
    pub fn read(value: &Value) -> anyhow::Result<Run> {
        let format = value.get("format").and_then(Value::as_u64);
        let format = format.context("this file is no record of a run: it has no format")?;
        let newest = u64::from(FORMAT);
        anyhow::ensure!(
            format <= newest,
            "the record has format {format}, and this program reads formats up to {newest}"
        );
        Run::deserialize(value).map_err(|error| match format == newest {
            true => anyhow::anyhow!("this file is no record of a run (format {newest}): {error}"),
            false => anyhow::anyhow!(
                "the record has format {format}, from an earlier version of Sluice, and this program reads format {newest} ({error})"
            ),
        })
    }

    /// Whether no experiment of the run has failed, so that `sluice lab all` has nothing to run again.
    pub fn is_complete(&self) -> bool {
        self.steps.iter().all(Step::has_result)
    }

    /// Returns the time at which the first experiment began, in seconds since 1970.
    pub fn begun(&self) -> Option<u64> {
        self.steps.iter().map(|step| step.begun).min()
    }

    /// Returns names and versions of the other servers that an experiment measured.
    pub fn measured_servers(&self) -> impl Iterator<Item = &(String, String)> {
        let mut named = HashSet::new();
        for data in self.steps.iter().filter_map(|step| step.data.as_ref()) {
            names(data, &mut named);
        }
        let is_measured = move |(name, version): &&(String, String)| {
            named.contains(name.as_str()) || named.contains(format!("{name} {version}").as_str())
        };
        self.machine.servers.iter().filter(is_measured)
    }

    /// Returns the duration of all experiments in seconds.
    pub fn seconds(&self) -> f64 {
        self.steps.iter().map(|step| step.seconds).sum()
    }
}

/// Fields of experiments' reports that name servers, with or without their versions.
const SERVER_FIELDS: [&str; 5] = ["name", "server", "proxy", "rival", "rivals"];

/// Collects the texts of all fields that name servers.
fn names<'a>(data: &'a Value, found: &mut HashSet<&'a str>) {
    match data {
        Value::Array(list) => list.iter().for_each(|value| names(value, found)),
        Value::Object(object) => {
            for (name, value) in object {
                if SERVER_FIELDS.contains(&name.as_str()) {
                    found.extend(value.as_str());
                    let list = value.as_array().into_iter().flatten();
                    found.extend(list.filter_map(Value::as_str));
                }
                names(value, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_servers_that_were_measured_have_a_version() {
        let mut run: Run = serde_json::from_str(include_str!("sample.json")).expect("a record");
        let servers = [
            "nginx",
            "Apache Traffic Server",
            "HAProxy",
            "Apache",
            "Squid",
        ];
        run.machine.servers = servers
            .map(|name| (name.to_owned(), "7.1".to_owned()))
            .to_vec();
        run.steps[0].data = Some(json!({ "rivals": ["Squid 7.1"], "rows": [{ "name": "Squid" }] }));
        let measured: Vec<&str> = run.measured_servers().map(|(name, _)| &**name).collect();
        // nginx and Apache are named by the experiment `static`.
        assert_eq!(measured, ["nginx", "Apache", "Squid"]);
    }

    #[test]
    fn a_run_is_complete_if_no_experiment_has_failed() {
        let mut run: Run = serde_json::from_str(include_str!("sample.json")).expect("a record");
        for step in &mut run.steps {
            (step.data, step.error) = (Some(json!({})), None);
        }
        assert!(run.is_complete());
        let mut failed = run.clone();
        failed.steps[0].error = Some("no port is free".to_owned());
        assert!(!failed.is_complete());
        run.steps[1].data = None;
        assert!(!run.is_complete());
    }

    #[test]
    fn a_result_beside_another_version_of_a_server_is_not_used() {
        let run: Run = serde_json::from_str(include_str!("sample.json")).expect("a record");
        let mut step = run.steps[0].clone();
        (step.data, step.error) = (Some(json!({})), None);
        let servers = |all: &[(&str, &str)]| {
            let owned =
                |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
            Some(all.iter().map(owned).collect::<Vec<_>>())
        };
        step.setup.servers = servers(&[("nginx", "1.22.1"), ("Apache", "2.4.1")]);
        let with = |servers| Setup {
            servers,
            ..step.setup.clone()
        };
        let upgraded = with(servers(&[("nginx", "1.24.0")]));
        assert_eq!(
            step.setup.differences(&upgraded),
            ["nginx: 1.22.1 there, 1.24.0 now"]
        );
        assert!(!step.is_result_of(&step.command, &upgraded));
        // A record of an earlier version names no servers, and a server that is new was not measured.
        let installed = servers(&[("nginx", "1.22.1"), ("h2o", "2.2.5")]);
        for same in [step.setup.servers.clone(), None, installed] {
            let same = with(same);
            assert!(step.is_result_of(&step.command, &same), "{same:?}");
        }
        let text = serde_json::to_string(&step).expect("JSON");
        assert_eq!(serde_json::from_str::<Step>(&text).expect("a step"), step);
        step.setup.servers = None;
        let text = serde_json::to_string(&step).expect("JSON");
        assert!(!text.contains("1.22.1"), "{text}");
        assert_eq!(serde_json::from_str::<Step>(&text).expect("a step"), step);
    }

    #[test]
    fn the_format_of_a_record_that_cannot_be_read_is_named() {
        let sample: Value = serde_json::from_str(include_str!("sample.json")).expect("JSON");
        assert!(Run::read(&sample).is_ok());
        let error = |change: &dyn Fn(&mut Value)| {
            let mut record = sample.clone();
            change(&mut record);
            Run::read(&record).expect_err("unreadable").to_string()
        };
        let newer = error(&|record| record["format"] = json!(FORMAT + 1));
        assert!(
            newer.contains("has format 3, and this program reads formats up to 2"),
            "{newer}"
        );
        let earlier = error(&|record| {
            record["format"] = json!(1);
            record["steps"][0] = json!({ "name": "storm", "command": "sluice lab storm" });
        });
        assert!(
            earlier.contains("has format 1, from an earlier version"),
            "{earlier}"
        );
        let odd = error(&|record| record["steps"] = json!(7));
        assert!(odd.contains("no record of a run (format 2)"), "{odd}");
        assert!(
            Run::read(&json!({}))
                .expect_err("no record")
                .to_string()
                .contains("no format")
        );
    }
}
