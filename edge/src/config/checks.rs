//! Checks the bounds of numbers, and collects problems.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::report::Problem;
use super::value::{Key, Size, Spelling, Time, show_size, show_time};

/// Advice for a time with the unit `M`.
pub const MONTH: &str = "M is a month, and m a minute: write \"10m\" for minutes, or \"2months\"";

/// Collects problems while the plan is made, so that one run reports all of them.
#[derive(Default)]
pub struct Checks {
    /// Problems found so far.
    pub problems: Vec<Problem>,
}

/// A value that can be compared with bounds and formatted for messages.
pub trait Bounded {
    /// Type of the value that is compared.
    type Plain: PartialOrd + Copy;
    /// Returns the value that is compared.
    fn plain(&self) -> Self::Plain;
    /// Formats a value for messages.
    fn show(plain: Self::Plain) -> String;
    /// Returns advice on the value's unit, if it may have been meant in another sense.
    fn unit(&self) -> Option<&'static str> {
        None
    }
}

impl Bounded for u64 {
    type Plain = u64;
    fn plain(&self) -> u64 {
        *self
    }
    fn show(plain: u64) -> String {
        plain.to_string()
    }
}

impl Bounded for Size {
    type Plain = u64;
    fn plain(&self) -> u64 {
        self.0
    }
    fn show(plain: u64) -> String {
        show_size(plain)
    }
    fn unit(&self) -> Option<&'static str> {
        let help = "K, M, G and T are powers of 1024, as in nginx: write KiB, MiB, GiB or TiB, or kB, MB, GB or TB for powers of 1000";
        (self.1 == Spelling::Ambiguous).then_some(help)
    }
}

impl Bounded for Time {
    type Plain = Duration;
    fn plain(&self) -> Duration {
        self.0
    }
    fn show(plain: Duration) -> String {
        show_time(plain)
    }
    fn unit(&self) -> Option<&'static str> {
        (self.1 == Spelling::Ambiguous).then_some(MONTH)
    }
}

impl Checks {
    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Returns the value of a key, or its default. A value out of bounds is added to the problems.
    pub fn within<V: Bounded>(
        &mut self,
        name: &str,
        key: &Key<V>,
        default: V::Plain,
        bounds: RangeInclusive<V::Plain>,
    ) -> V::Plain {
        self.within_or(name, key, default, bounds, "")
    }

    /// Does the same as `within`, with further text after the bounds in the advice.
    pub fn within_or<V: Bounded>(
        &mut self,
        name: &str,
        key: &Key<V>,
        default: V::Plain,
        bounds: RangeInclusive<V::Plain>,
        or: &str,
    ) -> V::Plain {
        let Some(value) = key else { return default };
        let plain = value.get_ref().plain();
        let unit = value.get_ref().unit();
        if bounds.contains(&plain) {
            if let Some(unit) = unit {
                self.push(
                    Problem::warning(format!("the unit of `{name}` may be misread"))
                        .at(value.span())
                        .label(format!("this is {}", V::show(plain)))
                        .help(unit),
                );
            }
            return plain;
        }
        let unit = unit.map_or(String::new(), |unit| format!("; {unit}"));
        self.push(
            Problem::error(format!("`{name}` is out of bounds"))
                .at(value.span())
                .label(format!("this is {}", V::show(plain)))
                .help(format!(
                    "choose a value from {} to {}{or}{unit}",
                    V::show(*bounds.start()),
                    V::show(*bounds.end())
                )),
        );
        default
    }

    /// Does the same as `within`, for a `usize`.
    pub fn count<V: Bounded<Plain = u64>>(
        &mut self,
        name: &str,
        key: &Key<V>,
        default: usize,
        bounds: RangeInclusive<usize>,
    ) -> usize {
        let wide = *bounds.start() as u64..=*bounds.end() as u64;
        // Both bounds fit into a usize, so the value does, too.
        usize::try_from(self.within(name, key, default as u64, wide)).unwrap_or(default)
    }
}
