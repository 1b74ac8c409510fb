//! The section of the WAN emulator.

use serde_json::Value;

use super::super::page::{Cell, Table, measured};
use super::super::values::{digits, list, number, text, with_unit};
use super::{Section, figures};

pub(super) const SECTION: Section = Section {
    name: "wan",
    title: "The emulated long-distance link",
    question: "Does the emulated link have the delay, loss and rate that it should have?",
    method: "Two network namespaces are connected through a model of the link: jitter, queue, rate, loss, delay. Packets \
             are sent through it and counted. The experiment with connections to a far server uses this link.",
    article: "",
    summary,
    body,
    tables: |data| vec![table(data)],
};

/// Returns the sentence about the fallback.
pub(super) fn fallback() -> String {
    "<strong>Fallback:</strong> in place of the emulated link there was a relay of TCP connections, which loses no packets \
     and whose times are less exact."
        .to_owned()
}

/// Whether the relay took the place of the emulator.
fn is_fallback(data: &Value) -> bool {
    data.get("fallback").and_then(Value::as_bool) == Some(true)
}

fn summary(data: &Value) -> Vec<String> {
    figures::goals_met(data)
        .map(|_| accurate(data))
        .into_iter()
        .chain(is_fallback(data).then(fallback))
        .collect()
}

fn accurate(data: &Value) -> String {
    let met = list(data, "figures").filter_map(|figure| figure.get("met")?.as_bool());
    let (good, all) = met.fold((0, 0), |(good, all), met| (good + u32::from(met), all + 1));
    format!(
        "The emulated link was accurate in {} of {all} properties.",
        measured(&good.to_string())
    )
}

fn body(data: &Value) -> String {
    let remark = match is_fallback(data) {
        true => format!("<p>{}</p>\n", fallback()),
        false => String::new(),
    };
    remark + &table(data).render() + &figures::notes(data)
}

fn table(data: &Value) -> Table {
    let titles = [
        "property",
        "unit",
        "wanted",
        "tolerance",
        "measured",
        "accurate",
    ];
    let mut table = Table::new("Wanted beside measured", &titles);
    for figure in list(data, "figures") {
        let chosen = |path| Cell::chosen(number(figure, path).map_or_else(String::new, digits));
        let cells = [
            Cell::text(text(figure, "unit").unwrap_or_default()),
            chosen("wanted"),
            chosen("tolerance"),
            Cell::measured(with_unit(number(figure, "measured"), "")),
            Cell::verdict(figure.get("met").and_then(Value::as_bool)),
        ];
        table.row(text(figure, "what").unwrap_or_default(), cells);
    }
    table
}
