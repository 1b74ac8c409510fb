//! Tests of the whole page: it is a function of its own record, and every measured figure on it comes from there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Run;
use super::html::{record_of, render};

/// Returns the record of an invented run, which has every experiment, a failed one and an unknown one. Most of its numbers
/// differ.
pub(super) fn run() -> Run {
    serde_json::from_str(include_str!("sample.json")).expect("the record of a run")
}

/// Numbers that name a row or a point.
const NAMES: [&str; 5] = ["places", "times", "exponent", "begin", "at"];

/// Changes every number of an experiment's report by another factor, and every flag. Numbers that name something stay.
pub(super) fn changed(value: &Value, dice: &mut crate::noise::Dice) -> Value {
    match value {
        Value::Number(number) => {
            let factor = dice.between(1100, 1900) as f64 / 1000.0;
            json!(number.as_f64().unwrap_or_default() * factor + 0.000_321)
        }
        Value::Array(list) => list.iter().map(|value| changed(value, dice)).collect(),
        Value::Object(object) => {
            let mut field = |(name, value): (&String, &Value)| {
                let value = match NAMES.contains(&name.as_str()) {
                    true => value.clone(),
                    false => changed(value, dice),
                };
                (name.clone(), value)
            };
            Value::Object(object.iter().map(&mut field).collect())
        }
        Value::Bool(flag) => json!(!flag),
        other => other.clone(),
    }
}

/// Returns the texts of all elements with a measured value, in their order.
fn measured(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in page.split(" class=\"m\">").skip(1) {
        // Titles of columns have this class, too.
        if let Some((text, rest)) = part.split_once("</")
            && !rest.starts_with("th>")
        {
            found.push(text.replace('\u{a0}', " "));
        }
    }
    found
}

/// Returns the page without the raw data.
fn visible(page: &str) -> &str {
    page.split_once("<section class=\"card\" id=\"raw\">")
        .map_or(page, |(before, _)| before)
}

#[test]
fn a_page_is_rendered_again_from_its_own_record() {
    let run = run();
    let page = render(&run);
    let record = record_of(&page).expect("a record");
    assert_eq!(record, run);
    assert!(render(&record) == page, "the pages differ");
}

#[test]
fn numbers_survive_the_record_exactly() {
    let mut dice = crate::noise::Dice::new(1, 2);
    let mut run = run();
    // Numbers with 17 digits, as divisions give them.
    let values: Vec<f64> = (0..20_000)
        .map(|_| dice.below(1 << 53) as f64 / 1e7 / 3.0)
        .collect();
    run.steps[0].data = Some(json!({ "values": values }));
    assert!(record_of(&render(&run)).expect("a record") == run);
}

#[test]
fn every_measured_figure_comes_from_the_record() {
    let before = run();
    let mut after = before.clone();
    let mut dice = crate::noise::Dice::new(7, 0);
    for step in &mut after.steps {
        step.data = step.data.as_ref().map(|data| changed(data, &mut dice));
        step.seconds *= 17.0;
    }
    let (before, after) = (render(&before), render(&after));
    let (before, after) = (measured(visible(&before)), measured(visible(&after)));
    assert!(before.len() > 500, "{}", before.len());
    assert_eq!(before.len(), after.len());
    let same: BTreeSet<&String> = before
        .iter()
        .zip(&after)
        .filter(|(one, other)| one == other)
        .map(|(one, _)| one)
        .collect();
    let known: BTreeSet<&String> = same
        .iter()
        .copied()
        .filter(|text| !is_independent(text))
        .collect();
    assert_eq!(known, BTreeSet::new());
}

/// Whether a text does not depend on the numbers: no value, or a name that is a text in the record.
pub(super) fn is_independent(text: &str) -> bool {
    text.is_empty() || text == super::values::MISSING || text == "-"
}

#[test]
fn one_changed_value_changes_the_page_in_its_places() {
    let run = run();
    let mut other = run.clone();
    let cold = other.steps[0]
        .data
        .as_mut()
        .and_then(|data| data.pointer_mut("/rows/1/ms/cold/total"));
    *cold.expect("a time") = json!(123.4);
    let (before, after) = (render(&run), render(&other));
    let (before, after) = (measured(visible(&before)), measured(visible(&after)));
    let differ: Vec<(&String, &String)> = before
        .iter()
        .zip(&after)
        .filter(|(one, other)| one != other)
        .collect();
    assert!((2..=5).contains(&differ.len()), "{differ:?}");
    for (one, other) in differ {
        assert_eq!((one.as_str(), other.as_str()), ("5.30 ms", "123 ms"));
    }
}

#[test]
fn text_of_the_record_cannot_break_the_page() {
    let page = render(&run());
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(!page.contains("<!--") && !page.contains("<port>") && !page.contains("<fast>"));
    assert!(!page.contains("<root>") && !page.contains("<note>"));
    // The only script is the data.
    assert_eq!(page.matches("<script").count(), 1);
    for external in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(external), "{external}");
    }
}

/// Adds markup and control characters to every text and every name of a field, except those that sections look for.
fn hostile(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}</script><b id='x\"\u{1b}[2J\u{9b}")),
        Value::Array(list) => list.iter().map(hostile).collect(),
        Value::Object(object) => {
            let mut fields: serde_json::Map<String, Value> = object
                .iter()
                .map(|(name, value)| (name.clone(), hostile(value)))
                .collect();
            fields.insert("<b id='y\u{1b}".to_owned(), json!(1));
            Value::Object(fields)
        }
        other => other.clone(),
    }
}

