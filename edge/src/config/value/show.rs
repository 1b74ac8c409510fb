//! Formats sizes and times for messages.

use std::time::Duration;

use bytesize::ByteSize;

/// Formats a number with its noun in the singular or plural, such as `2 workers`.
pub fn show_count(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        n => format!("{n} {thing}s"),
    }
}

/// Formats a size, such as `64 KiB`.
pub fn show_size(bytes: u64) -> String {
    ByteSize(bytes)
        .display()
        .iec()
        .to_string()
        .replace(".0 ", " ")
}

/// The length of a year that `"1year"` means.
pub const YEAR: Duration = Duration::from_secs(31_557_600);
const DAY_S: u64 = 24 * 3600;

/// Formats a time, such as `1m 30s` or `365days`.
pub fn show_time(time: Duration) -> String {
    let days = time.as_secs() / DAY_S;
    let rest = time - Duration::from_secs(days * DAY_S);
    let whole_years = time > Duration::ZERO && time.as_nanos().is_multiple_of(YEAR.as_nanos());
    let days = match days {
        0 => return humantime::format_duration(time).to_string(),
        _ if whole_years => return humantime::format_duration(time).to_string(),
        // humantime would write months and years of 30.44 and 365.25 days, so days are written
        // instead.
        1 => "1day".to_owned(),
        days => format!("{days}days"),
    };
    match rest.is_zero() {
        true => days,
        false => format!("{days} {}", humantime::format_duration(rest)),
    }
}
