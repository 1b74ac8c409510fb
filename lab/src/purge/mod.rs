//! The purge experiment: how long a purge by tag takes among very many objects, whether it holds at once, and what rules
//! in force cost each hit.

mod among;
mod cost;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use crate::bench::raise_descriptor_limit;
use crate::client::{Client, Reply};
use crate::figures::{self, Figure, Measured, Spec};

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program `sluice`.
    pub program: PathBuf,
    /// Objects to be stored before the purge.
    pub objects: u64,
    /// How many of them carry the tag.
    pub tagged: u64,
    /// How many of each are looked at after the purge.
    pub samples: u64,
    /// Rules in force while the cost of a hit is measured.
    pub rules: u32,
    /// Runs before and after, of each of the two programs that are compared; 0: the cost is not measured.
    pub rounds: usize,
    /// Length of a run.
    pub seconds: f64,
    /// Bytes that the cache may keep.
    pub memory: u64,
}

impl Options {
    /// A million objects, a tenth of them tagged, 1,000 rules.
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
            Spec::new("purge_ms", among("answered after"), "ms").most(10.0),
            Spec::new(
                "purge_kept",
                among("still hits, of samples with it"),
                "requests",
            )
            .most(0.0),
            Spec::new(
                "purge_lost",
                among("no hits, of samples without"),
                "requests",
            )
            .most(0.0),
            Spec::new("cost", rules("CPU of a hit over that before"), "").most(1.02),
            Spec::new("cost_us", rules("CPU of a hit"), "µs"),
            Spec::new(
                "cost_coming",
                rules("and 100 more each second: CPU over before"),
                "",
            ),
        ]
    }
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Objects stored before the purge.
    pub objects: u64,
    /// How many of them carried the tag.
    pub tagged: u64,
    /// Rules in force while the cost of a hit was measured.
    pub rules: u32,
    /// Figures and goals.
    pub figures: Vec<Figure>,
    /// What else is worth knowing, and what could not be measured.
    pub notes: Vec<String>,
}

impl Report {
    /// The table and the notes.
    pub fn render(&self) -> String {
        let mut text = figures::render(&self.figures, None);
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

/// Measures, with lines of progress for `tell`.
///
/// Errors: options out of bounds. What can't be measured is a note.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> anyhow::Result<Report> {
    options.check()?;
    raise_descriptor_limit()?;
    let mut measured = Measured::default();
    measured.part("purge", tell, |measured| {
        among::measure(options, tell, measured)
    });
    if options.rounds > 0 {
        measured.part("cost of a hit", tell, |measured| {
            cost::measure(options, tell, measured)
        });
    }
    Ok(Report {
        objects: options.objects,
        tagged: options.tagged,
        rules: options.rules,
        figures: figures::compare(options.specs(), &measured, None),
        notes: measured.notes,
    })
}

/// Purges through the admin address. The reply, whose time counts from the sending on the open connection, and the
/// rule's sequence number.
fn purge(admin: SocketAddr, rule: &Value) -> anyhow::Result<(Reply, u64)> {
    let mut client = Client::connect(admin)?;
    let host = admin.to_string();
    let fields = [
        ("Host", host.as_str()),
        ("X-Sluice", "1"),
        ("Content-Type", "application/json"),
        ("Connection", "close"),
    ];
    let reply = client.request("POST", "/purge", &fields, rule.to_string().as_bytes())?;
    let text = String::from_utf8_lossy(&reply.body);
    anyhow::ensure!(reply.status == 200, "{rule}: {} {text}", reply.status);
    let answer: Value = serde_json::from_slice(&reply.body).context("the purge's answer")?;
    let sequence = answer["sequence"].as_u64();
    let sequence = sequence.with_context(|| format!("no sequence number in {answer}"))?;
    Ok((reply, sequence))
}
