//! Reads the history: series of one member over a period, the table of all members, and the newest point.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::code;
use super::layout::{Combination, Layout};
use super::member::Member;
use super::members::{History, Members};
use super::ring::Ring;
use super::scope::{RINGS, Scope};

/// Most points of a series in a response.
pub const POINTS_MAX: usize = 4_000;
/// Fewest points that can be asked for. Points begin at multiples of their step, so any period may touch two of them.
pub const POINTS_MIN: usize = 2;

/// A period of time, in seconds of Unix time, and the number of points to divide it into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Beginning of the period.
    pub from_s: u64,
    /// End of the period.
    pub to_s: u64,
    /// The present.
    pub now_s: u64,
    /// Most points of each series.
    pub points: usize,
}

/// Series of one member over a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Seconds that each point stands for.
    pub step_s: u64,
    /// Beginning of the first point, as Unix time in seconds.
    pub from_s: u64,
    /// The points of each series; `None` for points that are not known.
    pub series: Vec<Vec<Option<f64>>>,
}

/// One member in the table of all members.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the member.
    pub member: String,
    /// The value of each series over the whole period.
    pub values: Vec<Option<f64>>,
}

/// A name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The scope has no member with this name.
    Member(Scope, String),
    /// The scope has no series with this name.
    Series(Scope, String),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, scope, name) = match self {
            Unknown::Member(scope, name) => ("member", scope, name),
            Unknown::Series(scope, name) => ("series", scope, name),
        };
        let scope = scope.name();
        write!(
            f,
            "the scope {scope} has no {what} {name:?} with a history: GET /members lists them"
        )
    }
}

/// The beginning of a member's newest point, as Unix time, and its values.
pub type Newest = (u64, Vec<Option<f64>>);

impl History {
    /// Returns the positions of series by name.
    ///
    /// # Errors
    ///
    /// The scope has no such series.
    pub fn positions(&self, scope: Scope, names: &[&str]) -> Result<Vec<usize>, Unknown> {
        let position = |name: &&str| {
            let found = self.layout(scope).and_then(|layout| layout.position(name));
            found.ok_or_else(|| Unknown::Series(scope, (*name).to_owned()))
        };
        names.iter().map(position).collect()
    }

    /// Returns series of one member over a period, from the finest ring that reaches back to its beginning.
    ///
    /// # Errors
    ///
    /// The scope has no such member or series.
    pub fn series(
        &self,
        scope: Scope,
        name: &str,
        series: &[&str],
        period: &Period,
    ) -> Result<Answer, Unknown> {
        let positions = self.positions(scope, series)?;
        let (layout, member) = self.member(scope, name)?;
        let ring = &member.rings[finest(scope, period)];
        let groups = Groups::of(ring, period);
        let one = |position: &usize| {
            let combination = layout.series()[*position].combination();
            let groups = groups.iter();
            groups
                .map(|numbers| combined(ring, numbers, *position, combination))
                .collect()
        };
        Ok(Answer {
            step_s: groups.step_s,
            from_s: groups.begin_s(),
            series: positions.iter().map(one).collect(),
        })
    }

    /// Returns the value of series over a whole period for each member, in descending order of the first series; at
    /// most `rows_max` members.
    ///
    /// # Errors
    ///
    /// The scope has no such series.
    pub fn table(
        &self,
        scope: Scope,
        series: &[&str],
        period: &Period,
        rows_max: usize,
    ) -> Result<Vec<Row>, Unknown> {
        let positions = self.positions(scope, series)?;
        let Some(members) = self.members(scope) else {
            return Ok(Vec::new());
        };
        let at = finest(scope, period);
        let mut rows: Vec<_> = members
            .by_name
            .iter()
            .map(|(name, member)| row(members, name, &member.rings[at], &positions, period))
            .collect();
        rows.sort_by(by_first_value);
        rows.truncate(rows_max);
        Ok(rows)
    }

    /// Returns the beginning of a member's newest point, as Unix time, and its values of series at these positions.
    ///
    /// # Errors
    ///
    /// The scope has no such member.
    pub fn newest(
        &self,
        scope: Scope,
        name: &str,
        positions: &[usize],
    ) -> Result<Option<Newest>, Unknown> {
        let (_, member) = self.member(scope, name)?;
        let ring = &member.rings[0];
        let newest = ring.newest().and_then(|number| {
            let point = ring.point(number)?;
            let values = positions
                .iter()
                .map(|at| code::decode(point[*at]).map(short));
            Some((number * u64::from(ring.size().step_s), values.collect()))
        });
        Ok(newest)
    }

