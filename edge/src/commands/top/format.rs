//! Formats numbers briefly for `sluice top`.

/// Text in place of a value that is not known.
const UNKNOWN: &str = "-";

/// Shows a number with groups of three digits, or from a million on in millions.
pub fn count(value: f64) -> String {
    if value >= 1e6 {
        return match value {
            1e9.. => format!("{:.1}G", value / 1e9),
            _ => format!("{:.1}M", value / 1e6),
        };
    }
    let digits = format!("{value:.0}");
    match digits.split_at_checked(digits.len().saturating_sub(3)) {
        Some((thousands, rest)) if !thousands.is_empty() && thousands != "-" => {
            format!("{thousands},{rest}")
        }
        _ => digits,
    }
}

/// Shows a number per second; small ones with a decimal.
pub fn rate(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value > 0.0 && value < 9.95 => format!("{value:.1}"),
        Some(value) => count(value),
    }
}

/// Shows a number of bytes with one decimal.
pub fn bytes(value: f64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .iter()
        .find(|(power, _)| value >= 2f64.powi(*power) - 0.5);
    match unit {
        Some((power, name)) => format!("{:.1} {name}", value / 2f64.powi(*power)),
        None => format!("{value:.0} B"),
    }
}

/// Shows bytes per second.
pub fn byte_rate(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{}/s", bytes(value)))
}

/// Shows a share from 0 to 1 in percent.
pub fn percent(share: Option<f64>) -> String {
    match share {
        None => UNKNOWN.to_owned(),
        Some(share) if share >= 0.9995 => "100%".to_owned(),
        Some(share) => format!("{:.1}%", 100.0 * share),
    }
}

/// Shows a duration given in microseconds.
pub fn duration(us: Option<u64>) -> String {
    match us {
        None => UNKNOWN.to_owned(),
        Some(us @ 0..1_000) => format!("{us} µs"),
        Some(us @ 1_000..1_000_000) => format!("{:.1} ms", us as f64 / 1e3),
        Some(us) => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// Shows a time in seconds by its two largest units, such as `3d 4h`.
pub fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let largest = units.iter().position(|(unit, _)| seconds >= *unit);
    let shown = units
        .iter()
        .skip(largest.unwrap_or(units.len() - 1))
        .take(2);
    let mut rest = seconds;
    let parts: Vec<String> = shown
        .map(|(unit, name)| {
            let part = rest / unit;
            rest %= unit;
            format!("{part}{name}")
        })
        .collect();
    parts.join(" ")
}

/// Shortens a text to this number of characters, of which the last is then an ellipsis.
pub fn shortened(text: &str, max: usize) -> String {
    match text.chars().count() > max {
        true => text
            .chars()
            .take(max.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_brief() {
        let counts = [0.0, 7.0, 999.4, 1000.0, 999_999.0, 1_250_000.0, 3e9].map(count);
        assert_eq!(
            counts,
            ["0", "7", "999", "1,000", "999,999", "1.2M", "3.0G"]
        );
        let rates = [None, Some(0.0), Some(0.25), Some(9.94), Some(9.96)].map(rate);
        assert_eq!(rates, ["-", "0", "0.2", "9.9", "10"]);
        let sizes = [0.0, 1023.0, 1024.0, 1_572_864.0, 2f64.powi(41)].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "2.0 TiB"]);
        let shares = [None, Some(0.0), Some(0.987), Some(0.9999)].map(percent);
        assert_eq!(shares, ["-", "0.0%", "98.7%", "100%"]);
    }

    #[test]
    fn times_are_brief() {
        let durations = [None, Some(8), Some(1_500), Some(2_000_000)].map(duration);
        assert_eq!(durations, ["-", "8 µs", "1.5 ms", "2.0 s"]);
        let times = [0, 59, 60, 3_725, 90_000, 8_640_000].map(time);
        assert_eq!(times, ["0s", "59s", "1m 0s", "1h 2m", "1d 1h", "100d 0h"]);
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab…");
        assert_eq!(shortened("äöüß", 3), "äö…");
        assert_eq!(shortened("abc", 0), "…");
    }
}
