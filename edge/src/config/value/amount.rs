//! Types of amounts: sizes and times, and numbers for which a word may be written.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::Deserializer;

use super::or_false::{is_old_off, written_false};
use super::scalar::{self, Misfit, Scalar};
use super::shape::{
    AHEAD, AHEAD_ADVICE, PARALLEL, PARALLEL_ADVICE, SIZE, SIZE_ADVICE, TIME, TIME_ADVICE,
};

/// A size in bytes: `"64KiB"`, `"1GB"`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64, pub Spelling);

/// A time: `"10s"`, `"1m30s"`, `"500ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration, pub Spelling);

/// Whether the unit of an amount may have been meant in another sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// The unit has one meaning.
    Clear,
    /// The unit of a size is one letter, such as `M`, or that of a time is `M`, which is a month.
    Ambiguous,
}

/// Parses a size. A unit of one letter is a power of 1024, as in nginx.
fn size(text: &str) -> Option<Size> {
    let letter = text
        .trim_end()
        .strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    let is_letter =
        letter.is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_digit() || c == ' '));
    let (text, spelling) = match is_letter {
        true => (format!("{}iB", text.trim_end()), Spelling::Ambiguous),
        false => (text.to_owned(), Spelling::Clear),
    };
    let bytes = text.parse::<ByteSize>().ok()?;
    Some(Size(bytes.0, spelling))
}

/// Parses a time, in which `M` is a month and `m` a minute.
fn time(text: &str) -> Option<Time> {
    let time = humantime::parse_duration(text).ok()?;
    let spelling = match has_months(text) {
        true => Spelling::Ambiguous,
        false => Spelling::Clear,
    };
    Some(Time(time, spelling))
}

/// Whether a time has the unit `M`, which is a month and may have been meant as minutes.
pub fn has_months(text: &str) -> bool {
    let mut units = text.split(|c: char| !c.is_ascii_alphabetic());
    units.any(|unit| unit == "M")
}

/// Most fetches at the same time: `"auto"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// As many fetches as make the transfer faster.
    Auto,
    /// As many fetches as make the transfer faster, but at most this many.
    Count(u64),
}

/// Distance to read ahead of a client: `false`, `"whole"`, or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing is read ahead.
    None,
    /// The whole object is read ahead.
    Whole,
    /// At most this many bytes are read ahead.
    Window(Size),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        scalar::read(deserializer, SIZE, |written| match written {
            Scalar::Number(n) => bytes(n, SIZE_ADVICE),
            Scalar::Text(text) => size(text)
                .ok_or_else(|| Misfit::Value(format!("{text:?} is not a size\n{SIZE_ADVICE}"))),
            Scalar::Switch(_) => Err(Misfit::Type),
        })
    }
}

/// Returns a size that was written as a number of bytes.
fn bytes(n: i64, advice: &str) -> Result<Size, Misfit> {
    u64::try_from(n)
        .map(|bytes| Size(bytes, Spelling::Clear))
        .map_err(|_| Misfit::Value(format!("a size can't be negative\n{advice}")))
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        scalar::read(deserializer, TIME, |written| match written {
            Scalar::Number(n) => Err(Misfit::Value(format!(
                "a time needs a unit\nwrite \"{n}s\", \"{n}ms\" or \"{n}m\", in quotes"
            ))),
            Scalar::Text(text) => time(text)
                .ok_or_else(|| Misfit::Value(format!("{text:?} is not a time\n{TIME_ADVICE}"))),
            Scalar::Switch(_) => Err(Misfit::Type),
        })
    }
}

impl<'de> Deserialize<'de> for Parallel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parallel, D::Error> {
        scalar::read(deserializer, PARALLEL, |written| match written {
            Scalar::Number(n) => u64::try_from(n).map(Parallel::Count).map_err(|_| {
                let error =
                    "a number of fetches can't be negative\nwrite \"auto\", or a number from 1 on";
                Misfit::Value(error.to_owned())
            }),
            Scalar::Text("auto") => Ok(Parallel::Auto),
            Scalar::Text(text) => Err(Misfit::Value(format!(
                "{text:?} is not a number of fetches\n{PARALLEL_ADVICE}"
            ))),
            Scalar::Switch(_) => Err(Misfit::Type),
        })
    }
}

impl<'de> Deserialize<'de> for Ahead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ahead, D::Error> {
        scalar::read(deserializer, AHEAD, |written| match written {
            Scalar::Switch(false) => Ok(Ahead::None),
            Scalar::Switch(true) => Err(Misfit::Type),
            Scalar::Number(n) => bytes(n, AHEAD_ADVICE).map(Ahead::Window),
            Scalar::Text("whole") => Ok(Ahead::Whole),
            Scalar::Text(word) if is_old_off(word) => Err(Misfit::Value(written_false(word))),
            Scalar::Text(text) => size(text).map(Ahead::Window).ok_or_else(|| {
                Misfit::Value(format!(
                    "{text:?} is not a size to read ahead\n{AHEAD_ADVICE}"
                ))
            }),
        })
    }
}
