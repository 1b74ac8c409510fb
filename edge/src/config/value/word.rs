//! Values that are one of a few names, as in `fill = "slice"`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{self, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};

use super::shape::WORD;

/// A value that must be one of the names of an enumeration's variants.
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

/// Deserializes an optional `Word` without its position in the file.
pub fn word<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Word::deserialize(deserializer).map(|Word(word)| Some(word))
}

/// Lists the names of an enumeration's variants: `"a", "b" or "c"`.
fn words<T: DeserializeOwned>() -> String {
    // serde lists the names in the error for a name that does not exist.
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
