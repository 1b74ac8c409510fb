//! The tables of the ramp experiment: figures, and latency by rate.

use super::{Ramp, Report};
use crate::bench::{median, plain};
use crate::figures;

/// Number of rows of the latency table.
const STEPS: usize = 20;

/// Maximum length of the bar of a median. Each additional character stands for twice the latency.
const BAR: usize = 14;

impl Report {
    /// Renders figures, latencies by rate, and notes.
    pub fn render(&self) -> String {
        let mut text = format!(
            "5 KB files, one connection per request, {:.0} to {:.0} requests/s in {} s, {} rounds\n\n",
            self.rates.0, self.rates.1, self.seconds, self.rounds
        );
        text.push_str(&figures::render(&self.figures, self.rival.as_deref()));
        text.push('\n');
        let ramps: Vec<&Ramp> = self.ramps.iter().collect();
        text.push_str(&latencies(&ramps, self.rates, true));
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

/// Renders the table of latencies by rate, with bars for the medians if `bars` is set. The rate of all ramps rises
/// between `rates`.
pub(crate) fn latencies(ramps: &[&Ramp], rates: (f64, f64), bars: bool) -> String {
    let names = names(ramps);
    let mut titles = vec![("rate", "/s")];
    for name in &names {
        titles.extend([(*name, "p50 ms"), ("", "p99 ms")]);
        titles.extend(bars.then_some(("", "p50, log")));
    }
    plain(&titles, &steps(ramps, &names, rates, bars))
}

fn names<'a>(ramps: &[&'a Ramp]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for ramp in ramps {
        if !names.contains(&&*ramp.name) {
            names.push(&ramp.name);
        }
    }
    names
}

fn steps(ramps: &[&Ramp], names: &[&str], rates: (f64, f64), bars: bool) -> Vec<Vec<String>> {
    let most = ramps.iter().map(|ramp| ramp.windows.len()).max();
    let each = most.unwrap_or(0).div_ceil(STEPS).max(1);
    let columns = if bars { 3 } else { 2 };
    (0..most.unwrap_or(0))
        .step_by(each)
        .map(|first| {
            let share = (first as f64 + each as f64 / 2.0) / super::climb::WINDOWS;
            let rate = rates.0 + share * (rates.1 - rates.0);
            let mut row = vec![format!("{rate:.0}")];
            for name in names {
                let of = ramps.iter().filter(|ramp| ramp.name == *name).copied();
                row.extend(cells(of, first..first + each).into_iter().take(columns));
            }
            row
        })
        .collect()
}

/// Medians over these windows of all ramps that reached them, and a bar for the median latency.
fn cells<'a>(
    ramps: impl Iterator<Item = &'a Ramp>,
    windows: std::ops::Range<usize>,
) -> [String; 3] {
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for ramp in ramps {
        let last = windows.end.min(ramp.windows.len());
        for window in ramp.windows.get(windows.start..last).into_iter().flatten() {
            p50.push(window.p50_us.unwrap_or(f64::INFINITY));
            p99.push(window.p99_us.unwrap_or(f64::INFINITY));
        }
    }
    let p50 = median(p50);
    let shown = |value: Option<f64>| match value {
        Some(value) if value.is_finite() => format!("{:.2}", value / 1000.0),
        Some(_) => "∞".to_owned(),
        None => "-".to_owned(),
    };
    let bar = p50.map_or(0.0, |median| (median / 50.0).log2().clamp(0.0, BAR as f64));
    let bar = format!("{:<BAR$}", "▪".repeat(bar as usize));
    [shown(p50), shown(median(p99)), bar]
}
