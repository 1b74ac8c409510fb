//! Values that can be turned off by `false`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{
    BoolDeserializer, F64Deserializer, I64Deserializer, MapAccessDeserializer,
    SeqAccessDeserializer, StrDeserializer,
};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::shape::BOOL_OR_TABLE;

/// A value, or `false` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrFalse<T> {
    /// `false` was written.
    False,
    /// A value was written.
    On(T),
}

impl<T> OrFalse<T> {
    /// Returns the value, unless `false` was written.
    pub fn on(&self) -> Option<&T> {
        match self {
            OrFalse::False => None,
            OrFalse::On(value) => Some(value),
        }
    }
}

/// Returns the error for a word that earlier versions accepted in place of `false`.
pub fn written_false(word: &str) -> String {
    format!("{word:?} is written `false` now\nwrite false, without quotes")
}

/// Whether earlier versions turned a value off with this word.
pub fn is_old_off(word: &str) -> bool {
    matches!(word, "off" | "none")
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrFalse<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OrFalse<T>, D::Error> {
        struct OrFalseVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrFalseVisitor<T> {
            type Value = OrFalse<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or false")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<OrFalse<T>, E> {
                match on {
                    false => Ok(OrFalse::False),
                    true => T::deserialize(BoolDeserializer::new(true)).map(OrFalse::On),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OrFalse<T>, E> {
                match is_old_off(text) {
                    true => Err(E::custom(written_false(text))),
                    false => T::deserialize(StrDeserializer::new(text)).map(OrFalse::On),
                }
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<OrFalse<T>, E> {
                T::deserialize(I64Deserializer::new(number)).map(OrFalse::On)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<OrFalse<T>, E> {
                T::deserialize(F64Deserializer::new(number)).map(OrFalse::On)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OrFalse<T>, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(list)).map(OrFalse::On)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrFalse<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrFalse::On)
            }
        }
        deserializer.deserialize_any(OrFalseVisitor(PhantomData))
    }
}

/// `true`, `false`, or a table with more options than `true`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch<T> {
    /// `false` was written.
    Off,
    /// `true` was written.
    On,
    /// A table was written.
    Table(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Switch<T>, D::Error> {
        struct SwitchVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for SwitchVisitor<T> {
            type Value = Switch<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(BOOL_OR_TABLE)
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Switch<T>, E> {
                Ok(if on { Switch::On } else { Switch::Off })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Switch<T>, E> {
                match text {
                    "on" => Err(E::custom(
                        "\"on\" is written `true`\nwrite true, without quotes",
                    )),
                    word if is_old_off(word) => Err(E::custom(written_false(word))),
                    _ => Err(E::invalid_type(
                        serde::de::Unexpected::Str(text),
                        &BOOL_OR_TABLE,
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Switch<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Switch::Table)
            }
        }
        deserializer.deserialize_any(SwitchVisitor(PhantomData))
    }
}
