//! The key `compress`: `true`, `false`, a list of encodings, or a table.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use crate::config::value::{
    COMPRESS, Key, List, Names, Size, is_old_off, nothing_in, written_false,
};

/// The table form of `compress`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct CompressFile {
    pub encodings: Option<Names>,
    pub types: Option<Names>,
    pub min: Key<Size>,
    pub max: Key<Size>,
    pub gzip_level: Key<u64>,
    pub br_level: Key<u64>,
    pub zstd_level: Key<u64>,
    pub memory: Key<Size>,
    pub request_identity: Option<bool>,
}

/// The value of `compress` in any of its forms.
#[derive(Clone, Debug)]
pub enum CompressForm {
    /// `false`.
    Off,
    /// `true`, an encoding, a list of encodings, or a table.
    On(Box<CompressFile>),
}

impl CompressForm {
    fn of(encodings: Vec<Spanned<String>>) -> CompressForm {
        CompressForm::On(Box::new(CompressFile {
            encodings: Some(List::of(encodings, 0..0)),
            ..CompressFile::default()
        }))
    }
}

impl<'de> Deserialize<'de> for CompressForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CompressForm, D::Error> {
        struct CompressVisitor;
        impl<'de> Visitor<'de> for CompressVisitor {
            type Value = CompressForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(COMPRESS)
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<CompressForm, E> {
                Ok(match on {
                    false => CompressForm::Off,
                    true => CompressForm::On(Box::default()),
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CompressForm, E> {
                match is_old_off(text) {
                    true => Err(E::custom(written_false(text))),
                    // A deserializer of a string does not know its position in the file (0..0). The
                    // caller uses the position of the whole value instead.
                    false => Ok(CompressForm::of(vec![Spanned::new(0..0, text.to_owned())])),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<CompressForm, A::Error> {
                let list: Vec<Spanned<String>> =
                    Vec::deserialize(SeqAccessDeserializer::new(list))?;
                match list.is_empty() {
                    true => Err(A::Error::custom(nothing_in("list"))),
                    false => Ok(CompressForm::of(list)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CompressForm, A::Error> {
                let table = CompressFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(CompressForm::On(Box::new(table)))
            }
        }
        deserializer.deserialize_any(CompressVisitor)
    }
}
