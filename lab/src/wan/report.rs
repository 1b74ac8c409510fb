//! The report of the WAN emulator: wanted beside measured, as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::forward::Traffic;
use super::profile::Profile;
use super::{Network, Options};
use crate::bench::plain;

/// One property of the link, wanted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Identifier in JSON.
    pub key: &'static str,
    /// Description in the table.
    pub what: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// The value of the profile; `None` if the profile does not determine the value.
    pub wanted: Option<f64>,
    /// Largest difference that is accurate.
    pub tolerance: Option<f64>,
    /// The measured value; `None` if it could not be measured.
    pub measured: Option<f64>,
    /// Whether the measured value is accurate; `None` if nothing is wanted or measured.
    pub met: Option<bool>,
}

impl Figure {
    pub(super) fn new(
        key: &'static str,
        what: &'static str,
        unit: &'static str,
        measured: Option<f64>,
    ) -> Figure {
        Figure {
            key,
            what,
            unit,
            wanted: None,
            tolerance: None,
            measured,
            met: None,
        }
    }

    pub(super) fn wanted(mut self, wanted: f64, tolerance: f64) -> Figure {
        let near = |measured: f64| (measured - wanted).abs() <= tolerance;
        self.met = self.measured.map(near);
        self.wanted = Some(wanted);
        self.tolerance = Some(tolerance);
        self
    }

    fn cells(&self) -> Vec<String> {
        let value = |value: Option<f64>| value.map_or_else(String::new, |value| shown(self, value));
        let tolerance = self
            .tolerance
            .map(|tolerance| format!("± {}", shown(self, tolerance)));
        let measured = match self.measured {
            Some(measured) => shown(self, measured),
            None => "-".to_owned(),
        };
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        vec![
            self.what.to_owned(),
            self.unit.to_owned(),
            value(self.wanted),
            tolerance.unwrap_or_default(),
            measured,
            met.to_owned(),
        ]
    }
}

