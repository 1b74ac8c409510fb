//! The tables of the experiment of static files, and the lines of its progress.

use super::{
    Capacity, ConnectionsRun, Cost, Report, RisingRun, Sample, Saturation, SaturationRun,
    ServerReport,
};
use crate::bench::{median, plain};
use crate::ramp::Ramp;
use crate::ramp::report::latencies;
use crate::spread::{Spread, noise_rule};

/// Number of rows of the table of memory over time.
const STEPS: usize = 10;

/// Shown in place of a figure that was not measured.
const NONE: &str = "-";

/// Returns the explanation of the tables.
fn legend() -> String {
    format!(
        "Values are medians of the rounds, some with the lowest and the highest in parentheses. The columns `Sluice / this` show\n\
         Sluice's value divided by the server's; ≈ means that the difference is within the noise:\n{}.\n\
         Costs are shares of the price of an hour.\n\
         The configuration of each server and all rounds are in the JSON (--json).\n",
        noise_rule()
    )
}

type Titles = [(&'static str, &'static str)];

impl Report {
    /// Renders the tables and remarks.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} files of {} bytes; servers with one worker on one core\n",
            self.files, self.file_bytes
        );
        for one in &self.servers {
            let version = one.version.as_deref().unwrap_or("of unknown version");
            let settings = one.variant.strip_prefix(&*one.name).unwrap_or_default();
            text.push_str(&format!("  {} {version}{settings}\n", one.name));
        }
        for part in [
            self.saturation("connections stay open", "keepalive", |one| &one.keepalive),
            self.saturation("a connection for each request", "close", |one| &one.close),
            self.rising(),
            self.connections(),
            self.costs(),
        ] {
            text.push('\n');
            text.push_str(&part);
        }
        text.push('\n');
        text.push_str(&legend());
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }

    /// Renders a table with a row for each server.
    fn table(&self, titles: &Titles, cells: impl Fn(&ServerReport) -> Vec<String>) -> String {
        let row = |one: &ServerReport| {
            let mut row = vec![one.name.clone()];
            row.extend(cells(one));
            row
        };
        plain(titles, &self.servers.iter().map(row).collect::<Vec<_>>())
    }

    /// Returns Sluice's value of a figure divided by the server's, with a sign for noise.
    fn ratio(&self, figure: &str, one: &ServerReport) -> String {
        let mut all = self.comparisons.iter();
        let found = all.find(|other| other.figure == figure && other.rival == one.name);
        found.map_or_else(String::new, |found| {
            let noise = if found.within_noise { "≈ " } else { "" };
            format!("{noise}{:.2}", found.ratio)
        })
    }

    fn saturation(&self, how: &str, key: &str, of: fn(&ServerReport) -> &Saturation) -> String {
        let titles = [
            ("saturation", ""),
            ("requests", "/s"),
            ("Sluice /", "this"),
            ("CPU per request", "µs"),
            ("Sluice /", "this"),
            ("server's core", "%"),
            ("load's core", "%"),
            ("failed", ""),
        ];
        let table = self.table(&titles, |one| {
            let found = of(one);
            let share = |pick: fn(&SaturationRun) -> f64| {
                let shares = found.runs.iter().map(pick).collect();
                median(shares).map_or(NONE.to_owned(), |share| whole(100.0 * share))
            };
            vec![
                shown(found.rate.as_ref(), whole),
                self.ratio(&format!("{key}_rate"), one),
                shown(found.cpu_us.as_ref(), tenth),
                self.ratio(&format!("{key}_cpu_us"), one),
                share(|run| run.server_busy),
                share(|run| run.load_busy),
                found.errors().to_string(),
            ]
        });
        format!("{} clients, {how}\n{table}", self.clients)
    }

    fn rising(&self) -> String {
        let titles = [
            ("rising load", ""),
            ("held", "/s"),
            ("Sluice /", "this"),
            ("mean latency", "ms"),
            ("Sluice /", "this"),
            ("min", "ms"),
            ("max", "ms"),
            ("deviation", "ms"),
            ("memory", "MB"),
        ];
        let table = self.table(&titles, |one| {
            let found = &one.rising;
            vec![
                shown(found.held.as_ref(), whole),
                self.ratio("held", one),
                shown(found.mean_us.as_ref(), millis),
                self.ratio("mean_us", one),
                middle(found.min_us.as_ref(), millis),
                middle(found.max_us.as_ref(), millis),
                middle(found.deviation_us.as_ref(), millis),
                middle(found.memory_bytes.as_ref(), megabytes),
            ]
        });
        let runs = self.servers.iter().flat_map(|one| &one.rising.runs);
        let ramps: Vec<&Ramp> = runs.map(|run| &run.ramp).collect();
        let (from, to) = self.rates;
        format!(
            "A connection for each request, {from:.0} to {to:.0} requests/s in {} s; latency up to the held rate, whose \
             median is\nat most {} ms\n{table}\n{}",
            self.seconds,
            self.good_us / 1000.0,
            latencies(&ramps, self.rates, false)
        )
    }

    fn connections(&self) -> String {
        let titles = [
            ("many connections", ""),
            ("memory at rest", "MB"),
            ("all open", "MB"),
            ("Sluice /", "this"),
            ("each", "bytes"),
            ("p50", "ms"),
            ("p99", "ms"),
            ("Sluice /", "this"),
            ("failed", ""),
        ];
        let table = self.table(&titles, |one| {
            let found = &one.connections;
            vec![
                middle(found.rest_bytes.as_ref(), megabytes),
                shown(found.open_bytes.as_ref(), megabytes),
                self.ratio("open_bytes", one),
                shown(found.bytes_each.as_ref(), whole),
                middle(found.p50_us.as_ref(), millis),
                shown(found.p99_us.as_ref(), millis),
                self.ratio("p99_us", one),
                found.errors().to_string(),
            ]
        });
        let rates = self.servers.iter().flat_map(|one| &one.connections.runs);
        let rate = rates.map(|run| run.rate).next().unwrap_or(0.0);
        format!(
            "{} connections, which open in the first half of {} s, {rate:.0} requests/s on all together\n{table}\n{}",
            self.connections,
            self.seconds,
            self.memory()
        )
    }

    /// Renders resident memory over time: medians over the rounds and over the samples of each step.
    fn memory(&self) -> String {
        let mut titles = vec![("memory", "s")];
        titles.extend(self.servers.iter().map(|one| (&*one.name, "MB")));
        let step = self.seconds / STEPS as f64;
        let row = |number: usize| {
            let begin = number as f64 * step;
            let mut row = vec![format!("{begin:.1}")];
            row.extend(self.servers.iter().map(|one| {
                let samples = one.connections.runs.iter().flat_map(|run| &run.samples);
                let is_within = |sample: &&Sample| (begin..begin + step).contains(&sample.at);
                let resident = samples.filter(is_within).map(|one| one.resident as f64);
                median(resident.collect()).map_or(NONE.to_owned(), megabytes)
            }));
            row
        };
        plain(&titles, &(0..STEPS).map(row).collect::<Vec<_>>())
    }

    fn costs(&self) -> String {
        let all = [Capacity::Keepalive, Capacity::Close, Capacity::Held];
        let mut titles = vec![("cost", "")];
        for capacity in all {
            titles.extend([(capacity.name(), "users"), ("cost of 1,000", "per hour")]);
        }
        let table = self.table(&titles, |one| {
            let cells = |capacity: Capacity| {
                let mut costs = one.costs.iter();
                let found: Option<&Cost> = costs.find(|cost| cost.capacity == capacity);
                let per = found.and_then(|cost| cost.per_1000_users.as_ref());
                let users = found.map(|cost| whole(cost.users.median));
                let cost = per.map(|per| digits(per.median));
                [users, cost].map(|cell| cell.unwrap_or_else(|| NONE.to_owned()))
            };
            all.into_iter().flat_map(cells).collect()
        });
        format!(
            "Users who make {} requests/s each, on a machine for {} {} per hour of which one core serves\n{table}",
            self.price.requests_per_user, self.price.per_hour, self.price.currency
        )
    }
}

