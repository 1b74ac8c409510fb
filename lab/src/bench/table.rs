//! Rows of the bench's table of results, and their formatting.

use serde::Serialize;

/// Unit of the figures in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Microseconds of CPU time per request.
    CpuPerRequest,
    /// Duration in microseconds.
    Microseconds,
    /// Microseconds of CPU time per MiB of content.
    CpuPerMebibyte,
    /// Requests per second.
    RequestsPerSecond,
    /// Bytes of resident memory.
    Bytes,
    /// Resident memory in MB (10^6 bytes).
    Megabytes,
    /// Duration in seconds.
    Seconds,
    /// A share or a ratio.
    Factor,
    /// A number without a unit.
    Count,
}

impl Unit {
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Unit::CpuPerRequest => format!("{value:.2} µs"),
            Unit::Microseconds => format!("{value:.0} µs"),
            Unit::CpuPerMebibyte => format!("{value:.1} µs/MiB"),
            Unit::RequestsPerSecond => format!("{value:.0} /s"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Seconds => format!("{value:.3} s"),
            Unit::Factor => format!("{value:.3}"),
            Unit::Count => format!("{value:.0}"),
        }
    }
}

/// One row of the bench's table: a measurement of several servers, and a goal.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Description of what was measured.
    pub name: String,
    /// Unit of the figures; `None` if the row has no figures.
    pub unit: Option<Unit>,
    /// Figure of nginx in its faster configuration; `None` if not measured.
    pub nginx: Option<f64>,
    /// Figure of HAProxy in its faster configuration; `None` if not measured.
    pub haproxy: Option<f64>,
    /// Figure of Sluice; `None` if not measured.
    pub sluice: Option<f64>,
    /// Figure of the floor server, the lab's minimal server; `None` if not measured.
    pub floor: Option<f64>,
    /// Description of the goal for Sluice's figure.
    pub goal: String,
    /// Whether Sluice's figure reaches the goal; `None` without a goal or a figure.
    pub met: Option<bool>,
    /// Remarks on the measurement.
    pub note: String,
}

impl Row {
    /// Creates a row without figures.
    pub(super) fn new(name: &str, unit: Unit) -> Row {
        Row {
            name: name.to_owned(),
            unit: Some(unit),
            nginx: None,
            haproxy: None,
            sluice: None,
            floor: None,
            goal: String::new(),
            met: None,
            note: String::new(),
        }
    }

    /// Creates a row for a measurement that failed. The whole error is printed to standard error, its first line in the
    /// table.
    pub(super) fn failed(name: &str, error: &anyhow::Error) -> Row {
        let why = format!("{error:#}");
        eprintln!("{name}: not measured: {why}");
        Row {
            unit: None,
            met: Some(false),
            note: why.lines().next().unwrap_or_default().to_owned(),
            ..Row::new(name, Unit::Count)
        }
    }

    /// Sets the goal: Sluice's figure is at most `most` times nginx's figure.
    pub(super) fn goal_ratio(mut self, most: f64) -> Row {
        self.goal = format!("ratio ≤ {most}");
        self.met = self.ratio().map(|ratio| ratio <= most);
        self
    }

    /// Adds to the goal that Sluice's figure is at most `most` times HAProxy's figure.
    pub(super) fn goal_haproxy(mut self, most: f64) -> Row {
        self.goal.push_str(&format!(", to HAProxy ≤ {most}"));
        let haproxy = self.haproxy_ratio().map(|ratio| ratio <= most);
        self.met = match (self.met, haproxy) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (nginx, haproxy) => nginx.and(haproxy),
        };
        self
    }

    /// Sets the goal: Sluice's figure is at most `most`.
    pub(super) fn goal_most(mut self, most: f64) -> Row {
        let shown = self.unit.map_or_else(String::new, |unit| unit.show(most));
        self.goal = format!("≤ {shown}");
        self.met = self.sluice.map(|figure| figure <= most);
        self
    }

    /// Sets the goal: Sluice's figure is at least `least`.
    pub(super) fn goal_least(mut self, least: f64) -> Row {
        let shown = self.unit.map_or_else(String::new, |unit| unit.show(least));
        self.goal = format!("≥ {shown}");
        self.met = self.sluice.map(|figure| figure >= least);
        self
    }

    /// Appends a remark to the row.
    pub(super) fn note(mut self, note: &str) -> Row {
        if !self.note.is_empty() && !note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note);
        self
    }

    /// Returns Sluice's figure divided by nginx's.
    pub fn ratio(&self) -> Option<f64> {
        self.over(self.nginx)
    }

    /// Returns Sluice's figure divided by HAProxy's.
    pub fn haproxy_ratio(&self) -> Option<f64> {
        self.over(self.haproxy)
    }

    /// Returns Sluice's figure divided by the floor server's.
    pub fn floor_ratio(&self) -> Option<f64> {
        self.over(self.floor)
    }

    fn over(&self, other: Option<f64>) -> Option<f64> {
        match (self.sluice, other) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => Some(ours / theirs),
            _ => None,
        }
    }

    fn cells(&self) -> Vec<String> {
        let show = |value: Option<f64>| match (value, self.unit) {
            (Some(value), Some(unit)) => unit.show(value),
            _ => "-".to_owned(),
        };
        let factor =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        vec![
            self.name.clone(),
            show(self.nginx),
            show(self.sluice),
            factor(self.ratio()),
            show(self.haproxy),
            factor(self.haproxy_ratio()),
            show(self.floor),
            factor(self.floor_ratio()),
            self.goal.clone(),
            met.to_owned(),
            self.note.clone(),
        ]
    }
}

