//! Figures beside their goals: what experiments of many small measurements report.

use serde::Serialize;

use crate::bench::plain;

/// What a figure must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// At most this.
    Most(f64),
    /// At least this.
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

/// What is measured.
#[derive(Debug, Clone, Serialize)]
pub struct Spec {
    /// A short name, for programs.
    pub key: &'static str,
    /// In words.
    pub what: String,
    /// What the figures count; empty for a ratio.
    pub unit: &'static str,
    /// What is to be reached.
    pub goal: Option<Goal>,
}

impl Spec {
    /// A figure without a goal.
    pub(crate) fn new(key: &'static str, what: impl Into<String>, unit: &'static str) -> Spec {
        Spec {
            key,
            what: what.into(),
            unit,
            goal: None,
        }
    }

    /// It must be at most this.
    pub(crate) fn most(mut self, most: f64) -> Spec {
        self.goal = Some(Goal::Most(most));
        self
    }

    /// It must be at least this.
    pub(crate) fn least(mut self, least: f64) -> Spec {
        self.goal = Some(Goal::Least(least));
        self
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it is.
    #[serde(flatten)]
    pub spec: Spec,
    /// Sluice's figure.
    pub sluice: Option<f64>,
    /// The rival's.
    pub rival: Option<f64>,
    /// Whether Sluice's reaches the goal; none: no goal, or no figure.
    pub met: Option<bool>,
}

/// What one server's measurements gave.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    values: Vec<(&'static str, f64)>,
    /// What else is worth knowing, and what could not be measured.
    pub(crate) notes: Vec<String>,
}

impl Measured {
    /// The figure with this key.
    pub(crate) fn put(&mut self, key: &'static str, value: f64) {
        self.values.push((key, value));
    }

    /// Measures a part of the whole. If that fails it is a note, and costs the other parts nothing.
    pub(crate) fn part(
        &mut self,
        name: &str,
        tell: &dyn Fn(&str),
        measure: impl FnOnce(&mut Measured) -> anyhow::Result<()>,
    ) {
        if let Err(error) = measure(self) {
            let error = format!("{error:#}");
            tell(&format!("{name}: not measured: {error}"));
            let line = error.lines().next().unwrap_or_default();
            self.notes.push(format!("{name}: not measured: {line}"));
        }
    }

    fn get(&self, key: &str) -> Option<f64> {
        let mut found = self.values.iter().filter(|(name, _)| *name == key);
        found.next().map(|(_, value)| *value)
    }
}

/// Puts figures beside their goals.
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

/// The figures whose goals are not reached, or that have a goal and were not measured.
pub fn missed(figures: &[Figure]) -> impl Iterator<Item = &Figure> {
    let missed = |figure: &&Figure| figure.spec.goal.is_some() && figure.met != Some(true);
    figures.iter().filter(missed)
}

/// The table, with a column for the rival if there is one.
pub(crate) fn render(figures: &[Figure], rival: Option<&str>) -> String {
    let mut titles = vec![("", ""), ("", "unit"), ("Sluice", "")];
    titles.extend(rival.map(|rival| rival.split_once(' ').unwrap_or((rival, ""))));
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

/// As many digits as mean something.
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
    fn figures_are_held_against_their_goals() {
        let specs = vec![
            Spec::new("asked", "one object: asked", "requests").most(1.0),
            Spec::new("ratio", "one object: ratio", "").least(0.9),
            Spec::new("time", "one object: time", "ms"),
            Spec::new("none", "one object: not measured", "ms").most(9.0),
        ];
        let mut sluice = Measured::default();
        sluice.put("asked", 1.0);
        sluice.put("ratio", 0.8999);
        sluice.put("time", 12.34);
        let mut nginx = Measured::default();
        nginx.put("asked", 3.0);
        let figures = compare(specs, &sluice, Some(&nginx));
        let met: Vec<_> = figures.iter().map(|figure| figure.met).collect();
        assert_eq!(met, [Some(true), Some(false), None, None]);
        let keys: Vec<_> = missed(&figures).map(|figure| figure.spec.key).collect();
        assert_eq!(keys, ["ratio", "none"]);
        let table = render(&figures, Some("nginx 1"));
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