/// Formats a figure with its spread.
fn shown(spread: Option<&Spread>, show: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| NONE.to_owned(), |spread| spread.show(show))
}

/// Formats the median of a figure.
fn middle(spread: Option<&Spread>, show: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| NONE.to_owned(), |spread| show(spread.median))
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

/// Formats microseconds as milliseconds.
fn millis(us: f64) -> String {
    let ms = us / 1000.0;
    match ms {
        _ if ms < 10.0 => format!("{ms:.2}"),
        _ if ms < 100.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

/// Formats bytes as megabytes.
fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

/// Formats a small number with three significant digits.
fn digits(value: f64) -> String {
    let places = match value > 0.0 && value < 100.0 {
        true => (2.0 - value.log10().floor()).clamp(0.0, 12.0) as usize,
        false => 0,
    };
    format!("{value:.places$}")
}

/// Returns the line of progress for one round of a saturation.
pub(super) fn saturation_line(run: &SaturationRun) -> String {
    format!(
        "{:.0} requests/s, {:.1} µs of CPU per request, {} failed",
        run.rate,
        run.cpu_us,
        run.errors.total()
    )
}

/// Returns the line of progress for one round of the rising load.
pub(super) fn rising_line(run: &RisingRun) -> String {
    let mean = run.replies.map_or_else(String::new, |replies| {
        format!(", mean latency {} ms", millis(replies.mean_us))
    });
    format!("held {:.0} requests/s{mean}", run.ramp.held)
}

/// Returns the line of progress for one round of many connections.
pub(super) fn connections_line(run: &ConnectionsRun) -> String {
    format!(
        "{} MB at rest, {} MB with all connections, {:.0} bytes each, p99 {} ms, {} failed",
        megabytes(run.rest_bytes as f64),
        megabytes(run.open_bytes as f64),
        run.bytes_each,
        millis(run.latency.p99_us),
        run.errors.total()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_three_significant_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.000_241_7, "0.000242"),
            (0.5, "0.500"),
            (12.34, "12.3"),
            (123.4, "123"),
        ] {
            assert_eq!(digits(value), expected);
        }
    }
}
