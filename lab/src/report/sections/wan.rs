//! The section of the WAN emulator.

use serde_json::Value;

use super::super::page::{Cell, Table};
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
    let accurate = figures::reached(data, "wanted")
        .map(|share| format!("The emulated link was accurate in {share} properties."));
    let fallback = is_fallback(data).then(fallback);
    accurate.into_iter().chain(fallback).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn properties_that_were_not_measured_count() {
        let figure =
            |wanted: Option<f64>, met: Option<bool>| json!({ "wanted": wanted, "met": met });
        let data = json!({ "figures": [
            figure(Some(80.0), Some(true)), figure(Some(100.0), None), figure(None, None)] });
        assert_eq!(
            summary(&data),
            [
                "The emulated link was accurate in <b class=\"m\">1</b> of 2 (<b class=\"m\">1</b> not measured) properties."
            ]
        );
        assert!(summary(&json!({ "figures": [figure(None, None)] })).is_empty());
    }
}
