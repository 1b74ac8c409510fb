//! Charts with their captions and a table of the same values.

use serde_json::Value;

use super::super::page::{Cell, Table, details, escape};
use super::super::svg::{self, Axis, Bar, Group, Line, Scale};
use super::super::values::{MISSING, number};
use super::colour;

/// Most values of each line, in the chart and its table.
const POINTS_MAX: usize = 120;

/// The kind of a chart's scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// From zero.
    Linear,
    /// Powers of ten.
    Powers,
    /// Shares, from 0 to 1.
    Share,
}

impl Kind {
    fn scale(self, values: impl Iterator<Item = f64>) -> Scale {
        match self {
            Kind::Linear => {
                let known = values.filter(|value| value.is_finite());
                Scale::from_zero(known.fold(0.0, f64::max))
            }
            Kind::Powers => Scale::powers(values),
            Kind::Share => Scale::Linear(0.0, 1.0),
        }
    }

    fn note(self) -> &'static str {
        match self {
            Kind::Linear => "",
            Kind::Powers => ", logarithmic scale",
            Kind::Share => ", scale from 0 to 100 %",
        }
    }
}

/// Returns a bar in the colour of the server in its name.
pub(super) fn bar(name: &str, value: Option<f64>, show: fn(f64) -> String) -> Bar {
    Bar {
        class: colour(name),
        name: name.to_owned(),
        value,
        shown: value.map_or_else(|| MISSING.to_owned(), show),
        spread: None,
    }
}

/// Returns the lowest and the highest value of the spread at this path of a row, if that has several rounds.
pub(super) fn range(row: &Value, path: &str) -> Option<(f64, f64)> {
    let of = |what| number(row, &format!("{path}.{what}"));
    let is_several = of("rounds.1").is_some();
    of("low").zip(of("high")).filter(|_| is_several)
}

/// Returns a bar with a figure of an article.
pub(super) fn article(name: &str, value: f64, show: fn(f64) -> String) -> Bar {
    Bar {
        class: "d",
        ..bar(name, Some(value), show)
    }
}

/// Renders groups of bars with their caption and a table. Without a value, nothing is rendered.
pub(super) fn bars(caption: &str, groups: &[Group], kind: Kind) -> String {
    let all = || groups.iter().flat_map(|group| &group.bars);
    if all().all(|bar| bar.value.is_none()) {
        return String::new();
    }
    let spread = all()
        .filter_map(|bar| bar.spread)
        .flat_map(|(low, high)| [low, high]);
    let scale = kind.scale(all().filter_map(|bar| bar.value).chain(spread));
    let caption = format!("{caption}{}", kind.note());
    let mut table = Table::new(&caption, &["", "", "value"]);
    for group in groups {
        for bar in &group.bars {
            let value = match bar.class {
                "d" => Cell::article(&bar.shown),
                _ => Cell::measured(&bar.shown),
            };
            table.row(&bar.name, [Cell::text(&group.name), value]);
        }
    }
    figure(&caption, &svg::bars(&caption, groups, scale), &table)
}

/// One axis of a plot: its name with the unit, its kind, and the format of its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dimension {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) show: fn(f64) -> String,
}

/// Renders lines with their caption and a table. Lines with fewer than two points are left out.
pub(super) fn lines(caption: &str, lines: Vec<Line>, x: Dimension, y: Dimension) -> String {
    draw(caption, lines, x, y, None)
}

/// Renders lines of totals, which begin at zero. That point is not in the table, since nothing was measured there.
pub(super) fn lines_from_zero(
    caption: &str,
    lines: Vec<Line>,
    x: Dimension,
    y: Dimension,
) -> String {
    draw(caption, lines, x, y, Some((0.0, 0.0)))
}

fn draw(
    caption: &str,
    lines: Vec<Line>,
    x: Dimension,
    y: Dimension,
    begin: Option<(f64, f64)>,
) -> String {
    let mut lines: Vec<Line> = lines
        .into_iter()
        .filter(|line| line.points.len() > 1)
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    for line in &mut lines {
        thin(&mut line.points);
    }
    let caption = format!("{caption}: {} by {}{}", y.name, x.name, y.kind.note());
    let table = values(&caption, &lines, x, y);
    for line in &mut lines {
        line.points.splice(..0, begin);
    }
    let axis = |dimension: Dimension, values: Vec<f64>| Axis {
        scale: dimension.kind.scale(values.into_iter()),
        show: dimension.show,
    };
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let svg = svg::plot(
        &caption,
        &lines,
        axis(x, points().map(|(x, _)| x).collect()),
        axis(y, points().map(|(_, y)| y).collect()),
    );
    figure(&caption, &svg, &table)
}

/// Leaves at most `POINTS_MAX` points, equally far apart.
fn thin(points: &mut Vec<(f64, f64)>) {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let mut place = 0;
    points.retain(|_| {
        place += 1;
        (place - 1) % step == 0
    });
}

fn values(caption: &str, lines: &[Line], x: Dimension, y: Dimension) -> Table {
    let names = lines.iter().map(|line| line.name.as_str());
    let titles: Vec<&str> = [x.name].into_iter().chain(names).collect();
    let mut table = Table::new(caption, &titles);
    let mut all: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|(x, _)| *x))
        .collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    for at in all {
        let cells = lines.iter().map(|line| {
            let found = line.points.iter().find(|(x, _)| *x == at);
            Cell::measured(found.map_or_else(String::new, |(_, value)| (y.show)(*value)))
        });
        table.row((x.show)(at), cells.collect::<Vec<_>>());
    }
    table
}

fn figure(caption: &str, svg: &str, values: &Table) -> String {
    let table = details("Values of this chart", &values.render());
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{svg}{table}</figure>\n",
        escape(caption)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: f64) -> String {
        format!("{value}")
    }

    #[test]
    fn a_chart_without_values_is_left_out() {
        let group = |value| Group {
            name: String::new(),
            bars: vec![bar("Sluice", value, show)],
        };
        assert_eq!(bars("x", &[group(None)], Kind::Linear), "");
        let html = bars("x", &[group(Some(3.0)), group(None)], Kind::Linear);
        assert!(
            html.contains("<details>") && html.contains(MISSING),
            "{html}"
        );
    }

    #[test]
    fn shares_are_drawn_from_zero_to_the_whole() {
        let group = Group {
            name: String::new(),
            bars: vec![bar("Sluice", Some(0.4), show)],
        };
        let html = bars("hits", &[group], Kind::Share);
        assert!(
            html.contains("class=\"a\" x=\"0\" y=\"19\" width=\"40.00%\""),
            "{html}"
        );
        assert!(html.contains("hits, scale from 0 to 100 %"), "{html}");
    }

    #[test]
    fn long_lines_are_thinned_and_their_values_are_in_the_table() {
        let line = Line {
            class: "a",
            name: "p50".to_owned(),
            points: (0..1000).map(|n| (f64::from(n), 1.0)).collect(),
        };
        let of = |name| Dimension {
            name,
            kind: Kind::Linear,
            show,
        };
        let html = lines("ramp", vec![line], of("rate"), of("ms"));
        assert!(html.contains("ramp: ms by rate"), "{html}");
        let rows = html.matches("scope=\"row\">").count();
        assert!((100..=POINTS_MAX).contains(&rows), "{rows}");
    }
}
