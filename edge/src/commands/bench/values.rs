//! Parsers for the values of the options of `sluice bench`, with their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;

/// Shortest and longest time of an option.
const TIMES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600);

pub fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if TIMES.contains(&time) => Ok(time),
        _ => Err("a time from 1ms to 365days, as in 500ms, 30s or 10m".to_owned()),
    }
}

pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.01..=100_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("a number from 0.01 to 100000000 (per second)".to_owned()),
    }
}

pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (0.001..=1_000_000.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 0.001 to 1000000".to_owned()),
    }
}

pub fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..=5.0).contains(&exponent) => Ok(exponent),
        _ => Err("a number from 0 to 5".to_owned()),
    }
}

pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(size @ 1..)) => Ok(size),
        _ => Err("write a size, as in 64KiB".to_owned()),
    }
}

pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("write a name, a colon and a value, as in 'Accept: text/html'")?;
    let value = value.trim();
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err("the name has characters that a header may not have".to_owned());
    }
    if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        return Err("the value has control characters".to_owned());
    }
    let reserved = ["host", "connection", "content-length", "transfer-encoding"];
    if reserved.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("this header is written by the load generator itself".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(header("A: b "), Ok(("A".to_owned(), "b".to_owned())));
        for wrong in ["A", ": b", "A b: c", "A: b\r\nC: d", "Host: x"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("64KiB"), Ok(65_536));
        assert!(size("0").is_err() && rate("nan").is_err() && rate("0").is_err());
        assert!(speed("inf").is_err() && exponent("-1").is_err());
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(time("365days"), Ok(*TIMES.end()));
        for wrong in ["0s", "999us", "365days 1ms", "30", "-1s", "1e3s", "soon"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
