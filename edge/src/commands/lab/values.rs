//! Parsers for the values of the experiments' options: sizes, rates and times, with their bounds.

use std::time::Duration;

use bytesize::ByteSize;
use sluice_lab::byte_range;

/// Fill modes of Sluice.
pub const FILLS: [&str; 4] = ["whole", "lock", "slice", "auto"];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.0),
        Err(_) => Err("write a size, as in 1MiB".to_owned()),
    }
}

pub fn slice(text: &str) -> Result<u64, String> {
    match size(text)? {
        size if !(64 * KIB..=16 * MIB).contains(&size) => Err("64KiB to 16MiB".to_owned()),
        size if size % (64 * KIB) != 0 => Err("a multiple of 64KiB".to_owned()),
        size => Ok(size),
    }
}

/// Parses a rate with a lower bound, so that files of 10 MiB and 100 MB arrive before clients time out.
pub fn rate(text: &str) -> Result<u64, String> {
    match size(text)? {
        rate @ byte_range::RATE_MIN.. => Ok(rate),
        _ => Err("at least 64KiB (per second)".to_owned()),
    }
}

pub fn memory(text: &str) -> Result<u64, String> {
    let size = size(text)?;
    match (8 * MIB..=16 * TIB).contains(&size) {
        true => Ok(size),
        false => Err("8MiB to 16TiB".to_owned()),
    }
}

pub fn client_budget(text: &str) -> Result<u64, String> {
    let size = size(text)?;
    match size == 0 || (MIB..=TIB).contains(&size) {
        true => Ok(size),
        false => Err("1MiB to 1TiB, or 0 for no limit".to_owned()),
    }
}

pub fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("an interval longer than zero".to_owned()),
        Ok(time) => Ok(time),
        Err(_) => Err("write a time, as in 20ms".to_owned()),
    }
}

pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number from 0.1 to 3600".to_owned()),
    }
}

/// Parses a number above zero with an upper bound, such as a price or a rate.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1e-6..=1e6).contains(&number) => Ok(number),
        _ => Err("a number from 0.000001 to 1000000".to_owned()),
    }
}

pub fn currency(text: &str) -> Result<String, String> {
    let is_short = (1..=8).contains(&text.chars().count());
    match is_short && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("1 to 8 characters, as in USD".to_owned()),
    }
}
