//! Figures and their goals: the report format of experiments that measure several things.

use serde::Serialize;

use crate::bench::plain;
use crate::configurations::Configurations;

/// The goal for a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The value must be at most this number.
    Most(f64),
    /// The value must be at least this number.
    Least(f64),
}

impl Goal {
    fn met(self, value: f64) -> bool {
        match self {
            Goal::Most(most) => value <= most,
            Goal::Least(least) => value >= least,
        }
    }
}

/// The definition of a figure, a value that an experiment measures.
#[derive(Debug, Clone, Serialize)]
pub struct Spec {
    /// Identifier in JSON.
    pub key: &'static str,
    /// Description in the table.
    pub what: String,
    /// Unit; empty for a ratio.
    pub unit: &'static str,
    /// The goal, if the figure has one.
    pub goal: Option<Goal>,
}

impl Spec {
    /// Returns a figure without a goal.
    pub(crate) fn new(key: &'static str, what: impl Into<String>, unit: &'static str) -> Spec {
        Spec {
            key,
            what: what.into(),
            unit,
            goal: None,
        }
    }

    /// Sets the goal that the value is at most `most`.
    pub(crate) fn most(mut self, most: f64) -> Spec {
        self.goal = Some(Goal::Most(most));
        self
    }

    /// Sets the goal that the value is at least `least`.
    pub(crate) fn least(mut self, least: f64) -> Spec {
        self.goal = Some(Goal::Least(least));
        self
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Definition of the figure.
    #[serde(flatten)]
    pub spec: Spec,
    /// Value for Sluice; `None` if it was not measured.
    pub sluice: Option<f64>,
    /// Value for the rival; `None` if it was not measured.
    pub rival: Option<f64>,
    /// Whether Sluice's value reaches the goal; `None` without a goal or value.
    pub met: Option<bool>,
}

/// The values measured for one server.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    values: Vec<(&'static str, f64)>,
    /// Remarks, including values that could not be measured and why.
    pub(crate) notes: Vec<String>,
    /// Configurations of the servers that were started.
    pub(crate) configurations: Configurations,
}

impl Measured {
    /// Stores the value of the figure with this key.
    pub(crate) fn put(&mut self, key: &'static str, value: f64) {
        self.values.push((key, value));
    }

    /// Runs one part of an experiment. If the part fails, the error becomes a note and the other parts still run.
    pub(crate) fn part(
        &mut self,
        name: &str,
        progress: &dyn Fn(&str),
        measure: impl FnOnce(&mut Measured) -> anyhow::Result<()>,
    ) {
        if let Err(error) = measure(self) {
            let error = format!("{error:#}");
            progress(&format!("{name}: not measured: {error}"));
            let line = error.lines().next().unwrap_or_default();
            self.notes.push(format!("{name}: not measured: {line}"));
        }
    }

    fn get(&self, key: &str) -> Option<f64> {
        let mut found = self.values.iter().filter(|(name, _)| *name == key);
        found.next().map(|(_, value)| *value)
    }
}

/// Combines the definitions of figures with the values measured for Sluice and the rival.
pub(crate) fn compare(
    specs: Vec<Spec>,
    sluice: &Measured,
    rival: Option<&Measured>,
) -> Vec<Figure> {
    let figure = |spec: Spec| {
        let value = sluice.get(spec.key);
        Figure {
            sluice: value,
            rival: rival.and_then(|rival| rival.get(spec.key)),
            met: spec.goal.zip(value).map(|(goal, value)| goal.met(value)),
            spec,
        }
    };
    specs.into_iter().map(figure).collect()
}

/// Returns the figures whose goals are missed, including those that were not measured.
pub fn missed(figures: &[Figure]) -> impl Iterator<Item = &Figure> {
    let missed = |figure: &&Figure| figure.spec.goal.is_some() && figure.met != Some(true);
    figures.iter().filter(missed)
}

/// Renders the table, with a column for the rival if there is one.
pub(crate) fn render(figures: &[Figure], rival: Option<&str>) -> String {
    let mut titles = vec![("", ""), ("", "unit"), ("Sluice", "")];
    titles.extend(rival.map(|rival| rival.rsplit_once(' ').unwrap_or((rival, ""))));
    titles.extend([("goal", ""), ("met", "")]);
    let rows: Vec<_> = figures
        .iter()
        .map(|figure| cells(figure, rival.is_some()))
        .collect();
    plain(&titles, &rows)
}

fn cells(figure: &Figure, rival: bool) -> Vec<String> {
    let value = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), shown);
    let goal = match figure.spec.goal {
        Some(Goal::Most(most)) => format!("≤ {}", shown(most)),
        Some(Goal::Least(least)) => format!("≥ {}", shown(least)),
        None => String::new(),
    };
    let met = match figure.met {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    let mut cells = vec![figure.spec.what.clone(), figure.spec.unit.to_owned()];
    cells.push(value(figure.sluice));
    cells.extend(rival.then(|| value(figure.rival)));
    cells.extend([goal, met.to_owned()]);
    cells
}

/// Formats a value with as many digits as are significant.
fn shown(value: f64) -> String {
    match value {
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        small if small.abs() < 10.0 => format!("{small:.3}"),
        large => format!("{large:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_with_their_goals() {
        let specs = vec![
            Spec::new("requests", "one object: requests", "requests").most(1.0),
            Spec::new("ratio", "one object: ratio", "").least(0.9),
            Spec::new("time", "one object: time", "ms"),
            Spec::new("none", "one object: not measured", "ms").most(9.0),
        ];
        let mut sluice = Measured::default();
        sluice.put("requests", 1.0);
        sluice.put("ratio", 0.8999);
        sluice.put("time", 12.34);
        let mut nginx = Measured::default();
        nginx.put("requests", 3.0);
        let figures = compare(specs, &sluice, Some(&nginx));
        let met: Vec<_> = figures.iter().map(|figure| figure.met).collect();
        assert_eq!(met, [Some(true), Some(false), None, None]);
        let keys: Vec<_> = missed(&figures).map(|figure| figure.spec.key).collect();
        assert_eq!(keys, ["ratio", "none"]);
        let table = render(&figures, Some("Apache Traffic Server 9"));
        assert!(table.contains("  Apache Traffic Server  "), "{table}");
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(3)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0][3..], ["requests", "1", "3", "≤", "1", "yes"]);
        assert_eq!(rows[1][3..], ["0.900", "-", "≥", "0.900", "NO"]);
        assert_eq!(rows[2][3..], ["ms", "12.3", "-"]);
        let alone = render(&figures, None);
        let first: Vec<&str> = alone
            .lines()
            .nth(3)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(first[3..], ["requests", "1", "≤", "1", "yes"]);
    }
}
