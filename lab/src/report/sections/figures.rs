//! The table of figures with their goals, and the sections of experiments that have nothing else.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured};
use super::super::values::{MISSING, digits, list, number, text, time};
use super::Section;

pub(super) const CACHING: Section = Section {
    name: "caching",
    title: "Crowds, failing origins, short lifetimes",
    question: "What do many clients cost an origin, and what do they receive when the origin fails?",
    method: "A crowd of clients requests one uncached object at the same time, then one that must not be stored. An \
             origin fails while its objects are stale. A page that lives for one second is requested at a constant \
             rate. Latencies count from the scheduled time of each request.",
    article: "",
    summary: caching,
    body: table_and_notes,
    tables: |data| vec![table(data)],
};

pub(super) const PURGE: Section = Section {
    name: "purge",
    title: "Purging by tag",
    question: "How long does a purge by tag take among many objects, and what do purge rules cost each hit?",
    method: "Small objects fill the cache; a tenth of them has a tag, which is then purged. Samples of both kinds are \
             requested before and after. The cost per hit is that of one instance with purge rules beside one without.",
    article: "",
    summary: purge,
    body: table_and_notes,
    tables: |data| vec![table(data)],
};

fn caching(data: &Value) -> Vec<String> {
    let requests = figure(data, "crowd").and_then(|figure| number(figure, "sluice"));
    let clients = number(data, "clients");
    let crowd = requests.zip(clients).map(|(requests, clients)| {
        let nginx = rival_of(data, "crowd", |value| format!("; nginx sent {value}"));
        format!(
            "A crowd of {} clients for one uncached object made Sluice send {} to the origin{nginx}.",
            measured(&digits(clients)),
            measured(&counted(requests, "request"))
        )
    });
    let dead = goals_met(data);
    crowd.into_iter().chain(dead).collect()
}

fn purge(data: &Value) -> Vec<String> {
    let value = |key| figure(data, key).and_then(|figure| number(figure, "sluice"));
    let took = value("purge_ms").map(|ms| {
        let objects = number(data, "objects").map_or_else(|| "all".to_owned(), digits);
        let tagged = number(data, "tagged").map_or_else(|| MISSING.to_owned(), digits);
        let (before, after) = match (value("purge_kept"), value("purge_lost")) {
            (Some(0.0), Some(0.0)) => ("was in force after", String::new()),
            (Some(kept), Some(lost)) => ("was answered after", not_in_force(kept, lost)),
            _ => (
                "was answered after",
                "; whether it was in force then was not measured".to_owned(),
            ),
        };
        format!(
            "A purge by tag of {} among {} objects {before} {}{after}.",
            measured(&tagged),
            measured(&objects),
            measured(&time(Some(ms)))
        )
    });
    took.into_iter().collect()
}

/// Returns the end of the sentence about a purge after which samples were not as they should be: `kept` ones with the tag
/// were hits, and `lost` ones without the tag were none.
fn not_in_force(kept: f64, lost: f64) -> String {
    format!(
        ", but of the samples that were requested then, {} with the tag still were hits, and {} without it were none",
        measured(&digits(kept)),
        measured(&digits(lost))
    )
}

/// Formats a number with a noun in singular or plural.
pub(super) fn counted(number: f64, noun: &str) -> String {
    let plural = if number == 1.0 { "" } else { "s" };
    format!("{} {noun}{plural}", digits(number))
}

/// Returns the figure with this key.
pub(super) fn figure<'a>(data: &'a Value, key: &str) -> Option<&'a Value> {
    list(data, "figures").find(|figure| text(figure, "key") == Some(key))
}

/// Returns a phrase with the rival's value of a figure as HTML; empty if it was not measured.
fn rival_of(data: &Value, key: &str, phrase: fn(&str) -> String) -> String {
    let value = figure(data, key).and_then(|figure| number(figure, "rival"));
    value.map_or_else(String::new, |value| phrase(&measured(&digits(value))))
}

/// Returns a sentence with the number of goals that were reached; `None` without goals.
pub(super) fn goals_met(data: &Value) -> Option<String> {
    let share = reached(data, "goal")?;
    Some(format!("{share} goals of this experiment were reached."))
}

/// Returns the share of the figures with a goal that reached it, as in `3 of 4`, as HTML, with the number of those that were
/// not measured; `None` without goals. `goal`: the field with the goal or the wanted value.
pub(super) fn reached(data: &Value, goal: &str) -> Option<String> {
    let has_goal = |figure: &&Value| {
        let has_goal = figure.get(goal).is_some_and(|goal| !goal.is_null());
        has_goal || met(figure).is_some()
    };
    let goals: Vec<Option<bool>> = list(data, "figures").filter(has_goal).map(met).collect();
    let count = |wanted: Option<bool>| goals.iter().filter(|met| **met == wanted).count();
    let unknown = match count(None) {
        0 => String::new(),
        unknown => format!(" ({} not measured)", measured(&unknown.to_string())),
    };
    (!goals.is_empty()).then(|| {
        let reached = measured(&count(Some(true)).to_string());
        format!("{reached} of {}{unknown}", goals.len())
    })
}

/// Returns whether a figure reached its goal; `None` without a goal or a measured value.
fn met(figure: &Value) -> Option<bool> {
    let met = figure.get("met").and_then(Value::as_bool);
    met.filter(|_| !is_no_time(figure, "sluice"))
}