const TITLES: [&str; 11] = [
    "",
    "nginx",
    "Sluice",
    "ratio",
    "HAProxy",
    "to HAProxy",
    "floor",
    "to floor",
    "goal",
    "met",
    "",
];

/// Returns the width in characters of the widest cell of each column.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// Width of a table in characters above which the gaps between columns are made narrower.
const WIDE: usize = 100;

/// Renders a table for a terminal under titles of two lines (description, unit), or of one line if no column has a unit.
/// The first column is left-aligned, all others are right-aligned.
pub fn plain(titles: &[(&str, &str)], rows: &[Vec<String>]) -> String {
    let what = titles.iter().map(|(what, _)| (*what).to_owned());
    let units = titles.iter().map(|(_, unit)| (*unit).to_owned());
    let mut lines: Vec<Vec<String>> = vec![what.collect()];
    lines.extend(
        titles
            .iter()
            .any(|(_, unit)| !unit.is_empty())
            .then(|| units.collect()),
    );
    let title_lines = lines.len();
    lines.extend_from_slice(rows);
    let widths = widths(&lines);
    let gaps = widths.len().saturating_sub(1);
    let cells = widths.iter().sum::<usize>();
    let gap = if cells + 2 * gaps > WIDE { 1 } else { 2 };
    let mut table = String::new();
    for (number, line) in lines.iter().enumerate() {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:width$}")),
                _ => text.push_str(&format!("{:gap$}{cell:>width$}", "")),
            }
        }
        table.push_str(text.trim_end());
        table.push('\n');
        if number + 1 == title_lines {
            table.push_str(&"─".repeat(cells + gap * gaps));
            table.push('\n');
        }
    }
    table
}

/// Renders the rows as a Markdown table with aligned columns.
pub fn render(rows: &[Row]) -> String {
    let mut lines = vec![TITLES.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Row::cells));
    let widths = widths(&lines);
    let mut table = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            table.push_str(&format!("| {cell:width$} "));
        }
        table.push_str("|\n");
        if number == 0 {
            for width in &widths {
                table.push_str(&format!("|{}", "-".repeat(width + 2)));
            }
            table.push_str("|\n");
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_with_the_stated_figures() {
        let mut row = Row::new("hit", Unit::CpuPerRequest);
        (row.nginx, row.sluice, row.floor) = (Some(10.0), Some(6.0), Some(5.0));
        assert_eq!(row.clone().goal_ratio(0.62).met, Some(true));
        assert_eq!(row.clone().goal_ratio(0.59).met, Some(false));
        assert_eq!(row.clone().goal_most(5.9).met, Some(false));
        assert_eq!(row.clone().goal_least(6.0).met, Some(true));
        assert_eq!(row.clone().goal_least(6.1).met, Some(false));
        assert_eq!(row.floor_ratio(), Some(1.2));
        row.haproxy = Some(7.0);
        let met = |row: &Row, nginx, haproxy| {
            let row = row.clone().goal_ratio(nginx);
            row.goal_haproxy(haproxy).met
        };
        assert_eq!(met(&row, 0.62, 1.0), Some(true));
        assert_eq!(met(&row, 0.62, 0.8), Some(false));
        assert_eq!(met(&row, 0.59, 1.0), Some(false));
        row.nginx = None;
        assert_eq!(met(&row, 0.62, 1.0), None);
        assert_eq!(met(&row, 0.62, 0.8), Some(false));
        assert_eq!(row.goal_ratio(0.62).met, None);
    }

    #[test]
    fn columns_of_plain_tables_are_right_aligned() {
        let row = |name: &str, figure: &str| vec![name.to_owned(), figure.to_owned()];
        let table = plain(
            &[("", ""), ("cold", "ms")],
            &[row("origin", "1.0"), row("é", "4770.1")],
        );
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "          cold");
        assert_eq!(lines[1], "            ms");
        assert_eq!(lines[2], "──────────────");
        assert_eq!(lines[3], "origin     1.0");
        assert_eq!(lines[4], "é       4770.1");
    }

    #[test]
    fn a_plain_table_without_units_has_one_line_of_titles() {
        let row = ["nginx", "1.22"].map(str::to_owned).to_vec();
        let table = plain(&[("", ""), ("version", "")], &[row]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            ["       version", "──────────────", "nginx     1.22"]
        );
    }

    #[test]
    fn tables_are_aligned() {
        let mut row = Row::new("hit", Unit::CpuPerRequest);
        (row.nginx, row.sluice) = (Some(10.0), Some(6.0));
        let table = render(&[
            row.goal_ratio(0.62),
            Row::failed("x", &anyhow::anyhow!("a\nb")),
        ]);
        let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 4);
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
        assert!(table.contains("| 6.00 µs | 0.60 "), "{table}");
    }
}