#[test]
fn hostile_names_in_a_record_cannot_break_the_page() {
    let mut run = run();
    for step in &mut run.steps {
        step.data = step.data.as_ref().map(hostile);
        step.error = Some("<b id='z\u{1b}".to_owned());
    }
    let unknown = run.steps.len() - 1;
    run.steps[unknown].name = "\"><b id='w'>\u{1b}".to_owned();
    let page = render(&run);
    assert!(!page.contains("<b id"), "an element of the record");
    let is_bad = |c: char| c.is_control() && c != '\n';
    let visible = visible(&page);
    assert_eq!(visible.chars().find(|c| is_bad(*c)), None);
    assert_eq!(page.matches("</script>").count(), 1);
    assert_eq!(record_of(&page).expect("a record"), run);
}

/// Returns the summary of a page.
fn summary(page: &str) -> &str {
    let (_, rest) = page.split_once("id=\"summary\">").expect("a summary");
    rest.split_once("</section>").expect("an end").0
}

#[test]
fn lower_bounds_fallbacks_failures_and_what_is_left_out_are_in_the_summary() {
    let mut run = run();
    let page = render(&run);
    let caveats = [
        // The load generator limited nginx.
        "Sluice held <b class=\"m\">9,007/s</b>",
        "nginx at least <b class=\"m\">",
        "<strong>Fallback:</strong>",
        "Left out: run it as &lt;root&gt;.",
        "The experiment failed: error: 3 responses with wrong bytes",
        "Not measured, since a request failed: Sluice lock, nginx &lt;odd&gt;.",
        "The time limit ended the storm before all requests were sent: nginx",
    ];
    for caveat in caveats {
        assert!(
            summary(&page).contains(caveat),
            "{caveat}: {}",
            summary(&page)
        );
    }
    // Both the link and the experiment that uses it.
    assert_eq!(
        summary(&page).matches("<strong>Fallback:</strong>").count(),
        2
    );
    for cell in ["at\u{a0}least\u{a0}81,007/s", "at\u{a0}most\u{a0}1.07"] {
        assert!(page.contains(cell), "{cell}");
    }
    for step in &mut run.steps {
        step.error = None;
        let text = step.data.as_ref().map(Value::to_string).unwrap_or_default();
        let text = ["limited", "fallback", "ended_early"]
            .iter()
            .fold(text, |text, flag| {
                text.replace(&format!("\"{flag}\":true"), &format!("\"{flag}\":false"))
            });
        let text = text.replace("\"error\":\"no response\"", "\"error\":null");
        let text = text.replace("\"load_busy\":0.97", "\"load_busy\":0.5");
        step.data = serde_json::from_str(&text).expect("JSON");
    }
    run.left_out.clear();
    let page = render(&run);
    for caveat in [
        "at least",
        "Fallback",
        "Left out",
        "experiment failed",
        "The time limit",
    ] {
        assert!(!summary(&page).contains(caveat), "{caveat}");
    }
    assert!(!page.contains("at\u{a0}least") && !page.contains("at\u{a0}most"));
}

#[test]
fn bytes_are_said_to_be_sent_or_stored() {
    let page = render(&run());
    for words in [
        "Sluice sent its clients <b",
        "Sluice stored <b",
        "the origin had sent",
        "For four ranges the origin sent",
        "The origin sent <b",
        "nginx here, sent to clients",
        "Sluice here, stored on disks",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn the_kind_of_a_virtual_machines_disk_is_not_shown() {
    let mut run = run();
    assert!(render(&run).contains("ext4 on /dev/sda, not rotating, "));
    run.machine.is_virtual = Some(true);
    let page = render(&run);
    let (_, machine) = page.split_once("id=\"machine\"").expect("the machine");
    let (machine, _) = machine.split_once("id=\"raw\"").expect("the record");
    assert!(machine.contains("ext4 on /dev/sda, 16 GiB free"));
    assert!(!machine.contains("rotating"), "{machine}");
}

#[test]
fn a_debug_build_is_marked() {
    let mut run = run();
    assert!(!render(&run).contains("Debug build."));
    run.profile = "debug".to_owned();
    assert!(render(&run).contains("Debug build."));
}

#[test]
fn a_quick_run_and_failures_are_marked() {
    let mut run = run();
    let page = render(&run);
    assert_eq!(
        page.matches("class=\"badge\">quick").count(),
        run.steps.len()
    );
    assert!(page.contains("Quick run.") && page.contains("3 responses with wrong bytes"));
    assert!(page.contains("nginx needed") || page.contains("nginx with slices needed"));
    run.quick = false;
    let page = render(&run);
    assert!(!page.contains("class=\"badge\">quick") && !page.contains("Quick run."));
}

#[test]
fn missing_values_are_not_measured_and_nothing_panics() {
    let odd = [
        json!(null),
        json!({}),
        json!([]),
        json!(7),
        json!({ "rows": {}, "figures": 3, "layouts": [null, 1], "ramps": [{}], "measurements": [{ "proxy": "Sluice" }] }),
        json!({ "rows": [{ "name": "Sluice auto" }, { "ms": 3 }], "sieges": [{ "name": "Sluice" }], "marks": [{}],
            "ramps": [{ "name": "Sluice", "windows": [{}, {}] }], "figures": [{}], "layouts": [{ "name": "Sluice single" }] }),
    ];
    for data in odd {
        let mut run = run();
        for step in &mut run.steps {
            step.data = Some(data.clone());
        }
        let page = render(&run);
        assert!(page.contains(super::values::MISSING));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{data}");
    }
    let mut run = run();
    run.steps.clear();
    assert!(render(&run).contains("not run"));
}
