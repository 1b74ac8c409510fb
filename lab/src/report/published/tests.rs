//! Tests of the published figures: page and README.md are what the record gives, and every value comes from it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::tests::{changed, run};
use super::*;
use crate::spread::Spread;

const PUBLISHED_RECORD: &str = include_str!("../../../../docs/figures.json");
const PUBLISHED_PAGE: &str = include_str!("../../../../docs/figures.md");
const README: &str = include_str!("../../../../README.md");

fn record() -> Run {
    serde_json::from_str(PUBLISHED_RECORD).expect("docs/figures.json is the record of a run")
}

#[test]
fn page_and_readme_are_what_the_record_gives() {
    let run = record();
    let advice = "run `cargo xtask figures --run docs/figures.json`";
    let is_same = page(&run) == PUBLISHED_PAGE;
    assert!(is_same, "docs/figures.md is stale: {advice}");
    let readme = with_block(README, &run, Some("docs/figures.md")).expect("a block");
    assert!(readme == README, "README.md is stale: {advice}");
    assert!(trimmed(&run) == run, "docs/figures.json is not trimmed");
    let written = format!("{}\n", serde_json::to_string_pretty(&run).expect("JSON"));
    let is_same = written == PUBLISHED_RECORD;
    assert!(is_same, "docs/figures.json was edited");
}

#[test]
fn medians_are_recomputed_from_the_rounds() {
    let mut spreads = 0;
    let mut check = |value: &Value| {
        let Ok(spread) = serde_json::from_value::<Spread>(value.clone()) else {
            return;
        };
        let again = Spread::of(spread.rounds.clone()).expect("rounds");
        let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs();
        assert!(
            is_near(spread.median, again.median)
                && is_near(spread.low, again.low)
                && is_near(spread.high, again.high),
            "{spread:?}"
        );
        spreads += 1;
    };
    for run in [record(), run()] {
        for data in run.steps.iter().filter_map(|step| step.data.as_ref()) {
            each(data, &mut check);
            for row in list(data, "rows") {
                same_medians(row, &row["spread"]);
            }
        }
    }
    assert!(spreads > 100, "{spreads}");
}

/// Calls `check` for a value and all values in it.
fn each(value: &Value, check: &mut dyn FnMut(&Value)) {
    check(value);
    match value {
        Value::Array(list) => list.iter().for_each(|value| each(value, check)),
        Value::Object(object) => object.values().for_each(|value| each(value, check)),
        _ => {}
    }
}

/// Checks that the values of a row are the medians of the spreads with the same names.
fn same_medians(row: &Value, spreads: &Value) {
    for (name, spread) in spreads.as_object().into_iter().flatten() {
        match (row[name].as_f64(), spread["median"].as_f64()) {
            (Some(value), Some(median)) => assert!((value - median).abs() <= 1e-9 * median.abs()),
            _ => same_medians(&row[name], spread),
        }
    }
}

#[test]
fn the_page_of_the_trimmed_record_is_the_same() {
    let full = run();
    let small = trimmed(&full);
    let (one, other) = (page(&small), page(&full));
    let differ = one
        .lines()
        .zip(other.lines())
        .find(|(one, other)| one != other);
    assert_eq!(differ, None);
    assert!(block(&small, None) == block(&full, None));
    let size = |run: &Run| serde_json::to_string(run).expect("JSON").len();
    assert!(size(&small) < size(&full) * 8 / 10);
    for gone in ["windows", "configurations", "p50_us\":310"] {
        assert!(!serde_json::to_string(&small).expect("JSON").contains(gone));
    }
}