/// Whether this value of a figure is a time of zero, which earlier records have if there was no good response.
fn is_no_time(figure: &Value, name: &str) -> bool {
    text(figure, "unit") == Some("ms") && number(figure, name) == Some(0.0)
}

/// Renders the table of figures and the notes.
pub(super) fn table_and_notes(data: &Value) -> String {
    format!("{}{}", table(data).render(), notes(data))
}

/// Returns the table of figures: Sluice's beside the rival's and the goal.
pub(super) fn table(data: &Value) -> Table {
    let rival = text(data, "rival").unwrap_or("rival");
    let has_rival = list(data, "figures").any(|figure| number(figure, "rival").is_some());
    let mut titles = vec!["figure", "unit", "Sluice here"];
    let here = format!("{rival} here");
    titles.extend(has_rival.then_some(&*here));
    titles.extend(["goal", "reached"]);
    let mut table = Table::new("Figures and their goals", &titles);
    for figure in list(data, "figures") {
        let value = |name| match number(figure, name) {
            Some(value) if !is_no_time(figure, name) => Cell::measured(digits(value)),
            _ => Cell::chosen(MISSING),
        };
        let mut cells = vec![
            Cell::text(text(figure, "unit").unwrap_or_default()),
            value("sluice"),
        ];
        cells.extend(has_rival.then(|| value("rival")));
        cells.push(Cell::chosen(goal(figure)));
        cells.push(Cell::verdict(met(figure)));
        table.row(text(figure, "what").unwrap_or_default(), cells);
    }
    table
}

fn goal(figure: &Value) -> String {
    let bound = |path, sign| number(figure, path).map(|value| format!("{sign} {}", digits(value)));
    let goal = bound("goal.most", "≤").or_else(|| bound("goal.least", "≥"));
    goal.unwrap_or_default()
}

/// Renders the experiment's remarks.
pub(super) fn notes(data: &Value) -> String {
    let notes: String = list(data, "notes")
        .filter_map(Value::as_str)
        .map(|note| format!("<li>{}</li>\n", escape(note)))
        .collect();
    match notes.is_empty() {
        true => notes,
        false => format!("<h3>Remarks</h3>\n<ul>\n{notes}</ul>\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn goals_without_a_measured_figure_count() {
        let figure = |goal: Value, met: Option<bool>| json!({ "goal": goal, "met": met });
        let goal = || json!({ "most": 1.0 });
        let mut data = json!({ "figures": [
            figure(goal(), Some(true)), figure(goal(), Some(false)), figure(Value::Null, None)] });
        let sentence = |data: &Value| goals_met(data).expect("goals");
        assert_eq!(
            sentence(&data),
            "<b class=\"m\">1</b> of 2 goals of this experiment were reached."
        );
        data["figures"][1]["met"] = Value::Null;
        assert_eq!(
            sentence(&data),
            "<b class=\"m\">1</b> of 2 (<b class=\"m\">1</b> not measured) goals of this experiment were reached."
        );
        assert_eq!(goals_met(&json!({ "figures": [{}] })), None);
    }

    #[test]
    fn a_time_of_zero_is_not_measured() {
        let figure = |unit: &str| json!({ "what": "p99", "unit": unit, "sluice": 0.0, "goal": { "most": 2.0 }, "met": true });
        let table = table(&json!({ "figures": [figure("ms"), figure("requests")] }));
        let texts = |row: usize| {
            let cells = table.rows()[row].iter().map(Cell::value);
            cells.collect::<Vec<_>>()
        };
        assert_eq!(texts(0), ["p99", "ms", MISSING, "≤ 2", ""]);
        assert_eq!(texts(1), ["p99", "requests", "0", "≤ 2", "yes"]);
    }

    #[test]
    fn a_purge_is_in_force_only_if_all_samples_are_as_they_should_be() {
        let data = |kept: Option<f64>, lost: Option<f64>| {
            let figure = |key: &str, value: Option<f64>| json!({ "key": key, "sluice": value });
            json!({ "objects": 1000, "tagged": 100, "figures": [
                figure("purge_ms", Some(2.0)), figure("purge_kept", kept), figure("purge_lost", lost)] })
        };
        let begin =
            "A purge by tag of <b class=\"m\">100</b> among <b class=\"m\">1,000</b> objects was";
        let of = |kept, lost| purge(&data(kept, lost)).join(" ");
        assert_eq!(
            of(Some(0.0), Some(0.0)),
            format!("{begin} in force after <b class=\"m\">2 ms</b>.")
        );
        let kept = of(Some(3.0), Some(0.0));
        assert!(
            kept.starts_with(&format!(
                "{begin} answered after <b class=\"m\">2 ms</b>, but of the samples"
            )),
            "{kept}"
        );
        assert!(
            kept.contains("<b class=\"m\">3</b> with the tag still were hits, and <b class=\"m\">0</b> without it were none."),
            "{kept}"
        );
        let lost = of(Some(0.0), Some(7.0));
        assert!(
            lost.contains("<b class=\"m\">7</b> without it were none"),
            "{lost}"
        );
        for unknown in [of(None, Some(0.0)), of(Some(0.0), None)] {
            assert!(
                unknown.ends_with("; whether it was in force then was not measured."),
                "{unknown}"
            );
        }
    }
}
