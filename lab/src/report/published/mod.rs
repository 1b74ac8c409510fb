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

/// Begin of the first line of the block in README.md, whose rest is any text.
const MARK: &str = "<!-- figures: begin";
/// First line of the block, as it is written.
pub const BEGIN: &str = "<!-- figures: begin. Written by `sluice lab figures` -->";
/// Last line of the block.
pub const END: &str = "<!-- figures: end -->";

/// Names of the page and of the record.
const PAGE: &str = "figures.md";
const RECORD: &str = "figures.json";

/// Experiments with several rounds of which records have only medians, and the figures that this holds for.
const MEDIANS_ONLY: [(&str, &str); 4] = [
    ("caching", "throughput of an uncacheable object"),
    ("purge", "cost of purge rules"),
    ("placement", "all figures"),
    ("ramp", "latency at half of the held rate"),
];

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
        (folder.join(RECORD), record),
        (folder.join(PAGE), page(&run)),
    ];
    let create = || {
        fs::create_dir_all(folder)
            .with_context(|| format!("the folder {} can't be created", folder.display()))
    };
    if let Some(readme) = readme {
        let text = fs::read_to_string(readme);
        let text = text.with_context(|| format!("{} can't be read", readme.display()))?;
        let with_block = |page: Option<&str>| {
            let text = with_block(&text, &run, page);
            text.with_context(|| readme.display().to_string())
        };
        // Nothing is created if the block can't be written.
        with_block(None)?;
        create()?;
        let page = path_of_page(folder, readme);
        files.push((readme.to_owned(), with_block(page.as_deref())?));
    }
    create()?;
    for (file, text) in &files {
        fs::write(file, text).with_context(|| format!("{} can't be written", file.display()))?;
    }
    Ok(files.into_iter().map(|(file, _)| file).collect())
}

/// Returns the path of the page in `folder` as the file `readme` can link it; `None` if the page is neither beside that file
/// nor in a folder below, or if its path would have to be escaped.
fn path_of_page(folder: &Path, readme: &Path) -> Option<String> {
    let (folder, readme) = (
        fs::canonicalize(folder).ok()?,
        fs::canonicalize(readme).ok()?,
    );
    let below = folder.strip_prefix(readme.parent()?).ok()?;
    let path = below.join(PAGE).to_str()?.to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    path.chars().all(is_plain).then_some(path)
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
         <!-- Written by `sluice lab figures` from {RECORD}. -->\n\n\
         Figures of Sluice and other servers, all from one run of `sluice lab all` of {}, which took {}, on {}. This page is \
         computed from the [record]({RECORD}){}.\n\n{}",
        run.begun()
            .map_or_else(|| "an unknown date".to_owned(), date),
        duration(run.seconds()),
        escape(&machine_line(&run.machine)),
        recorded(run),
        placeholder(run)
    );
    let _ = write!(
        text,
        "{}{} CPU time of cache hits, and the time to start with a full disk, are no part of such a run: `cargo xtask bench`, in \
         Sluice's repository, measures them.\n\n",
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

/// Returns the end of the sentence about the record, which says of which figures it has the values of all rounds.
fn recorded(run: &Run) -> String {
    let data = |name: &str| {
        let step = run.steps.iter().find(|step| step.name == name);
        step.and_then(|step| step.data.as_ref())
    };
    let exceptions = MEDIANS_ONLY.into_iter().filter_map(|(name, figures)| {
        let has_rounds = |row: &Value| row.get("spread").is_some_and(Value::is_object);
        let figures = match list(data(name)?, "layouts").any(has_rounds) {
            // Records of earlier versions have no rounds of the layouts.
            true => "all figures except the rates of the layouts",
            false => figures,
        };
        Some(format!("{figures} ({})", escape(named(name))))
    });
    let exceptions: Vec<String> = exceptions.collect();
    match exceptions.is_empty() {
        true => ", which has the values of all rounds".to_owned(),
        false => format!(
            ", which has the values of all rounds except for some figures, of which it has medians: {}",
            exceptions.join("; ")
        ),
    }
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
    format!(
        "To make such a page again:\n\n\
         ```\n{run_all} --folder {FOLDER}\n\
         sluice lab figures {FOLDER}/run.json\n```\n\n"
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

/// Returns the block with the headline figures. `page` is the path of the page, if the block can link it.
pub fn block(run: &Run, page: Option<&str>) -> String {
    let steps = run.steps.iter().filter(|step| is_headline(step));
    let lines: String = steps.map(line).collect();
    let versions = run.machine.servers.iter();
    let nginx = versions.filter(|(name, _)| Some(name.to_lowercase()) == run.against);
    let nginx: String = nginx
        .map(|(name, version)| format!(", {} {}", escape(name), escape(version)))
        .collect();
    let all = match page {
        Some(page) => format!("[all figures]({page}), and how they were measured."),
        None => format!("all figures, and how they were measured, are in {PAGE}."),
    };
    format!(
        "{BEGIN}\n{}{lines}\nMeasured on {} with Sluice {}{nginx}: {all}\n{END}",
        placeholder(run),
        escape(&machine_line(&run.machine)),
        escape(&run.version),
    )
}

/// Returns the text of README.md with the block of this record in place of its present one. `page` is the path of the page,
/// if the block can link it.
///
/// Errors: the text has no block, or the run has no experiment of the block.
pub fn with_block(readme: &str, run: &Run, page: Option<&str>) -> anyhow::Result<String> {
    let (before, rest) = readme
        .split_once(MARK)
        .with_context(|| format!("there is no line {MARK} … -->"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("there is no line {END}"))?;
    let mut shown = run.steps.iter().filter(|step| is_headline(step));
    anyhow::ensure!(
        shown.any(|step| step.data.is_some()),
        "the block would be empty, since the run has no result of {}",
        HEADLINES.join(", ")
    );
    Ok(format!("{before}{}{after}", block(run, page)))
}
