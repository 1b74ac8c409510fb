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
        format!(
            "A purge by tag of {} among {} objects was in force after {}.",
            measured(&tagged),
            measured(&objects),
            measured(&time(Some(ms)))
        )
    });
    took.into_iter().collect()
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
    let met = list(data, "figures").filter_map(|figure| figure.get("met")?.as_bool());
    let (reached, all) = met.fold((0, 0), |(reached, all), met| {
        (reached + u32::from(met), all + 1)
    });
    (all > 0).then(|| {
        format!(
            "{} of {all} goals of this experiment were reached.",
            measured(&reached.to_string())
        )
    })
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
            Some(value) => Cell::measured(digits(value)),
            None => Cell::chosen(MISSING),
        };
        let mut cells = vec![
            Cell::text(text(figure, "unit").unwrap_or_default()),
            value("sluice"),
        ];
        cells.extend(has_rival.then(|| value("rival")));
        cells.push(Cell::chosen(goal(figure)));
        cells.push(Cell::verdict(figure.get("met").and_then(Value::as_bool)));
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