    fn member(&self, scope: Scope, name: &str) -> Result<(&Layout, &Member), Unknown> {
        let found = self.members(scope).and_then(|members| {
            let member = members.by_name.get(name)?;
            Some((&members.layout, member))
        });
        found.ok_or_else(|| Unknown::Member(scope, name.to_owned()))
    }
}

/// Time by which a period may begin before a ring does. A client that wants the last hour sends its request a moment before
/// it is answered, and its clock may differ.
const SLACK_S: u64 = 30;

/// Returns the position of the finest ring that reaches back to the beginning of a period, or else of the coarsest.
fn finest(scope: Scope, period: &Period) -> usize {
    let reaches =
        |span_s: u64| period.from_s.saturating_add(SLACK_S) >= period.now_s.saturating_sub(span_s);
    let rings = scope.rings();
    let found = rings.iter().position(|ring| reaches(ring.span_s()));
    found.unwrap_or(RINGS - 1)
}

fn row(members: &Members, name: &str, ring: &Ring, positions: &[usize], period: &Period) -> Row {
    let numbers = steps(ring, period);
    let value = |at: &usize| {
        let combination = members.layout.series()[*at].combination();
        combined(ring, numbers.clone(), *at, combination)
    };
    Row {
        member: name.to_owned(),
        values: positions.iter().map(value).collect(),
    }
}

/// Compares rows so that the largest first value comes first, and rows without one last.
fn by_first_value(a: &Row, b: &Row) -> Ordering {
    let first = |row: &Row| row.values.first().copied().flatten().unwrap_or(-1.0);
    first(b).total_cmp(&first(a))
}

/// Returns the numbers of the completed steps that a period touches, as far as a ring reaches.
fn steps(ring: &Ring, period: &Period) -> Range<u64> {
    let size = ring.size();
    let step_s = u64::from(size.step_s);
    let complete = period.now_s / step_s;
    let oldest = complete.saturating_sub(u64::from(size.points));
    let end = period.to_s.div_ceil(step_s).min(complete);
    (period.from_s / step_s).max(oldest).min(end)..end
}

/// The steps of a period, in groups of which each becomes one point.
struct Groups {
    step_s: u64,
    /// Number of steps of a group.
    size: u64,
    /// The numbers of the groups.
    groups: Range<u64>,
}

impl Groups {
    /// Divides a period into groups. Groups begin at multiples of their size, so that their values don't change while
    /// the period moves on.
    fn of(ring: &Ring, period: &Period) -> Groups {
        let steps = steps(ring, period);
        let most = period.points.clamp(POINTS_MIN, POINTS_MAX) as u64;
        let mut size = (steps.end - steps.start).div_ceil(most).max(1);
        let groups = |size: u64| steps.start / size..steps.end.div_ceil(size);
        while groups(size).end - groups(size).start > most {
            size += 1;
        }
        Groups {
            step_s: u64::from(ring.size().step_s) * size,
            size,
            groups: groups(size),
        }
    }

    fn begin_s(&self) -> u64 {
        self.groups.start * self.step_s
    }

    /// Returns the steps of each group.
    fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        let size = self.size;
        self.groups
            .clone()
            .map(move |at| at * size..(at + 1) * size)
    }
}

/// Combines the values of steps: the mean of rates and gauges, the maximum of percentiles and maxima. Absent values are
/// left out.
fn combined(
    ring: &Ring,
    numbers: Range<u64>,
    position: usize,
    combination: Combination,
) -> Option<f64> {
    let held = ring.numbers();
    let numbers = numbers.start.max(held.start)..numbers.end.min(held.end);
    let values = numbers.filter_map(|number| code::decode(ring.point(number)?[position]));
    let (mut sum, mut count, mut most) = (0.0, 0u32, 0.0f64);
    for value in values {
        (sum, count, most) = (sum + value, count + 1, most.max(value));
    }
    (count > 0).then(|| match combination {
        Combination::Mean => short(sum / f64::from(count)),
        Combination::Maximum => short(most),
    })
}

/// Rounds a value to five significant digits, but not above the decimal point.
fn short(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = 4 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        return value.round();
    }
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}
