//! The charts of `sluice top`: a row of sparklines, each with its title and newest value.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Sparkline, Widget};

use super::format::{byte_rate, duration, percent, rate};
use super::model::Model;
use super::series::{History, Series};
use super::snapshot::Traffic;
use super::theme::Theme;

/// Least width of a chart. Narrower screens have fewer charts.
const WIDTH_MIN: u16 = 24;
/// Steps into which the highest value of a chart is divided.
const STEPS: f64 = 10_000.0;

/// A chart: its title with the newest value, its series, and the value at the top of the chart if that is fixed.
struct Chart {
    title: fn(&Traffic) -> String,
    series: fn(&History) -> &Series,
    top: Option<f64>,
}

const CHARTS: [Chart; 6] = [
    Chart {
        title: |traffic| format!("requests {}/s", rate(traffic.requests_per_s)),
        series: |history| &history.requests,
        top: None,
    },
    Chart {
        title: |traffic| format!("hits {}", percent(traffic.hit_ratio)),
        series: |history| &history.hit_ratio,
        top: Some(1.0),
    },
    Chart {
        title: |traffic| format!("p99 {}", duration(traffic.latency.p99_us)),
        series: |history| &history.latency,
        top: None,
    },
    Chart {
        title: |traffic| format!("to clients {}", byte_rate(traffic.client_bytes_per_s)),
        series: |history| &history.client_bytes,
        top: None,
    },
    Chart {
        title: |traffic| format!("from origins {}", byte_rate(traffic.upstream_bytes_per_s)),
        series: |history| &history.upstream_bytes,
        top: None,
    },
    Chart {
        title: |traffic| format!("5xx {}/s", rate(traffic.responses_5xx_per_s)),
        series: |history| &history.failed,
        top: None,
    },
];

/// Returns the lines of the charts, with their titles, if this many lines are left on the screen.
pub fn height(lines: u16) -> u16 {
    match lines {
        28.. => 5,
        18.. => 4,
        12.. => 3,
        _ => 0,
    }
}

/// Draws as many charts as fit beside one another.
pub fn draw(buffer: &mut Buffer, area: Rect, model: &Model, theme: Theme) {
    let charts = (area.width / WIDTH_MIN).clamp(1, CHARTS.len() as u16);
    let width = area.width / charts;
    for (chart, at) in CHARTS.iter().zip(0..charts) {
        let area = Rect {
            x: area.x + at * width,
            // A column stays free between charts.
            width: width.saturating_sub(1),
            ..area
        };
        draw_chart(buffer, area, chart, model, theme);
    }
}

fn draw_chart(buffer: &mut Buffer, area: Rect, chart: &Chart, model: &Model, theme: Theme) {
    if area.height < 2 || area.width == 0 {
        return;
    }
    let title = (chart.title)(&model.snapshot.traffic);
    Line::styled(title, theme.heading()).render(Rect { height: 1, ..area }, buffer);
    let columns = (chart.series)(&model.history).columns(area.width.into(), model.span_s());
    let bars = Rect {
        y: area.y + 1,
        height: area.height - 1,
        // The newest value is at the right edge.
        x: area.right() - (columns.len() as u16).min(area.width),
        width: (columns.len() as u16).min(area.width),
    };
    let bar = theme.bars();
    Sparkline::default()
        .data(scaled(&columns, chart.top))
        .max(STEPS as u64)
        .absent_value_symbol("·")
        .absent_value_style(theme.faint())
        .style(bar)
        .render(bars, buffer);
}

/// Scales values to whole numbers up to `STEPS`, which stand for the highest value, or for `top`.
fn scaled(columns: &[Option<f64>], top: Option<f64>) -> Vec<Option<u64>> {
    let highest = columns.iter().flatten().copied().fold(0.0, f64::max);
    let top = top.unwrap_or(highest);
    let scale = |value: f64| match top > 0.0 {
        true => (value / top * STEPS).round() as u64,
        false => 0,
    };
    columns.iter().map(|value| value.map(scale)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_reaches_the_top() {
        let columns = [Some(5.0), None, Some(10.0), Some(0.0)];
        let expected = [Some(5000), None, Some(10_000), Some(0)];
        assert_eq!(scaled(&columns, None), expected);
        assert_eq!(scaled(&[Some(0.5)], Some(1.0)), [Some(5000)]);
        assert_eq!(scaled(&[Some(0.0)], None), [Some(0)]);
    }
}
