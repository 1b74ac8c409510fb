//! Tables, and values that are a short form of a table.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

use super::amount::Time;
use super::shape::{OR_TABLE, STATUSES, nothing_in};

/// Times by status, as in `valid`.
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
                let times = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
                match times.is_empty() {
                    true => Err(A::Error::custom(nothing_in("table"))),
                    false => Ok(Statuses(times)),
                }
            }
        }
        deserializer.deserialize_any(StatusesVisitor)
    }
}

/// A type that is written as a table.
pub trait Shaped {
    /// Name of the type in error messages.
    const SHAPE: &str;

    /// Whether the table has no keys, for types where that is an error.
    fn is_empty(&self) -> bool {
        false
    }
}

/// A value that must be written as a table. serde alone would accept a list, too.
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
                let table = T::deserialize(MapAccessDeserializer::new(map))?;
                match table.is_empty() {
                    true => Err(A::Error::custom(nothing_in("table"))),
                    false => Ok(Table(table)),
                }
            }
        }
        deserializer.deserialize_any(TableVisitor(PhantomData))
    }
}

/// Text in quotes, or a table in which that text is the value of one of several keys.
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
                // A deserializer of a string does not know its position in the file (0..0). The
                // caller uses the position of the whole value instead.
                Ok(OrTable(T::from(Spanned::new(0..0, text.to_owned()))))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrTable<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrTable)
            }
        }
        deserializer.deserialize_any(EitherVisitor(PhantomData))
    }
}
