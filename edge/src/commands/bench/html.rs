//! The report of a load as an HTML file of its own: the table, and plots of rate and latency over time.

use std::fmt::Write as _;

use sluice_lab::report::page::{self, Cell, Table, escape};
use sluice_lab::report::svg::{self, Axis, Line, Scale};

use super::points::Point;
use super::report::{Report, show};

/// Renders the report of a load with these points.
pub fn render(report: &Report, points: &[Point]) -> String {
    let title = report.title();
    let mut page = page::begin(&title);
    let mut table = Table::new("Result", &["", "value"]);
    for (name, value) in report.rows().into_iter().chain(report.origin()) {
        table.row(name, [Cell::text(value)]);
    }
    // Writing to a String can't fail.
    let _ = write!(
        page,
        "<header>\n<h1>{}</h1>\n</header>\n<main>\n{}",
        escape(&title),
        table.render()
    );
    match points {
        [_, _, ..] => plots(&mut page, points),
        _ => page.push_str("<p>The load was too short for a plot.</p>\n"),
    }
    page.push_str("</main>\n");
    page.push_str(page::END);
    page
}

fn plots(page: &mut String, points: &[Point]) {
    let line = |class, name: &str, value: fn(&Point) -> f64| Line {
        class,
        name: name.to_owned(),
        points: points
            .iter()
            .map(|point| (point.seconds, value(point)))
            .collect(),
    };
    let rates = [
        line("a", "requests/s", |point| point.rate),
        line("c", "errors/s", |point| point.errors),
    ];
    let latencies = [
        line("a", "p50", |point| point.p50_us),
        line("b", "p99", |point| point.p99_us),
        line("c", "max", |point| point.max_us),
    ];
    let values = |lines: &[Line]| -> Vec<f64> {
        let points = lines.iter().flat_map(|line| &line.points);
        points.map(|(_, value)| *value).collect()
    };
    let end = points.last().map_or(1.0, |point| point.seconds);
    let seconds = Axis {
        scale: Scale::from_zero(end),
        show: |seconds| format!("{seconds} s"),
    };
    let most = values(&rates).into_iter().fold(1.0, f64::max);
    let rate = Axis {
        scale: Scale::from_zero(most),
        show: |value| format!("{value}"),
    };
    let latency = Axis {
        scale: Scale::powers(values(&latencies)),
        show,
    };
    page.push_str("<h2>Rate</h2>\n");
    page.push_str(&svg::plot("Rate over time", &rates, seconds, rate));
    page.push_str("<h2>Latency</h2>\n");
    page.push_str(&svg::plot(
        "Latency over time",
        &latencies,
        seconds,
        latency,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_latencies_have_a_gap_where_the_server_sent_nothing() {
        let point = |seconds: f64, us: f64| Point {
            seconds,
            rate: us,
            errors: 0.0,
            p50_us: us,
            p99_us: us * 2.0,
            max_us: us * 3.0,
        };
        let lines = |latencies: [f64; 5]| {
            let seconds = (1_u32..).map(f64::from);
            let points: Vec<Point> = seconds
                .zip(latencies)
                .map(|(seconds, us)| point(seconds, us))
                .collect();
            let mut page = String::new();
            plots(&mut page, &points);
            let (rates, latencies) = page.split_once("<h2>Latency</h2>").expect("two plots");
            [rates, latencies].map(|plot| plot.matches("<polyline").count())
        };
        assert_eq!(lines([100.0, 110.0, 120.0, 100.0, 100.0]), [2, 3]);
        // The rate is zero then, and has no gap.
        assert_eq!(lines([100.0, 110.0, 0.0, 100.0, 100.0]), [2, 6]);
    }
}
