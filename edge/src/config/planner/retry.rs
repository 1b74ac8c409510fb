//! Plans `retry` and `hedge` of `[upstream.NAME]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::checks::Checks;
use crate::config::file::{HedgeFile, Percentile, RetryFile};
use crate::config::report::Problem;
use crate::config::value::{Key, List, OrFalse, RetryCause, Table};
use crate::upstream::{HedgeOptions, RetryCauses, RetryOptions};

/// Statuses that can be a cause of retries.
const ERRORS: RangeInclusive<u16> = 400..=599;

/// Returns the options of retries.
pub fn plan(key: &Key<OrFalse<Table<RetryFile>>>, checks: &mut Checks) -> RetryOptions {
    let d = RetryOptions::default();
    let file = match key.as_ref().map(|typed| typed.get_ref()) {
        None => return d,
        Some(OrFalse::False) => return RetryOptions { tries: 1, ..d },
        Some(OrFalse::On(Table(file))) => file,
    };
    RetryOptions {
        tries: checks.within("tries", &file.tries, u64::from(d.tries), 1..=17) as u32,
        on: file.on.as_ref().map_or(d.on, |list| causes(list, checks)),
        budget: share("budget", &file.budget, d.budget, checks),
        budget_min: checks.within(
            "budget_min",
            &file.budget_min,
            u64::from(d.budget_min),
            0..=1_000_000,
        ) as u32,
        total: checks.within(
            "total",
            &file.total,
            d.total,
            Duration::from_millis(1)..=Duration::from_secs(3600),
        ),
    }
}

fn causes(list: &List<RetryCause>, checks: &mut Checks) -> RetryCauses {
    let mut causes = RetryCauses::default();
    for typed in list.get_ref() {
        match typed.get_ref() {
            RetryCause::Connect => causes.connect = true,
            RetryCause::Tls => causes.tls = true,
            RetryCause::Reset => causes.reset = true,
            RetryCause::Timeout => causes.timeout = true,
            RetryCause::Statuses(range) if range.is_within(&ERRORS) => {
                causes.statuses.push(range.0.clone());
            }
            RetryCause::Statuses(_) => checks.push(
                Problem::error("this status can't be a cause of retries")
                    .at(typed.span())
                    .help("name statuses of errors, from 400 to 599"),
            ),
        }
    }
    causes
}

/// Returns the options of hedging, if it is on.
pub fn hedge(key: &Key<OrFalse<Table<HedgeFile>>>, checks: &mut Checks) -> Option<HedgeOptions> {
    let Table(file) = key.as_ref()?.get_ref().on()?;
    let after = file.after.as_ref().map(|typed| typed.get_ref().0);
    Some(HedgeOptions {
        after: match after.unwrap_or(Percentile::P95) {
            Percentile::P50 => 0.5,
            Percentile::P90 => 0.9,
            Percentile::P95 => 0.95,
            Percentile::P99 => 0.99,
        },
        at_most: share("at_most", &file.at_most, 0.05, checks),
        max_size: checks.within("max_size", &file.max_size, 1 << 20, 1..=1 << 40),
    })
}

fn share(name: &str, key: &Key<f64>, default: f64, checks: &mut Checks) -> f64 {
    let Some(typed) = key else { return default };
    let share = *typed.get_ref();
    if (0.0..=1.0).contains(&share) {
        return share;
    }
    checks.push(
        Problem::error(format!("`{name}` is out of bounds"))
            .at(typed.span())
            .help("choose a share from 0 to 1, as in 0.2 for one per five requests"),
    );
    default
}
