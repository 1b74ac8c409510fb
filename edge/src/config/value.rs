//! The kinds of values in a configuration file: sizes, times, servers.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::value::{self, MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
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

/// What is expected, as the messages of this file and of serde call it, and how to write it.
const SHAPES: [(&str, &str); 13] = [
    (SIZE, SIZE_ADVICE),
    (TIME, TIME_ADVICE),
    (PARALLEL, PARALLEL_ADVICE),
    (AHEAD, AHEAD_ADVICE),
    (STATUSES, "write { 200 = \"1h\", 404 = \"1m\" }"),
    (
        TABLE,
        "write { cookies = [\"session*\"], headers = [\"X-Debug\"] }",
    ),
    (
        EDITS,
        "write { set = { NAME = \"value\" }, remove = [\"NAME\"] }",
    ),
    ("a map", "write { NAME = \"value\" }, with braces"),
    (OR_TABLE, "write \"…\", or a table with that and more"),
    (
        LIST_OR_TABLE,
        "write a list, as in [\"a\", \"b\"], or a table with that and more",
    ),
    (
        "a whole number",
        "write digits alone, without quotes, as in 8",
    ),
    ("a boolean", "write true or false, without quotes"),
    (
        "a sequence",
        "write a list in brackets, as in [\"a\", \"b\"]",
    ),
];
const SIZE: &str = "a size such as \"64KiB\"";
const SIZE_ADVICE: &str = "write a number and a unit, as in \"64KiB\", \"1MiB\" or \"2GB\"";
const TIME: &str = "a time such as \"10s\"";
const TIME_ADVICE: &str = "write numbers with units, as in \"500ms\", \"10s\" or \"1m30s\"";
const PARALLEL: &str = "\"auto\" or a number";
const PARALLEL_ADVICE: &str = "write \"auto\", or a whole number without quotes, as in 8";
const AHEAD: &str = "\"none\", \"whole\" or a size";
const AHEAD_ADVICE: &str = "write \"none\", \"whole\", or a size, as in \"8MiB\"";
const STATUSES: &str = "times by status";
const TABLE: &str = "a table of lists";
const EDITS: &str = "a table of edits";
const OR_TABLE: &str = "text in quotes or a table";
pub(super) const LIST_OR_TABLE: &str = "a list or a table";
/// Before the words that may be chosen from.
const WORD: &str = "a word in quotes: ";

/// The title of an error of serde's as people read it, and how to write what is expected.
pub(super) fn advice(title: &str) -> (String, Option<String>) {
    let title = title.replace("expected u64", "expected a whole number");
    let Some((before, expected)) = title.split_once(", expected ") else {
        return (title, None);
    };
    if let Some(words) = expected.strip_prefix(WORD) {
        let title = format!("{before}, expected a word in quotes");
        return (title, Some(format!("write {words}")));
    }
    let shape = SHAPES.iter().find(|(shape, _)| *shape == expected);
    let how = shape.map(|(_, how)| (*how).to_owned());
    (title, how)
}

/// One of the words that a type's variants are called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<T>, D::Error> {
        struct WordVisitor<T>(PhantomData<T>);
        impl<T: DeserializeOwned> Visitor<'_> for WordVisitor<T> {
            type Value = Word<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{WORD}{}", words::<T>())
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Word<T>, E> {
                T::deserialize(StrDeserializer::new(word)).map(Word)
            }
        }
        deserializer.deserialize_any(WordVisitor(PhantomData))
    }
}

/// A `Word` whose place nobody needs.
pub(super) fn word<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Word::deserialize(deserializer).map(|Word(word)| Some(word))
}

/// A response field that `ignore` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the field of its name")]
pub enum Ignorable {
    CacheControl,
    Expires,
    Age,
    Vary,
    SetCookie,
    Targeted,
    XAccelExpires,
}

/// `set_cookie`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each")]
pub enum Cookies {
    Pass,
    Store,
    Remove,
}

/// A method that may use the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Usable {
    Get,
    Head,
    Post,
}