fn shown(figure: &Figure, value: f64) -> String {
    match figure.unit {
        "packets" => format!("{value:.0}"),
        "ms" => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The way in which the link was emulated.
    pub network: Network,
    /// Whether this is the fallback, which is less exact and loses no packets.
    pub fallback: bool,
    /// The link.
    pub profile: Profile,
    /// Seed of losses and jitter.
    pub seed: u64,
    /// Properties of the link, wanted and measured.
    pub figures: Vec<Figure>,
    /// Counters of the emulator for the direction from the far end to the near end; `None` for the fallback.
    pub down: Option<Traffic>,
    /// Counters of the emulator for the direction from the near end to the far end; `None` for the fallback.
    pub up: Option<Traffic>,
    /// Remarks.
    pub notes: Vec<String>,
}

const TITLES: [(&str, &str); 6] = [
    ("", ""),
    ("", "unit"),
    ("wanted", ""),
    ("", ""),
    ("measured", ""),
    ("met", ""),
];

const TRAFFIC_TITLES: [(&str, &str); 8] = [
    ("emulator", ""),
    ("packets", ""),
    ("delivered", ""),
    ("lost", ""),
    ("queue", "full"),
    ("dropped", ""),
    ("late", "> 1 ms, %"),
    ("latest", "ms"),
];

impl Report {
    pub(super) fn new(options: &Options, network: Network) -> Report {
        Report {
            network,
            fallback: network == Network::Relay,
            profile: options.profile.clone(),
            seed: options.seed,
            figures: Vec::new(),
            down: None,
            up: None,
            notes: Vec::new(),
        }
    }

    /// Returns the figure with this key.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key == key)
    }

    /// Renders the tables and remarks.
    pub fn render(&self) -> String {
        let mut text = match self.network {
            Network::Namespaces => "WAN emulator between network namespaces\n".to_owned(),
            Network::Relay => "FALLBACK: TCP relay within this process\n".to_owned(),
        };
        text.push_str(&format!("{}, seed {}\n\n", self.profile, self.seed));
        let rows: Vec<Vec<String>> = self.figures.iter().map(Figure::cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        let directions = [("down", &self.down), ("up", &self.up)];
        let rows: Vec<Vec<String>> = directions
            .iter()
            .filter_map(|(name, traffic)| Some(traffic_cells(name, traffic.as_ref()?)))
            .collect();
        if !rows.is_empty() {
            text.push('\n');
            text.push_str(&plain(&TRAFFIC_TITLES, &rows));
        }
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }
}

fn traffic_cells(name: &str, traffic: &Traffic) -> Vec<String> {
    vec![
        name.to_owned(),
        traffic.packets.to_string(),
        traffic.delivered.to_string(),
        traffic.lost.to_string(),
        traffic.queue_full.to_string(),
        traffic.dropped.to_string(),
        format!("{:.3}", traffic.late_share() * 100.0),
        format!("{:.2}", traffic.late_max_us as f64 / 1000.0),
    ]
}

/// Returns the figures of round trips: minimum, median and 99th percentile.
pub(super) fn round_trip_figures(
    profile: &Profile,
    own: Duration,
    mut times: Vec<Duration>,
) -> Vec<Figure> {
    times.sort_unstable();
    let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
    let quantile = |share: f64| {
        let rank = (times.len() as f64 * share) as usize;
        times
            .get(rank.min(times.len().saturating_sub(1)))
            .map(|time| ms(*time))
    };
    // The median of a varying delay is a random number itself.
    let tolerance = 1.0 + ms(profile.jitter) / 4.0;
    vec![
        Figure::new("rtt_min", "round trip, minimum", "ms", quantile(0.0)),
        Figure::new("rtt_median", "round trip, median", "ms", quantile(0.5))
            .wanted(ms(profile.delay + own), tolerance),
        Figure::new("rtt_p99", "round trip, p99", "ms", quantile(0.99)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(network: Network) -> Report {
        let profile: Profile = "delay=80ms,loss=1%,rate=8Mbit".parse().expect("a profile");
        let mut report = Report::new(&Options::new(profile.clone()), network);
        let times = (0..100).map(|step| Duration::from_micros(80_000 + step * 10));
        report.figures = round_trip_figures(&profile, Duration::from_micros(200), times.collect());
        let loss = Figure::new("loss_down", "loss, down", "%", Some(1.3)).wanted(1.0, 0.2);
        report.figures.push(loss);
        report
    }

    #[test]
    fn wanted_and_measured_stand_side_by_side() {
        let mut report = report(Network::Namespaces);
        report.down = Some(Traffic {
            packets: 100,
            delivered: 99,
            late: [98, 0, 0, 0, 1, 0, 0],
            ..Traffic::default()
        });
        let text = report.render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{text}");
        let row = |what: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(what));
            let words = line
                .unwrap_or_else(|| panic!("{what}: {text}"))
                .split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            row("round trip, median")[3..],
            ["ms", "80.20", "±", "1.00", "80.50", "yes"]
        );
        assert_eq!(row("round trip, p99")[3..], ["ms", "80.99"]);
        assert_eq!(
            row("loss, down")[2..],
            ["%", "1.000", "±", "0.200", "1.300", "NO"]
        );
        assert_eq!(
            row("down")[1..],
            ["100", "99", "0", "0", "0", "1.010", "0.00"]
        );
        assert!(!report.fallback);
    }

    #[test]
    fn the_fallback_is_marked_in_table_and_json() {
        let report = report(Network::Relay);
        assert!(report.render().starts_with("FALLBACK: "));
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            (&json["network"], &json["fallback"]),
            (&"relay".into(), &true.into())
        );
        assert_eq!(json["profile"]["delay_ms"], 80.0);
        assert_eq!(json["figures"][1]["wanted"], 80.2);
    }
}
