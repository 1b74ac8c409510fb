//! Values of an experiment's report, which may be missing, and their form in text.

use serde_json::Value;

/// The text for a value that is missing.
pub(super) const MISSING: &str = "not measured";

/// Returns the number at this path, whose parts are separated by dots.
pub(super) fn number(data: &Value, path: &str) -> Option<f64> {
    at(data, path)?.as_f64()
}

/// Returns the text at this path.
pub(super) fn text<'a>(data: &'a Value, path: &str) -> Option<&'a str> {
    at(data, path)?.as_str()
}

/// Returns the elements of the list at this path; none if there is no list.
pub(super) fn list<'a>(data: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> + Clone {
    let list = at(data, path).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default().iter()
}

/// Returns the element of a list whose field `name` has this text.
pub(super) fn named<'a>(data: &'a Value, path: &str, name: &str) -> Option<&'a Value> {
    list(data, path).find(|row| text(row, "name") == Some(name))
}

fn at<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(data, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}

/// Returns at most `chars_max` characters of a text from a file, without those that control a terminal or the direction of
/// text.
pub fn printable(text: &str, chars_max: usize) -> String {
    let is_harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut chars = text.chars();
    let shown = |c| if is_harmful(c) { '\u{fffd}' } else { c };
    let mut printable: String = chars.by_ref().take(chars_max).map(shown).collect();
    if chars.next().is_some() {
        printable.push('…');
    }
    printable
}

/// Formats a number with three or four significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    match value {
        value if !value.is_finite() => "∞".to_owned(),
        value if size >= 1000.0 => thousands(value.round()),
        value if value.fract() == 0.0 => format!("{value:.0}"),
        value if size >= 100.0 => format!("{value:.0}"),
        value if size >= 10.0 => format!("{value:.1}"),
        value if size >= 1.0 => format!("{value:.2}"),
        value if size >= 0.001 => format!("{value:.3}"),
        value => format!("{value:.1e}"),
    }
}

fn thousands(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match value < 0.0 {
        true => format!("-{text}"),
        false => text,
    }
}

/// Formats a number with its unit, if it was measured.
pub(super) fn with_unit(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if unit.is_empty() => digits(value),
        Some(value) => format!("{} {unit}", digits(value)),
        None => MISSING.to_owned(),
    }
}

/// Formats a time in milliseconds with a suitable unit.
pub fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        0.0 => "0 ms".to_owned(),
        small if small < 1.0 => format!("{} µs", digits(ms * 1000.0)),
        large if large >= 1000.0 => format!("{} s", digits(ms / 1000.0)),
        _ => format!("{} ms", digits(ms)),
    }
}

/// Formats a time in milliseconds, if it was measured.
pub(super) fn time(ms: Option<f64>) -> String {
    ms.map_or_else(|| MISSING.to_owned(), milliseconds)
}

/// Formats a duration in seconds.
pub fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 100.0 => format!("{} s", digits(short.round())),
        long => format!("{} min", digits((long / 60.0).round())),
    }
}

/// Formats a time in seconds since 1970 as a date and a time of the day in UTC.
pub(super) fn date(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days are counted from 1 March of year 0 (proleptic Gregorian calendar), in periods of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (rest / 3600, rest % 3600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_three_or_four_digits() {
        for (value, shown) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.01234, "0.012"),
            (0.00001, "1.0e-5"),
            (1.2345, "1.23"),
            (12.345, "12.3"),
            (123.45, "123"),
            (1234.5, "1,235"),
            (-1_234_567.0, "-1,234,567"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(digits(value), shown);
        }
    }

    #[test]
    fn times_have_a_suitable_unit() {
        assert_eq!(milliseconds(0.25), "250 µs");
        assert_eq!(milliseconds(4.9), "4.90 ms");
        assert_eq!(milliseconds(4770.0), "4.77 s");
        assert_eq!(
            (duration(59.6), duration(301.0)),
            ("60 s".into(), "5 min".into())
        );
        assert_eq!(time(None), MISSING);
    }

    #[test]
    fn values_are_found_by_their_path_or_missing() {
        let data = json!({ "rows": [{ "name": "a", "ms": { "cold": 5.0 } }], "rates": [1, 2] });
        let row = named(&data, "rows", "a").expect("a row");
        assert_eq!(number(row, "ms.cold"), Some(5.0));
        assert_eq!(number(&data, "rates.1"), Some(2.0));
        for missing in ["ms.warm", "name", "none.at.all"] {
            assert_eq!(number(row, missing), None);
        }
        assert_eq!(
            (list(&data, "rows").count(), list(&data, "none").count()),
            (1, 0)
        );
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
