//! Values that are written as a text, a number or a switch.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A value as it was written.
#[derive(Clone, Copy)]
pub(super) enum Scalar<'a> {
    Switch(bool),
    Number(i64),
    Text(&'a str),
}

/// Why a value was refused.
pub(super) enum Misfit {
    /// Values of this type are never accepted.
    Type,
    /// The value is wrong. The text says why, with advice in its second line.
    Value(String),
}

/// Deserializes a value with `parse`. `shape` says in errors what is accepted.
pub(super) fn read<'de, D, T>(
    deserializer: D,
    shape: &'static str,
    parse: impl FnOnce(Scalar<'_>) -> Result<T, Misfit>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(ScalarVisitor { shape, parse })
}

struct ScalarVisitor<F> {
    shape: &'static str,
    parse: F,
}

impl<T, F> ScalarVisitor<F>
where
    F: FnOnce(Scalar<'_>) -> Result<T, Misfit>,
{
    fn parse<E: Error>(self, written: Scalar<'_>) -> Result<T, E> {
        let unexpected = match written {
            Scalar::Switch(on) => Unexpected::Bool(on),
            Scalar::Number(number) => Unexpected::Signed(number),
            Scalar::Text(text) => Unexpected::Str(text),
        };
        (self.parse)(written).map_err(|misfit| match misfit {
            Misfit::Type => E::invalid_type(unexpected, &self.shape),
            Misfit::Value(text) => E::custom(text),
        })
    }
}

impl<T, F> Visitor<'_> for ScalarVisitor<F>
where
    F: FnOnce(Scalar<'_>) -> Result<T, Misfit>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shape)
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<T, E> {
        self.parse(Scalar::Switch(on))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.parse(Scalar::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.parse(Scalar::Text(text))
    }
}
