//! Lists, written as several values in brackets, one value without brackets, or `false` for none.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::{
    I64Deserializer, MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer,
};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::shape::{LIST, nothing_in};
use super::word::Word;

/// A list with its position in the file. `EMPTY` says whether `[]` is permitted. Usually an empty
/// list is an error, since `false` turns a list off.
#[derive(Clone, Debug)]
pub struct List<T, const EMPTY: bool = false> {
    entries: Vec<Spanned<T>>,
    span: Range<usize>,
    is_false: bool,
}

/// A list of names, each with its position in the file.
pub type Names = List<String>;

/// A list of words of an enumeration, each with its position in the file.
pub type Words<T> = List<Word<T>>;

/// The list of addresses of `allow`, where `[]` allows nobody.
pub type AllowList = List<String, true>;

impl<T, const EMPTY: bool> List<T, EMPTY> {
    /// Returns the entries. There are none for `false`.
    pub fn get_ref(&self) -> &[Spanned<T>] {
        &self.entries
    }

    /// Returns the position of the whole list in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Whether `false` was written.
    pub fn is_false(&self) -> bool {
        self.is_false
    }

    /// Creates a list from entries that were written as another type, at this position in the file.
    pub fn of(entries: Vec<Spanned<T>>, span: Range<usize>) -> List<T, EMPTY> {
        List {
            entries,
            span,
            is_false: false,
        }
    }
}

impl<'de, T: DeserializeOwned, const EMPTY: bool> Deserialize<'de> for List<T, EMPTY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T, EMPTY>, D::Error> {
        let typed = Spanned::<Form<T, EMPTY>>::deserialize(deserializer)?;
        let span = typed.span();
        let (entries, is_false) = match typed.into_inner() {
            Form::False => (Vec::new(), true),
            Form::One(value) => (vec![Spanned::new(span.clone(), value)], false),
            Form::Many(entries) => (entries, false),
        };
        Ok(List {
            entries,
            span,
            is_false,
        })
    }
}

/// The form in which a list was written.
enum Form<T, const EMPTY: bool> {
    False,
    One(T),
    Many(Vec<Spanned<T>>),
}

impl<'de, T: DeserializeOwned, const EMPTY: bool> Deserialize<'de> for Form<T, EMPTY> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Form<T, EMPTY>, D::Error> {
        struct FormVisitor<T, const EMPTY: bool>(PhantomData<T>);
        impl<'de, T: DeserializeOwned, const EMPTY: bool> Visitor<'de> for FormVisitor<T, EMPTY> {
            type Value = Form<T, EMPTY>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(LIST)
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Form<T, EMPTY>, E> {
                match on {
                    false => Ok(Form::False),
                    true => Err(E::invalid_type(serde::de::Unexpected::Bool(on), &LIST)),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Form<T, EMPTY>, E> {
                T::deserialize(StrDeserializer::new(text)).map(Form::One)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Form<T, EMPTY>, E> {
                T::deserialize(I64Deserializer::new(number)).map(Form::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Form<T, EMPTY>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Form::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Form<T, EMPTY>, A::Error> {
                let entries: Vec<Spanned<T>> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                match entries.is_empty() && !EMPTY {
                    true => Err(A::Error::custom(nothing_in("list"))),
                    false => Ok(Form::Many(entries)),
                }
            }
        }
        deserializer.deserialize_any(FormVisitor(PhantomData))
    }
}
