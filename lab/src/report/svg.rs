//! Charts as inline SVG: bars with whiskers, and lines over time or rate. Horizontal positions are percentages, so that
//! text keeps its size on narrow screens.

use std::fmt::Write as _;

use super::page::escape;

/// Height in pixels of the area with the lines of a plot, and of the space above and below.
const HEIGHT: f64 = 220.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 26.0;
/// Width of the coordinates within a plot, which is stretched to the width of the page.
const INNER: f64 = 1000.0;
/// Half of the width of a point without neighbours.
const DOT: f64 = 1.0;
/// Heights in pixels of the parts of a chart with bars.
const GROUP: f64 = 30.0;
const ROW: f64 = 36.0;
const TEXT: f64 = 14.0;
const BAR: f64 = 11.0;
/// The whole width, in percent.
const FULL: f64 = 100.0;
/// Smallest visible length of a bar in percent.
const SHORTEST: f64 = 0.4;
/// Number of marks of a linear scale, about.
const MARKS: f64 = 4.0;
/// Largest number of marks of a scale of powers.
const POWERS: i32 = 6;
/// Bounds of a scale of powers of ten.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e15;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// From the first value to the second.
    Linear(f64, f64),
    /// Between two powers of ten, given by their exponents.
    Powers(f64, f64),
}

impl Scale {
    /// Returns a linear scale from 0 to a round number that is not below `most`.
    pub fn from_zero(most: f64) -> Scale {
        let most = if most.is_finite() && most > 0.0 {
            most
        } else {
            1.0
        };
        let step = round_step(most / MARKS);
        Scale::Linear(0.0, (most / step - 1e-9).ceil() * step)
    }

    /// Returns the powers of ten between which all positive values lie; other values have no place on the scale.
    pub fn powers(values: impl IntoIterator<Item = f64>) -> Scale {
        let known = values
            .into_iter()
            .filter(|value| *value > 0.0 && value.is_finite());
        let bounds = known.fold(None, |bounds, value| {
            let (least, most) = bounds.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        });
        let (least, most) = bounds.unwrap_or((1.0, 10.0));
        let low = least.clamp(LEAST, MOST).log10().floor();
        let high = most.clamp(LEAST, MOST).log10().ceil();
        Scale::Powers(low, high.max(low + 1.0))
    }

