//! Sizes and times as people write them.

use std::time::Duration;

use bytesize::ByteSize;

/// A size as people write it: `64 KiB`.
pub fn show_size(bytes: u64) -> String {
    ByteSize(bytes)
        .display()
        .iec()
        .to_string()
        .replace(".0 ", " ")
}

/// A year, as `"1year"` means it.
pub const YEAR: Duration = Duration::from_secs(31_557_600);
const DAY_S: u64 = 24 * 3600;

/// A time as people write it: `1m 30s`, `365days`.
pub fn show_time(time: Duration) -> String {
    let days = time.as_secs() / DAY_S;
    let rest = time - Duration::from_secs(days * DAY_S);
    let whole_years = time > Duration::ZERO && time.as_nanos().is_multiple_of(YEAR.as_nanos());
    let days = match days {
        0 => return humantime::format_duration(time).to_string(),
        _ if whole_years => return humantime::format_duration(time).to_string(),
        // Months and years of no whole number of days are hard to read.
        1 => "1day".to_owned(),
        days => format!("{days}days"),
    };
    match rest.is_zero() {
        true => days,
        false => format!("{days} {}", humantime::format_duration(rest)),
    }
}
