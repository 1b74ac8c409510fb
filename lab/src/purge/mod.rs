//! The purge experiment: the time of a purge by tag among many objects, whether it is in force at once, and the cost
//! of purge rules per hit.

mod among;
mod cost;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::bench::raise_descriptor_limit;
use crate::client::{Client, Reply};
use crate::configurations::Configurations;
use crate::figures::{self, Figure, Measured, Spec};

/// Options of the experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Number of objects stored before the purge.
    pub objects: u64,
    /// Number of objects with the tag.
    pub tagged: u64,
    /// Number of objects of each kind that are checked after the purge.
    pub samples: u64,
    /// Number of rules in force while the cost per hit is measured.
    pub rules: u32,
    /// Number of runs before and after, for each of the two instances; 0: the cost is not measured.
    pub rounds: usize,
    /// Duration of a run in seconds.
    pub seconds: f64,
    /// Size of the cache in bytes.
    pub memory: u64,
}

impl Options {
    /// Returns options for a million objects, a tenth of them with the tag, and 1,000 rules.
    pub fn new(program: impl Into<PathBuf>) -> Options {
        Options {
            program: program.into(),
            objects: 1_000_000,
            tagged: 100_000,
            samples: 1000,
            rules: 1000,
            rounds: 5,
            seconds: 3.0,
            memory: 4 << 30,
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            (2..=100_000_000).contains(&self.objects),
            "2 to 100000000 objects"
        );
        anyhow::ensure!(
            (1..self.objects).contains(&self.tagged),
            "at least one object with the tag, and one without"
        );
        anyhow::ensure!(self.samples > 0, "at least one sample");
        anyhow::ensure!((1..=60_000).contains(&self.rules), "1 to 60000 rules");
        anyhow::ensure!(self.rounds <= 1000, "at most 1000 rounds");
        anyhow::ensure!(
            (0.1..=60.0).contains(&self.seconds),
            "runs of 0.1 to 60 seconds"
        );
        Ok(())
    }

    fn specs(&self) -> Vec<Spec> {
        let among = format!("{} of {} objects purged by tag", self.tagged, self.objects);
        let among = |what: &str| format!("{among}: {what}");
        let rules = |what: &str| format!("{} rules in force: {what}", self.rules);
        vec![
            Spec::new("purge_ms", among("time to the response"), "ms").most(10.0),
            Spec::new(
                "purge_kept",
                among("hits among samples with the tag"),
                "requests",
            )
            .most(0.0),
            Spec::new(
                "purge_lost",
                among("misses among samples without it"),
                "requests",
            )
            .most(0.0),
            Spec::new("cost", rules("CPU per hit / before"), "").most(1.02),
            Spec::new("cost_us", rules("CPU per hit"), "µs"),
            Spec::new(
                "cost_coming",
                rules("and 100 more per second: CPU / before"),
                "",
            ),
        ]
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Number of objects stored before the purge.
    pub objects: u64,
    /// Number of objects with the tag.
    pub tagged: u64,
    /// Number of rules in force while the cost per hit was measured.
    pub rules: u32,
    /// Figures with their goals.
    pub figures: Vec<Figure>,
    /// Configurations of Sluice.
    pub configurations: Configurations,
    /// Remarks, including values that could not be measured and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Renders the table and the notes.
    pub fn render(&self) -> String {
        let mut text = figures::render(&self.figures, None);
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

/// Runs the experiment and reports progress to `progress`.
///
/// Errors: options out of bounds. A part that can't be measured becomes a note.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let mut measured = Measured::default();
    measured.part("purge", progress, |measured| {
        among::measure(options, progress, measured)
    });
    if options.rounds > 0 {
        measured.part("cost per hit", progress, |measured| {
            cost::measure(options, progress, measured)
        });
    }
    Ok(Report {
        objects: options.objects,
        tagged: options.tagged,
        rules: options.rules,
        figures: figures::compare(options.specs(), &measured, None),
        configurations: measured.configurations,
        notes: measured.notes,
    })
}

/// Sends a purge to the admin address. Returns the reply, whose time counts from sending on the open connection, and
/// the sequence number of the rule.
fn purge(admin: SocketAddr, rule: &Value) -> anyhow::Result<(Reply, u64)> {
    let mut client = Client::connect(admin)?;
    let host = admin.to_string();
    let headers = [
        ("Host", host.as_str()),
        ("X-Sluice", "1"),
        ("Content-Type", "application/json"),
        ("Connection", "close"),
    ];
    let reply = client.request("POST", "/purge", &headers, rule.to_string().as_bytes())?;
    let text = String::from_utf8_lossy(&reply.body);
    anyhow::ensure!(reply.status == 200, "{rule}: {} {text}", reply.status);
    let answer: Value = serde_json::from_slice(&reply.body).context("response to the purge")?;
    let caches = answer["purged"].as_array().into_iter().flatten();
    let sequence = caches.filter_map(|one| one["sequence"].as_u64()).max();
    let sequence = sequence.with_context(|| format!("no sequence number in {answer}"))?;
    Ok((reply, sequence))
}