/// Returns all measured values of the page in their order: cells of tables, and the bold texts of sentences.
fn values(run: &Run) -> Vec<String> {
    let mut tables = vec![peers::table(run)];
    let mut values = Vec::new();
    for step in &run.steps {
        let data = step.data.as_ref().expect("data");
        tables.extend((sections::of(&step.name).tables)(data));
        let line = line(step);
        let (_, sentences) = line.split_once(":** ").expect("a title");
        let bold = sentences.split("**").skip(1).step_by(2);
        values.extend(bold.map(str::to_owned).filter(|text| text != "Fallback:"));
    }
    let page = page(run);
    for one in &tables {
        assert!(page.contains(&table(one)), "{}", one.caption());
        let cells = one.rows().iter().flatten();
        let measured = cells.filter(|cell| cell.is_measured());
        values.extend(measured.map(|cell| cell.value().to_owned()));
    }
    values
}

#[test]
fn every_value_of_the_page_comes_from_the_record() {
    let before = run();
    let mut after = before.clone();
    let mut dice = crate::noise::Dice::new(11, 0);
    for step in &mut after.steps {
        step.data = step.data.as_ref().map(|data| changed(data, &mut dice));
    }
    let (before, after) = (values(&before), values(&after));
    assert!(before.len() > 300, "{}", before.len());
    assert_eq!(before.len(), after.len());
    let pairs = before.iter().zip(&after);
    let same: BTreeSet<&String> = pairs
        .filter(|(one, other)| one == other)
        .map(|(one, _)| one)
        .filter(|text| !super::super::tests::is_independent(text))
        .collect();
    assert_eq!(same, BTreeSet::new());
}

#[test]
fn text_of_the_record_cannot_break_the_page() {
    let mut run = run();
    for step in &mut run.steps {
        step.command = "```\n# x".to_owned();
        step.error = Some("\n# <b>`".to_owned());
    }
    run.machine.processor = Some("A <b> | `x`\n# y".to_owned());
    let page = page(&run);
    assert!(!page.contains("<b>") && !page.contains("\n# x") && !page.contains("\n# y"));
    let headings = page.lines().filter(|line| line.starts_with("# ")).count();
    assert_eq!(headings, 1);
}

#[test]
fn a_placeholder_says_so_and_a_release_run_does_not() {
    let mut run = run();
    run.quick = true;
    run.profile = "debug".to_owned();
    for text in [page(&run), block(&run, None)] {
        assert!(text.contains("> **Placeholder.**"), "{text}");
        assert!(text.contains("debug build") && text.contains("quick one"));
    }
    run.quick = false;
    run.profile = "release".to_owned();
    for text in [page(&run), block(&run, None)] {
        assert!(!text.contains("Placeholder"), "{text}");
    }
}