    /// Returns the place of a value from 0 to 1; `None` if the value is not on the scale.
    pub fn place(self, value: f64) -> Option<f64> {
        let share = match self {
            Scale::Linear(from, to) => (value - from) / (to - from),
            Scale::Powers(low, high) if value > 0.0 => (value.log10() - low) / (high - low),
            Scale::Powers(..) => return None,
        };
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Returns the values that an axis names.
    pub fn marks(self) -> Vec<f64> {
        match self {
            Scale::Linear(from, to) => {
                let step = round_step((to - from) / MARKS);
                let first = (from / step).ceil() as i64;
                let last = (to / step + 1e-9).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
            Scale::Powers(low, high) => {
                let step = ((high - low) as i32 / POWERS).max(0) + 1;
                let powers = (low as i32..=high as i32).step_by(step.unsigned_abs() as usize);
                powers.map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// Returns the nearest round number (1, 2 or 5 times a power of ten) that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(LEAST).log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    let mut steps = factors.map(|factor| factor * power);
    steps
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// One axis of a plot.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// The scale.
    pub scale: Scale,
    /// Formats the values at the marks.
    pub show: fn(f64) -> String,
}

/// A line of a plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// Colour: `a` to `e`, optionally with `dashed`.
    pub class: &'static str,
    /// Name in the legend.
    pub name: String,
    /// Horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

/// Renders lines over a common horizontal axis, with a legend. A line has a gap where a value is not on the scale. `label`
/// describes the plot for readers who can't see it.
pub fn plot(label: &str, lines: &[Line], x: Axis, y: Axis) -> String {
    let label = escape(label);
    let whole = TOP + HEIGHT + BOTTOM;
    let mut svg = format!(
        "<svg height=\"{whole}\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>\n"
    );
    // Writing to a String can't fail.
    for value in y.scale.marks() {
        let at = TOP + HEIGHT * (1.0 - y.scale.place(value).unwrap_or(0.0));
        let _ = writeln!(
            svg,
            "<line x1=\"0\" x2=\"100%\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<svg x=\"0\" y=\"{TOP}\" width=\"100%\" height=\"{HEIGHT}\" viewBox=\"0 0 {INNER} {HEIGHT}\" \
         preserveAspectRatio=\"none\">"
    );
    for line in lines {
        let place = |(at, value): &(f64, f64)| {
            let (x, y) = (x.scale.place(*at)?, y.scale.place(*value)?);
            Some((x * INNER, (1.0 - y) * HEIGHT))
        };
        let places: Vec<Option<(f64, f64)>> = line.points.iter().map(place).collect();
        for piece in places.split(Option::is_none) {
            let points = polyline(&piece.iter().flatten().copied().collect::<Vec<_>>());
            let class = line.class;
            if !points.is_empty() {
                let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{points}\"/>");
            }
        }
    }
    svg.push_str("</svg>\n");
    svg.push_str(&names(x, y));
    svg.push_str("</svg>\n");
    let names = lines.iter().map(|line| (line.class, line.name.as_str()));
    svg + &legend(names)
}

/// Returns the points of a line without gaps as text. A single point becomes a short line, since a point alone is not
/// visible.
fn polyline(places: &[(f64, f64)]) -> String {
    if let [(x, y)] = places {
        return format!("{:.1},{y:.1} {:.1},{y:.1}", x - DOT, x + DOT);
    }
    let points: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    points.join(" ")
}

/// Returns the values at the marks: those of the vertical axis above their lines, and those of the horizontal axis below
/// the plot.
fn names(x: Axis, y: Axis) -> String {
    let mut svg = String::new();
    for value in y.scale.marks() {
        let at = TOP + HEIGHT * (1.0 - y.scale.place(value).unwrap_or(0.0));
        let name = escape(&(y.show)(value));
        // Writing to a String can't fail.
        let _ = writeln!(
            svg,
            "<text class=\"quiet\" x=\"0\" y=\"{:.1}\">{name}</text>",
            at - 4.0
        );
    }
    for value in x.scale.marks() {
        let share = x.scale.place(value).unwrap_or(0.0);
        let anchor = match share {
            left if left < 0.05 => "start",
            right if right > 0.95 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            svg,
            "<text class=\"quiet\" x=\"{:.2}%\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            share * FULL,
            TOP + HEIGHT + BOTTOM - 6.0,
            escape(&(x.show)(value))
        );
    }
    svg
}

/// Renders the names of colours.
pub fn legend<'a>(names: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (class, name) in names {
        let name = escape(name);
        let _ = write!(
            html,
            "<span class=\"{class}\"><i></i><span>{name}</span></span>"
        );
    }
    html.push_str("</p>\n");
    html
}

/// One bar of a chart.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Colour, as for lines.
    pub class: &'static str,
    /// Name above the bar.
    pub name: String,
    /// Length; `None`: not measured.
    pub value: Option<f64>,
    /// The value as text.
    pub shown: String,
    /// Lowest and highest value of all rounds, if known.
    pub spread: Option<(f64, f64)>,
}

/// Bars under a common heading; empty for none.
#[derive(Debug, Clone)]
pub struct Group {
    /// The heading.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// Renders groups of horizontal bars. `label` describes the chart for readers who can't see it.
pub fn bars(label: &str, groups: &[Group], scale: Scale) -> String {
    let label = escape(label);
    let mut body = String::new();
    let mut top = 0.0;
    for group in groups {
        if !group.name.is_empty() {
            top += GROUP;
            let name = escape(&group.name);
            // Writing to a String can't fail.
            let _ = writeln!(
                body,
                "<text class=\"group\" x=\"0\" y=\"{:.0}\">{name}</text>",
                top - 10.0
            );
        }
        for bar in &group.bars {
            body.push_str(&bar_at(bar, top, scale));
            top += ROW;
        }
    }
    format!(
        "<svg height=\"{top:.0}\" role=\"img\" aria-label=\"{label}\"><title>{label}</title>\n{body}</svg>\n"
    )
}

fn bar_at(bar: &Bar, top: f64, scale: Scale) -> String {
    let length = |value: f64| scale.place(value).unwrap_or(0.0) * FULL;
    let (name, shown) = (escape(&bar.name), escape(&bar.shown));
    let (text, at) = (top + TEXT, top + TEXT + 5.0);
    let mut svg = format!(
        "<text x=\"0\" y=\"{text:.0}\">{name}</text>\
         <text x=\"100%\" y=\"{text:.0}\" text-anchor=\"end\">{shown}</text>\
         <rect class=\"track\" x=\"0\" y=\"{at:.0}\" width=\"100%\" height=\"{BAR}\" rx=\"3\"/>"
    );
    if let Some(value) = bar.value {
        let (class, length) = (bar.class, length(value).max(SHORTEST));
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"0\" y=\"{at:.0}\" width=\"{length:.2}%\" height=\"{BAR}\" rx=\"3\"/>"
        );
    }
    if let Some((low, high)) = bar.spread {
        let middle = at + BAR / 2.0;
        let _ = write!(
            svg,
            "<line class=\"whisker\" x1=\"{0:.2}%\" x2=\"{1:.2}%\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
             <line class=\"whisker\" x1=\"{0:.2}%\" x2=\"{0:.2}%\" y1=\"{2:.1}\" y2=\"{3:.1}\"/>\
             <line class=\"whisker\" x1=\"{1:.2}%\" x2=\"{1:.2}%\" y1=\"{2:.1}\" y2=\"{3:.1}\"/>",
            length(low),
            length(high),
            middle - 4.0,
            middle + 4.0
        );
    }
    svg.push('\n');
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_powers_of_ten() {
        let scale = Scale::powers([0.0, 150.0, 2500.0, f64::INFINITY]);
        assert_eq!(scale, Scale::Powers(2.0, 4.0));
        assert_eq!(scale.place(1000.0), Some(0.5));
        assert_eq!((scale.place(0.0), scale.place(1e9)), (None, Some(1.0)));
        assert_eq!(scale.marks(), [100.0, 1000.0, 10_000.0]);
        assert!(matches!(Scale::powers([]), Scale::Powers(low, high) if low < high));
        let wide = Scale::powers([1e-9, 1e9]).marks();
        assert!(wide.len() <= 7, "{wide:?}");
    }

    #[test]
    fn linear_scales_have_round_marks() {
        assert_eq!(Scale::from_zero(87.0).marks(), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::from_zero(4.0).marks(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Scale::from_zero(f64::NAN), Scale::Linear(0.0, 1.0));
        assert_eq!(Scale::from_zero(100.0).place(25.0), Some(0.25));
    }

    #[test]
    fn a_plot_has_a_name_and_all_points_on_the_scale() {
        let line = Line {
            class: "a",
            name: "p50 <x>".to_owned(),
            points: vec![(0.0, 1.0), (10.0, 100.0)],
        };
        let axis = |scale| Axis {
            scale,
            show: |value| format!("{value}"),
        };
        let (x, y) = (Scale::from_zero(10.0), Scale::powers([1.0, 100.0]));
        let svg = plot("times \"over\" seconds", &[line], axis(x), axis(y));
        assert!(
            svg.contains("aria-label=\"times &quot;over&quot; seconds\""),
            "{svg}"
        );
        assert!(svg.contains("points=\"0.0,220.0 1000.0,0.0\""), "{svg}");
        assert!(svg.contains("p50 &lt;x&gt;"), "{svg}");
    }

    #[test]
    fn a_line_has_a_gap_where_a_value_is_not_on_the_scale() {
        let line = |points: &[(f64, f64)]| Line {
            class: "a",
            name: "p50".to_owned(),
            points: points.to_vec(),
        };
        let axis = |scale| Axis {
            scale,
            show: |value| format!("{value}"),
        };
        let drawn = |points: &[(f64, f64)]| {
            let (x, y) = (Scale::from_zero(10.0), Scale::powers([1.0, 100.0]));
            plot("times", &[line(points)], axis(x), axis(y))
        };
        let svg = drawn(&[(0.0, 1.0), (2.0, 100.0), (4.0, 0.0), (8.0, 10.0)]);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(svg.contains("points=\"0.0,220.0 200.0,0.0\""), "{svg}");
        // A point without neighbours is visible.
        assert!(svg.contains("points=\"799.0,110.0 801.0,110.0\""), "{svg}");
        assert!(!drawn(&[(2.0, 0.0)]).contains("<polyline"));
    }

    #[test]
    fn bars_show_spread_and_missing_values() {
        let bar = |value: Option<f64>, spread| Bar {
            class: "b",
            name: "nginx".to_owned(),
            value,
            shown: "50 ms".to_owned(),
            spread,
        };
        let group = Group {
            name: "cold".to_owned(),
            bars: vec![bar(Some(50.0), Some((25.0, 100.0))), bar(None, None)],
        };
        let svg = bars("bars", &[group], Scale::from_zero(100.0));
        assert!(svg.contains("width=\"50.00%\""), "{svg}");
        assert!(svg.contains("x1=\"25.00%\" x2=\"100.00%\""), "{svg}");
        assert_eq!(svg.matches("class=\"b\"").count(), 1);
        assert_eq!(svg.matches("class=\"track\"").count(), 2);
    }
}
