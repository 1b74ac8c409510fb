//! Lists of pairs of texts, as in `rewrite`.

use std::fmt;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

use super::shape::PAIRS;

/// The message about an empty list: a title and its advice.
const NO_PAIRS: &str = "an empty list has no effect\nleave it out";

/// A list of lists of texts. Whether each has two texts is checked later, with better messages.
#[derive(Clone, Debug, Default)]
pub struct Pairs(pub Vec<Spanned<Pair>>);

/// One of the lists.
#[derive(Clone, Debug, Default)]
pub struct Pair(pub Vec<Spanned<String>>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PAIRS)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Pairs, A::Error> {
                let pairs: Vec<_> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                match pairs.is_empty() {
                    true => Err(A::Error::custom(NO_PAIRS)),
                    false => Ok(Pairs(pairs)),
                }
            }
        }
        deserializer.deserialize_any(PairsVisitor)
    }
}

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pair, D::Error> {
        struct PairVisitor;
        impl<'de> Visitor<'de> for PairVisitor {
            type Value = Pair;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PAIRS)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Pair, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Pair)
            }
        }
        deserializer.deserialize_any(PairVisitor)
    }
}