#[test]
fn failed_and_left_out_experiments_and_caveats_are_on_the_page() {
    let page = page(&run());
    for words in [
        "The experiment failed: error: 3 responses with wrong bytes",
        "left out: run it as \\<root\\>.",
        "nginx at least **9,007/s**",
        "**Fallback:**",
        "| rate of 5 KB files held with a connection for each request, one core | 9,007/s | at least 9,007/s | Apache 9,007/s |",
        "| storm while files change: bodies cut | auto 11 | slice at least 11 | not measured |",
        "| storm of ranges: bytes sent by the origin over distinct blocks | auto 1.00 × | slice 1.16 × (ended early) |",
        "\nsluice lab all --against nginx --quick --folder sluice-figures\n\
         sluice lab figures sluice-figures/run.json\n",
        "\nValues are medians of several rounds where",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn the_command_names_the_chosen_experiments() {
    let mut run = run();
    run.left_out[0].why = NOT_CHOSEN.to_owned();
    run.steps.truncate(2);
    let expected = "again:\n\n```\nsluice lab all --against nginx --quick --only byte-range --only storm --folder ";
    assert!(page(&run).contains(expected), "{}", page(&run));
    run.quick = false;
    assert!(!page(&run).contains("--quick"), "{}", page(&run));
    run.left_out.clear();
    let expected = "again:\n\n```\nsluice lab all --against nginx --folder ";
    assert!(page(&run).contains(expected), "{}", page(&run));
}

#[test]
fn the_page_says_of_which_figures_the_record_has_only_medians() {
    let mut run = run();
    let text = page(&run);
    let expected = "computed from the [record](figures.json), which has the values of all rounds except for some figures, of which \
                    it has medians: throughput of an uncacheable object (Crowds, failing origins, short lifetimes); cost of purge \
                    rules (Purging by tag); all figures (Caches on slow disks); latency at half of the held rate (Short \
                    connections at a rising rate).\n";
    assert!(text.contains(expected), "{text}");
    run.steps
        .retain(|step| ["storm", "placement"].contains(&&*step.name));
    let data = run.steps[1].data.as_mut().expect("data");
    data["layouts"][0]["spread"] = serde_json::json!({});
    let expected = "medians: all figures except the rates of the layouts (Caches on slow disks).\n";
    assert!(page(&run).contains(expected), "{}", page(&run));
    run.steps.truncate(1);
    let expected =
        "computed from the [record](figures.json), which has the values of all rounds.\n";
    assert!(page(&run).contains(expected), "{}", page(&run));
}

#[test]
fn texts_fit_every_project_and_every_folder() {
    let page = page(&run());
    for wrong in ["this project", "A test compares", "lab.md", "xtask figures"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let readme = folder.path().join("here/README.md");
    fs::create_dir(folder.path().join("here")).expect("a folder");
    for (place, expected) in [
        ("here", "[all figures](figures.md), and how"),
        ("here/a/b", "[all figures](a/b/figures.md), and how"),
        ("here/a b", "how they were measured, are in figures.md."),
        ("there", "how they were measured, are in figures.md."),
    ] {
        // The rest of the first line may be any text.
        fs::write(&readme, format!("{MARK}. Put them here -->\n{END}\n")).expect("written");
        publish(&run(), &folder.path().join(place), Some(&readme)).expect("written");
        let text = fs::read_to_string(&readme).expect("a file");
        assert!(text.contains(expected), "{text}");
        assert!(text.starts_with(&format!("{BEGIN}\n")), "{text}");
    }
}

#[test]
fn a_run_with_one_round_has_no_medians() {
    let mut run = run();
    run.steps.truncate(1);
    run.steps[0].data = Some(serde_json::json!({ "rounds": 1,
        "rows": [{ "name": "Sluice auto", "spread": { "median": 1.0, "low": 1.0, "high": 1.0, "rounds": [1.0] } }] }));
    let page = page(&run);
    assert!(page.contains("Each value comes from one round"), "{page}");
    assert!(!page.contains("edians of several"), "{page}");
}

#[test]
fn an_empty_block_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let readme = folder.path().join("README.md");
    fs::write(&readme, format!("{BEGIN}\n{END}\n")).expect("written");
    let mut run = run();
    run.steps.retain(|step| step.name == "budget");
    let new = folder.path().join("new/docs");
    let error = publish(&run, &new, Some(&readme)).expect_err("empty");
    assert!(
        format!("{error:#}").contains("the block would be empty"),
        "{error:#}"
    );
    assert!(!new.exists());
    // The page alone can be published, in a folder that is created.
    assert_eq!(publish(&run, &new, None).expect("written").len(), 2);
    assert!(new.join("figures.md").exists());
}

#[test]
fn files_are_written_and_only_the_block_of_the_readme_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let readme = folder.path().join("README.md");
    fs::write(&readme, "a\n").expect("written");
    assert!(publish(&run(), folder.path(), Some(&readme)).is_err());
    assert!(!folder.path().join("figures.md").exists());
    fs::write(&readme, format!("a\n{BEGIN}\nstale block\n{END}\nz\n")).expect("written");
    let files = publish(&run(), folder.path(), Some(&readme)).expect("written");
    assert_eq!(files.len(), 3);
    let text = fs::read_to_string(&readme).expect("a file");
    assert!(text.starts_with(&format!("a\n{BEGIN}\n")) && text.ends_with(&format!("{END}\nz\n")));
    assert!(!text.contains("stale block"));
    let record = fs::read_to_string(folder.path().join("figures.json")).expect("a file");
    let record: Run = serde_json::from_str(&record).expect("a record");
    assert!(fs::read_to_string(folder.path().join("figures.md")).expect("a file") == page(&record));
}
