//! The published figures: `docs/figures.md` and a block in README.md, both functions of one trimmed record of a run,
//! `docs/figures.json`.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use super::html::{machine_line, machine_table, named, sentences};
use super::markdown::{escape, sentence, table};
use super::run::{NOT_CHOSEN, Run, Step};
use super::sections::{self, peers};
use super::values::{date, duration, list};
use crate::spread::noise_rule;

/// First line of the block in README.md.
pub const BEGIN: &str =
    "<!-- figures: begin. Written by `cargo xtask figures` from docs/figures.json -->";
/// Last line of the block.
pub const END: &str = "<!-- figures: end -->";

/// Experiments whose summary is in README.md.
const HEADLINES: [&str; 6] = [
    "byte-range",
    "storm",
    "placement",
    "keepalive",
    "static",
    "slow-clients",
];

/// Lists in experiments' reports that no figure needs: configurations, and values over time. Other experiments have figures
/// with some of these names.
const LISTS_DROPPED: [&str; 8] = [
    "configurations",
    "windows",
    "samples",
    "near",
    "far",
    "connections",
    "disks",
    "per_connection",
];
/// Objects that no figure needs.
const OBJECTS_DROPPED: [&str; 2] = ["statuses", "latency"];

/// Folder that the page's command line names for the results.
const FOLDER: &str = "sluice-figures";

/// Writes the record, the page and the block. The folder is created if necessary.
///
/// Errors: a file can't be read or written, README.md has no place for the block, or the block would be empty.
pub fn publish(run: &Run, folder: &Path, readme: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let run = trimmed(run);
    let record = format!("{}\n", serde_json::to_string_pretty(&run)?);
    let mut files = vec![
        (folder.join("figures.json"), record),
        (folder.join("figures.md"), page(&run)),
    ];
    if let Some(readme) = readme {
        let text = fs::read_to_string(readme);
        let text = text.with_context(|| format!("{} can't be read", readme.display()))?;
        let text = with_block(&text, &run);
        files.push((
            readme.to_owned(),
            text.with_context(|| readme.display().to_string())?,
        ));
    }
    fs::create_dir_all(folder)
        .with_context(|| format!("the folder {} can't be created", folder.display()))?;
    for (file, text) in &files {
        fs::write(file, text).with_context(|| format!("{} can't be written", file.display()))?;
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}

/// Returns the record without all that no published figure needs. The values and the rounds of each figure stay.
pub fn trimmed(run: &Run) -> Run {
    let mut run = run.clone();
    run.machine.mitigations.clear();
    for step in &mut run.steps {
        step.data.iter_mut().for_each(trim);
    }
    run
}

fn trim(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(trim),
        Value::Object(object) => {
            object.retain(|name, value| {
                let dropped: &[&str] = match value {
                    Value::Array(_) => &LISTS_DROPPED,
                    Value::Object(_) => &OBJECTS_DROPPED,
                    _ => &[],
                };
                !dropped.contains(&name.as_str())
            });
            object.values_mut().for_each(trim);
        }
        _ => {}
    }
}

/// Returns the page as Markdown.
pub fn page(run: &Run) -> String {
    let mut text = format!(
        "# Figures\n\n\
         <!-- Written by `cargo xtask figures` from figures.json. A test compares this page with that record. -->\n\n\
         All figures that this project publishes about itself and other servers. They come from one run of the \
         [lab](lab.md) of {}, which took {}, on {}. The [record](figures.json) has the values of all rounds, and this page \
         is computed from it.\n\n{}",
        run.begun()
            .map_or_else(|| "an unknown date".to_owned(), date),
        duration(run.seconds()),
        escape(&machine_line(&run.machine)),
        placeholder(run)
    );
    let _ = write!(
        text,
        "{}{} CPU time of cache hits, and the time to start with a full disk, are measured by `cargo xtask bench`, which is no \
         part of this run.\n\n",
        again(run),
        rounds(run)
    );
    let _ = write!(text, "## Summary\n\n{}\n", summary(run));
    let beside = table(&peers::table(run));
    if !beside.is_empty() {
        let _ = write!(text, "## Comparison\n\n{beside}");
    }
    for step in &run.steps {
        text.push_str(&experiment(step));
    }
    let _ = write!(
        text,
        "## Machine and versions\n\nSluice {}, {} build.\n\n{}",
        escape(&run.version),
        escape(&run.profile),
        table(&machine_table(run))
    );
    format!("{}\n", text.trim_end())
}

/// Returns a warning about a run whose figures say little; nothing for a full run of a release build.
fn placeholder(run: &Run) -> String {
    let mut why = Vec::new();
    if run.profile != "release" {
        why.push("the program was built without optimization (a debug build)");
    }
    if run.quick {
        why.push("the run was a quick one, with short loads and few rounds");
    }
    match why.is_empty() {
        true => String::new(),
        false => format!(
            "> **Placeholder.** These figures say little: {}.\n\n",
            why.join(", and ")
        ),
    }
}

