//! Bounds: every number a configuration may hold has a least and a greatest value.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::report::Problem;
use super::value::{Key, Size, Time, show_size, show_time};

/// Collects problems while the plan is made, so that one run shows all of them.
#[derive(Default)]
pub struct Checks {
    /// What was found so far.
    pub problems: Vec<Problem>,
}

/// A value with an order and a way to be shown.
pub trait Bounded {
    /// What is compared.
    type Plain: PartialOrd + Copy;
    /// The value to compare.
    fn plain(&self) -> Self::Plain;
    /// As people write it.
    fn show(plain: Self::Plain) -> String;
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
}

impl Bounded for Time {
    type Plain = Duration;
    fn plain(&self) -> Duration {
        self.0
    }
    fn show(plain: Duration) -> String {
        show_time(plain)
    }
}

impl Checks {
    /// Notes a problem.
    pub fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The value typed, or the default. Out of bounds is a problem.
    pub fn within<V: Bounded>(
        &mut self,
        name: &str,
        key: &Key<V>,
        default: V::Plain,
        bounds: RangeInclusive<V::Plain>,
    ) -> V::Plain {
        self.within_or(name, key, default, bounds, "")
    }

    /// `within`, with what else may be chosen said after the bounds.
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
        if bounds.contains(&plain) {
            return plain;
        }
        self.push(
            Problem::error(format!("`{name}` is out of bounds"))
                .at(value.span())
                .label(format!("this is {}", V::show(plain)))
                .help(format!(
                    "choose a value from {} to {}{or}",
                    V::show(*bounds.start()),
                    V::show(*bounds.end())
                )),
        );
        default
    }

    /// `within` for what memory counts.
    pub fn count<V: Bounded<Plain = u64>>(
        &mut self,
        name: &str,
        key: &Key<V>,
        default: usize,
        bounds: RangeInclusive<usize>,
    ) -> usize {
        let wide = *bounds.start() as u64..=*bounds.end() as u64;
        // Both ends of the bounds are a usize, so what lies between them is.
        usize::try_from(self.within(name, key, default as u64, wide)).unwrap_or(default)
    }
}
