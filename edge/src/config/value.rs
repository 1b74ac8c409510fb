//! The kinds of values in a configuration file: sizes, times, servers.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

/// Bytes: `"64KiB"`, `"1GB"`, or a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// A time: `"10s"`, `"1m30s"`, `"500ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// How many fetches at once: `"auto"`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// As many as make it faster.
    Auto,
    /// As many as make it faster, up to so many.
    Count(u64),
}

/// What is read ahead: `"none"`, `"whole"`, or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Nothing.
    None,
    /// Everything.
    Whole,
    /// So many bytes.
    Window(u64),
}

/// One of `servers`: a URL, or a table with the URL and more.
#[derive(Clone, Debug)]
pub struct ServerFile {
    /// `http://host:port`.
    pub url: Option<Spanned<String>>,
    /// Share of requests.
    pub weight: Option<Spanned<u64>>,
    /// Asked only when all others failed.
    pub backup: Option<bool>,
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\"")
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Size, E> {
                u64::try_from(n)
                    .map(Size)
                    .map_err(|_| E::custom("a size can't be negative"))
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Size, E> {
                Ok(Size(n))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse::<ByteSize>().map(|size| Size(size.0)).map_err(|_| {
                    E::custom(format!(
                        "{text:?} is not a size\nwrite a number and a unit, as in \"64KiB\", \"1MiB\" or \"2GB\""
                    ))
                })
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"10s\"")
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Time, E> {
                Err(E::custom(format!(
                    "a time needs a unit\nwrite \"{n}s\", \"{n}ms\" or \"{n}m\", in quotes"
                )))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                humantime::parse_duration(text).map(Time).map_err(|_| {
                    E::custom(format!(
                        "{text:?} is not a time\nwrite numbers with units, as in \"500ms\", \"10s\" or \"1m30s\""
                    ))
                })
            }
        }
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl<'de> Deserialize<'de> for Parallel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parallel, D::Error> {
        struct ParallelVisitor;
        impl Visitor<'_> for ParallelVisitor {
            type Value = Parallel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\" or a number")
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Parallel, E> {
                u64::try_from(n).map(Parallel::Count).map_err(|_| {
                    E::custom("there can't be fewer than no fetches\nwrite \"auto\", or a number from 1 on")
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Parallel, E> {
                match text {
                    "auto" => Ok(Parallel::Auto),
                    _ => Err(E::custom(format!(
                        "{text:?} is not a number of fetches\nwrite \"auto\", or a number without quotes, as in 8"
                    ))),
                }
            }
        }
        deserializer.deserialize_any(ParallelVisitor)
    }
}

impl<'de> Deserialize<'de> for Ahead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ahead, D::Error> {
        struct AheadVisitor;
        impl Visitor<'_> for AheadVisitor {
            type Value = Ahead;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"whole\" or a size")
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Ahead, E> {
                u64::try_from(n)
                    .map(Ahead::Window)
                    .map_err(|_| E::custom("a size can't be negative"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ahead, E> {
                match text {
                    "none" => Ok(Ahead::None),
                    "whole" => Ok(Ahead::Whole),
                    size => match size.parse::<ByteSize>() {
                        Ok(size) => Ok(Ahead::Window(size.0)),
                        Err(_) => Err(E::custom(format!(
                            "{text:?} is nothing to read ahead\nwrite \"none\", \"whole\", or a size, as in \"8MiB\""
                        ))),
                    },
                }
            }
        }
        deserializer.deserialize_any(AheadVisitor)
    }
}

impl<'de> Deserialize<'de> for ServerFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerFile, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: Option<Spanned<String>>,
            weight: Option<Spanned<u64>>,
            backup: Option<bool>,
        }
        struct ServerVisitor;
        impl<'de> Visitor<'de> for ServerVisitor {
            type Value = ServerFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a server such as \"http://127.0.0.1:9000\" or { url = \"…\", weight = 2, backup = true }")
            }

            fn visit_str<E: Error>(self, url: &str) -> Result<ServerFile, E> {
                // The place of the whole entry is the URL's; the reader of the list knows it.
                Ok(ServerFile {
                    url: Some(Spanned::new(0..0, url.to_owned())),
                    weight: None,
                    backup: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ServerFile, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ServerFile {
                    url: table.url,
                    weight: table.weight,
                    backup: table.backup,
                })
            }
        }
        deserializer.deserialize_any(ServerVisitor)
    }
}

/// A size as people write it: `64 KiB`.
pub fn show_size(bytes: u64) -> String {
    ByteSize(bytes)
        .display()
        .iec()
        .to_string()
        .replace(".0 ", " ")
}

/// A time as people write it: `1m 30s`.
pub fn show_time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}