/// Returns the paragraph that says how to make the page again.
fn again(run: &Run) -> String {
    let is_chosen = run.left_out.iter().any(|one| one.why == NOT_CHOSEN);
    let quick = if run.quick { " --quick" } else { "" };
    let mut run_all = format!("sluice lab all{}{quick}", against(run));
    if is_chosen {
        for step in &run.steps {
            let _ = write!(run_all, " --only {}", code(&step.name));
        }
    }
    // The task measures all experiments beside nginx.
    let task = match is_chosen || run.against.as_deref() != Some("nginx") {
        true => String::new(),
        false => format!(" `cargo xtask figures{quick}`, or"),
    };
    format!(
        "To make this page again:{task}\n\n\
         ```\n{run_all} --folder {FOLDER}\n\
         sluice lab figures {FOLDER}/run.json --folder docs --readme README.md\n```\n\n"
    )
}

fn against(run: &Run) -> String {
    let rival = run.against.as_ref();
    rival.map_or_else(String::new, |rival| format!(" --against {}", code(rival)))
}

/// Returns sentences about the number of rounds and the noise.
fn rounds(run: &Run) -> String {
    let data = run.steps.iter().filter_map(|step| step.data.as_ref());
    match data.into_iter().any(has_rounds) {
        true => format!(
            "Values are medians of several rounds where an experiment has them. A difference is within the noise if {}.",
            noise_rule()
        ),
        false => "Each value comes from one round, so its noise is unknown.".to_owned(),
    }
}

/// Whether an experiment's report has a value of several rounds.
fn has_rounds(data: &Value) -> bool {
    match data {
        Value::Array(list) => list.iter().any(has_rounds),
        Value::Object(object) => object.iter().any(|(name, value)| match name.as_str() {
            "rounds" => {
                let count = value
                    .as_u64()
                    .or_else(|| Some(value.as_array()?.len() as u64));
                count > Some(1)
            }
            _ => has_rounds(value),
        }),
        _ => false,
    }
}

fn summary(run: &Run) -> String {
    let mut text: String = run.steps.iter().map(line).collect();
    for one in &run.left_out {
        let _ = writeln!(
            text,
            "- **{}:** left out: {}.",
            escape(named(&one.name)),
            escape(&one.why)
        );
    }
    text
}

/// Returns the line of the summary about an experiment.
fn line(step: &Step) -> String {
    let sentences: Vec<String> = sentences(step).iter().map(|html| sentence(html)).collect();
    let title = escape(named(&step.name));
    format!("- **{title}:** {}\n", sentences.join(" "))
}

fn experiment(step: &Step) -> String {
    let section = sections::of(&step.name);
    let mut text = format!("## {}\n\n", escape(named(&step.name)));
    let parts = [
        ("Question: ", section.question),
        ("", section.method),
        ("The article: ", section.article),
    ];
    for (title, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
        let _ = write!(text, "{title}{}\n\n", escape(part));
    }
    let _ = write!(text, "```\n{}\n```\n\n", code(&step.command));
    let Some(data) = &step.data else {
        return text;
    };
    for one in (section.tables)(data) {
        text.push_str(&table(&one));
    }
    let notes: Vec<&str> = list(data, "notes").filter_map(Value::as_str).collect();
    for note in &notes {
        let _ = writeln!(text, "- {}", escape(note));
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    text
}

/// Returns text for a block of code, without characters that could end it.
fn code(text: &str) -> String {
    let is_harmful = |c: char| c == '`' || c.is_control();
    text.replace(is_harmful, " ")
}

fn is_headline(step: &Step) -> bool {
    HEADLINES.contains(&&*step.name)
}

/// Returns the block with the headline figures.
pub fn block(run: &Run) -> String {
    let steps = run.steps.iter().filter(|step| is_headline(step));
    let lines: String = steps.map(line).collect();
    let versions = run.machine.servers.iter();
    let nginx = versions.filter(|(name, _)| Some(name.to_lowercase()) == run.against);
    let nginx: String = nginx
        .map(|(name, version)| format!(", {} {}", escape(name), escape(version)))
        .collect();
    format!(
        "{BEGIN}\n{}{lines}\nMeasured on {} with Sluice {}{nginx}: [all figures](docs/figures.md), and how they were measured.\n{END}",
        placeholder(run),
        escape(&machine_line(&run.machine)),
        escape(&run.version),
    )
}

/// Returns the text of README.md with the block of this record in place of its present one.
///
/// Errors: the text has no block, or the run has no experiment of the block.
pub fn with_block(readme: &str, run: &Run) -> anyhow::Result<String> {
    let (before, rest) = readme
        .split_once(BEGIN)
        .with_context(|| format!("there is no line {BEGIN}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("there is no line {END}"))?;
    let mut shown = run.steps.iter().filter(|step| is_headline(step));
    anyhow::ensure!(
        shown.any(|step| step.data.is_some()),
        "the block would be empty, since the run has no result of {}",
        HEADLINES.join(", ")
    );
    Ok(format!("{before}{}{after}", block(run)))
}
