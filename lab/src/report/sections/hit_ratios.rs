//! The sections of the two simulations of hit ratios.

use serde_json::Value;

use super::super::page::{Cell, Table, escape, measured};
use super::super::svg::{Bar, Group};
use super::super::values::{digits, list, number, text, with_unit};
use super::Section;
use super::charts::{Kind, bar, bars};

pub(super) const HIT_RATIO: Section = Section {
    name: "hit-ratio",
    title: "Hit ratios of the eviction policies",
    question: "What hit ratio does each eviction policy reach?",
    method: "A simulation without servers, which runs Sluice's own policies on generated requests: Zipf's distribution \
             alone, with objects that are requested once, and with scans. The first fifth of the requests is not counted.",
    article: "",
    summary: policies,
    body: policies_body,
    tables: |data| vec![policies_table(data)],
};

pub(super) const WHAT_IF: Section = Section {
    name: "what-if",
    title: "Predicted hit ratios of other cache sizes",
    question: "How near are the hit ratios that the dashboard predicts for other sizes to the true ones?",
    method: "A simulation without servers: each load runs once with all objects, which gives the true hit ratio, and once \
             with the sample that a running Sluice takes. The goal is an error of at most one percentage point.",
    article: "",
    summary: predictions,
    body: predictions_body,
    tables: |data| vec![predictions_table(data)],
};

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn share(row: &Value, path: &str) -> Cell {
    Cell::measured(number(row, path).map_or_else(|| with_unit(None, ""), percent))
}

fn load(row: &Value) -> String {
    let exponent =
        number(row, "exponent").map_or_else(String::new, |value| format!("Zipf {value:.1}"));
    match text(row, "mix") {
        Some("one-hit-wonders") => format!("{exponent} + one-hit wonders"),
        Some("scans") => format!("{exponent} + scans"),
        _ => exponent,
    }
}

fn policies(data: &Value) -> Vec<String> {
    let gains = list(data, "rows").filter_map(|row| {
        let gain = number(row, "s3_fifo")? - number(row, "lru")?;
        Some((gain, row))
    });
    let mut gains: Vec<(f64, &Value)> = gains.collect();
    gains.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (Some((lowest, worst)), Some((highest, best))) = (gains.first(), gains.last()) else {
        return Vec::new();
    };
    let points = |gain: f64| measured(&format!("{:+.1}", gain * 100.0));
    let of = |row: &Value| {
        let places = with_unit(number(row, "places"), "");
        format!("{}, room for {places} objects", escape(&load(row)))
    };
    let lost = gains.iter().filter(|(gain, _)| *gain < 0.0).count();
    vec![format!(
        "The hit ratio of the default policy, S3-FIFO, differed from that of LRU by {} ({}) to {} ({}) percentage points; it was \
         lower in {lost} of {} simulations.",
        points(*lowest),
        of(worst),
        points(*highest),
        of(best),
        gains.len()
    )]
}

fn policies_table(data: &Value) -> Table {
    let titles = [
        "requests",
        "objects that fit",
        "S3-FIFO",
        "LRU",
        "volume",
        "written again",
    ];
    let mut table = Table::new("Hit ratios", &titles);
    for row in list(data, "rows") {
        let places = Cell::chosen(with_unit(number(row, "places"), ""));
        let shares = ["s3_fifo", "lru", "volume", "written_again"].map(|path| share(row, path));
        table.row(load(row), [places].into_iter().chain(shares));
    }
    table
}

fn policies_body(data: &Value) -> String {
    // The chart shows the size in the middle.
    let mut sizes: Vec<f64> = list(data, "rows")
        .filter_map(|row| number(row, "places"))
        .collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let middle = sizes.get(sizes.len() / 2).copied();
    let rows = list(data, "rows").filter(|row| number(row, "places") == middle);
    let groups = rows.map(|row| {
        let bar = |class, name: &str, path| Bar {
            class,
            ..bar(name, number(row, path), percent)
        };
        Group {
            name: load(row),
            bars: vec![
                bar("a", "S3-FIFO", "s3_fifo"),
                bar("e", "LRU", "lru"),
                bar("c", "volume", "volume"),
            ],
        }
    });
    let size = middle.map_or_else(String::new, |size| {
        format!(" with room for {} objects", digits(size))
    });
    let caption = format!("Hit ratio{size}");
    bars(&caption, &groups.collect::<Vec<_>>(), Kind::Share) + &policies_table(data).render()
}

fn error(row: &Value) -> Option<f64> {
    Some(100.0 * (number(row, "predicted")? - number(row, "truth")?))
}

fn predictions(data: &Value) -> Vec<String> {
    let worst = list(data, "rows")
        .filter_map(error)
        .map(f64::abs)
        .reduce(f64::max);
    let sentence = worst.map(|worst| {
        format!(
            "Predictions of other cache sizes were wrong by at most {} percentage points of the hit ratio.",
            measured(&format!("{worst:.2}"))
        )
    });
    sentence.into_iter().collect()
}

fn predictions_table(data: &Value) -> Table {
    let titles = [
        "load",
        "size",
        "sampled",
        "hits",
        "predicted",
        "error",
        "byte hits",
        "predicted",
    ];
    let mut table = Table::new("True and predicted hit ratios", &titles);
    for row in list(data, "rows") {
        let points = error(row).map_or_else(|| with_unit(None, ""), |error| format!("{error:+.2}"));
        let cells = [
            Cell::chosen(with_unit(number(row, "times"), "×")),
            share(row, "sampled"),
            share(row, "truth"),
            share(row, "predicted"),
            Cell::measured(points),
            share(row, "byte_truth"),
            share(row, "byte_predicted"),
        ];
        table.row(text(row, "load").unwrap_or_default(), cells);
    }
    table
}

fn predictions_body(data: &Value) -> String {
    let mut groups: Vec<Group> = Vec::new();
    for row in list(data, "rows") {
        let name = text(row, "load").unwrap_or_default();
        if groups.last().is_none_or(|group| group.name != name) {
            groups.push(Group {
                name: name.to_owned(),
                bars: Vec::new(),
            });
        }
        let size = with_unit(number(row, "times"), "× the size");
        let value = error(row).map(f64::abs);
        let bar = Bar {
            class: "a",
            ..bar(&size, value, |points| format!("{points:.2} points"))
        };
        groups
            .last_mut()
            .into_iter()
            .for_each(|group| group.bars.push(bar.clone()));
    }
    let chart = bars("Error of the predicted hit ratio", &groups, Kind::Linear);
    chart + &predictions_table(data).render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_sentence_about_policies_has_the_worst_case_too() {
        let row = |places: u64, s3_fifo: f64, lru: f64| json!({ "exponent": 0.9, "mix": "scans", "places": places, "s3_fifo": s3_fifo, "lru": lru });
        let data =
            json!({ "rows": [row(200, 0.5, 0.4), row(1000, 0.4, 0.46), row(4000, 0.6, 0.62)] });
        let expected = "differed from that of LRU by <b class=\"m\">-6.0</b> (Zipf 0.9 + scans, room for 1,000 objects) to \
                        <b class=\"m\">+10.0</b> (Zipf 0.9 + scans, room for 200 objects) percentage points; it was lower in 2 of \
                        3 simulations.";
        let sentence = policies(&data).join(" ");
        assert!(sentence.ends_with(expected), "{sentence}");
        assert!(policies(&json!({ "rows": [{}] })).is_empty());
    }
}
