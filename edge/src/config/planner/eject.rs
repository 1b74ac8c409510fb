//! Plans `eject` and `slow_start`: how servers leave the choice and return to it.

use std::time::Duration;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::EjectFile;
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, Table, Time};
use crate::upstream::Eject;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Returns the options of ejection; `None` if it is turned off.
pub fn plan(key: &Key<OrFalse<Table<EjectFile>>>, checks: &mut Checks) -> Option<Eject> {
    let defaults = Eject::default();
    let file = match key.as_ref().map(Spanned::get_ref) {
        None => return Some(defaults),
        Some(OrFalse::False) => return None,
        Some(OrFalse::On(Table(file))) => file,
    };
    let mut outliers = defaults.outliers;
    outliers.failures = match on(&file.failures) {
        None => 0,
        Some(key) => {
            let default = u64::from(outliers.failures);
            checks.within("failures", &key, default, 1..=10_000) as u32
        }
    };
    let window = Duration::from_micros(outliers.window_us);
    let window = checks.within("window", &file.window, window, SECOND..=HOUR);
    outliers.window_us = window.as_micros() as u64;
    outliers.error_rate = on(&file.error_rate)
        .map(|key| number("error_rate", &key, outliers.error_rate, 0.01..=1.0, checks));
    if file.latency.is_some() {
        outliers.latency =
            on(&file.latency).map(|key| number("latency", &key, None, 1.1..=1000.0, checks));
    }
    Some(Eject {
        outliers,
        time: checks.within("for", &file.r#for, defaults.time, SECOND..=HOUR),
        at_most: number(
            "at_most",
            &file.at_most,
            Some(defaults.at_most),
            0.01..=1.0,
            checks,
        ),
    })
}

/// Returns the time in which the share of a server that returns grows. Zero: at once.
pub fn slow_start(key: &Key<OrFalse<Time>>, checks: &mut Checks) -> Duration {
    match on(key) {
        Some(key) => checks.within("slow_start", &key, Duration::ZERO, SECOND..=HOUR),
        None => Duration::ZERO,
    }
}

/// Returns the key without `false`; `None` if `false` was written.
fn on<T: Copy>(key: &Key<OrFalse<T>>) -> Option<Key<T>> {
    match key {
        None => Some(None),
        Some(typed) => {
            let value = typed.get_ref().on()?;
            Some(Some(Spanned::new(typed.span(), *value)))
        }
    }
}

/// Returns the value of a key that is a number with fractions.
pub fn number(
    name: &str,
    key: &Key<f64>,
    default: Option<f64>,
    bounds: std::ops::RangeInclusive<f64>,
    checks: &mut Checks,
) -> f64 {
    let default = default.unwrap_or(*bounds.start());
    let Some(typed) = key else { return default };
    let value = *typed.get_ref();
    if bounds.contains(&value) {
        return value;
    }
    let (start, end) = (bounds.start(), bounds.end());
    let problem = Problem::error(format!("`{name}` is out of bounds")).at(typed.span());
    let problem = problem.label(format!("this is {value}"));
    checks.push(problem.help(format!("choose a value from {start} to {end}")));
    default
}