/// All words that a type knows: `"a", "b" or "c"`.
fn words<T: DeserializeOwned>() -> String {
    // serde tells them to whoever asks for one that does not exist.
    let unknown = T::deserialize(StrDeserializer::<value::Error>::new(""));
    let message = unknown.err().map_or(String::new(), |e| e.to_string());
    let words: Vec<String> = message
        .split('`')
        .skip(3)
        .step_by(2)
        .map(|word| format!("\"{word}\""))
        .collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Times by status.
#[derive(Clone, Debug, Default)]
pub struct Statuses(pub BTreeMap<Spanned<String>, Spanned<Time>>);

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Statuses, D::Error> {
        struct StatusesVisitor;
        impl<'de> Visitor<'de> for StatusesVisitor {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(STATUSES)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Statuses, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(Statuses)
            }
        }
        deserializer.deserialize_any(StatusesVisitor)
    }
}

/// What the messages call a table.
pub trait Shaped {
    /// The name.
    const SHAPE: &str;
}

impl Shaped for super::file::BypassFile {
    const SHAPE: &str = TABLE;
}

impl Shaped for super::file::FieldsFile {
    const SHAPE: &str = EDITS;
}

/// What is written in braces, and nothing else: serde would take a list for a table as well.
#[derive(Clone, Debug, Default)]
pub struct Table<T>(pub T);

impl<'de, T: Deserialize<'de> + Shaped> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table<T>, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Shaped> Visitor<'de> for TableVisitor<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::SHAPE)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }
        deserializer.deserialize_any(TableVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SIZE)
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Size, E> {
                u64::try_from(n)
                    .map(Size)
                    .map_err(|_| E::custom(format!("a size can't be negative\n{SIZE_ADVICE}")))
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Size, E> {
                Ok(Size(n))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse::<ByteSize>()
                    .map(|size| Size(size.0))
                    .map_err(|_| E::custom(format!("{text:?} is not a size\n{SIZE_ADVICE}")))
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
                f.write_str(TIME)
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Time, E> {
                Err(E::custom(format!(
                    "a time needs a unit\nwrite \"{n}s\", \"{n}ms\" or \"{n}m\", in quotes"
                )))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                humantime::parse_duration(text)
                    .map(Time)
                    .map_err(|_| E::custom(format!("{text:?} is not a time\n{TIME_ADVICE}")))
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
                f.write_str(PARALLEL)
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
                        "{text:?} is not a number of fetches\n{PARALLEL_ADVICE}"
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
                f.write_str(AHEAD)
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Ahead, E> {
                u64::try_from(n)
                    .map(Ahead::Window)
                    .map_err(|_| E::custom(format!("a size can't be negative\n{AHEAD_ADVICE}")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ahead, E> {
                match text {
                    "none" => Ok(Ahead::None),
                    "whole" => Ok(Ahead::Whole),
                    size => match size.parse::<ByteSize>() {
                        Ok(size) => Ok(Ahead::Window(size.0)),
                        Err(_) => Err(E::custom(format!(
                            "{text:?} is nothing to read ahead\n{AHEAD_ADVICE}"
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

/// One value in quotes, or a table in which it is one of several keys.
#[derive(Clone, Debug)]
pub struct OrTable<T>(pub T);

impl<'de, T> Deserialize<'de> for OrTable<T>
where
    T: Deserialize<'de> + From<Spanned<String>>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrTable<T>, D::Error> {
        struct EitherVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + From<Spanned<String>>> Visitor<'de> for EitherVisitor<T> {
            type Value = OrTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(OR_TABLE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OrTable<T>, E> {
                // Its place is that of the whole value, which the reader of that knows.
                Ok(OrTable(T::from(Spanned::new(0..0, text.to_owned()))))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrTable<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrTable)
            }
        }
        deserializer.deserialize_any(EitherVisitor(PhantomData))
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

/// A year, as `"1year"` means it.
pub(super) const YEAR: Duration = Duration::from_secs(31_557_600);
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
