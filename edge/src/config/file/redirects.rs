//! The key `follow_redirects`: `true`, `false`, a list of hosts, or a table.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use crate::config::value::{FOLLOW, Key, List, Names, is_old_off, nothing_in, written_false};

/// The table form of `follow_redirects`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct FollowFile {
    pub times: Key<u64>,
    pub to: Option<Names>,
}

/// The value of `follow_redirects` in any of its forms.
#[derive(Clone, Debug)]
pub enum FollowForm {
    /// `false`.
    Off,
    /// `true`, a host, a list of hosts, or a table.
    On(Box<FollowFile>),
}

impl FollowForm {
    fn of(to: Vec<Spanned<String>>) -> FollowForm {
        FollowForm::On(Box::new(FollowFile {
            to: Some(List::of(to, 0..0)),
            times: None,
        }))
    }

    /// Returns the hosts to which redirects may lead.
    pub fn to(&self) -> &[Spanned<String>] {
        match self {
            FollowForm::Off => &[],
            FollowForm::On(file) => file.to.as_ref().map_or(&[], List::get_ref),
        }
    }
}

impl<'de> Deserialize<'de> for FollowForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FollowForm, D::Error> {
        struct FollowVisitor;
        impl<'de> Visitor<'de> for FollowVisitor {
            type Value = FollowForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FOLLOW)
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<FollowForm, E> {
                Ok(match on {
                    false => FollowForm::Off,
                    true => FollowForm::On(Box::default()),
                })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FollowForm, E> {
                match is_old_off(text) {
                    true => Err(E::custom(written_false(text))),
                    // A deserializer of a string does not know its position in the file (0..0). The
                    // caller uses the position of the whole value instead.
                    false => Ok(FollowForm::of(vec![Spanned::new(0..0, text.to_owned())])),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<FollowForm, A::Error> {
                let list: Vec<Spanned<String>> =
                    Vec::deserialize(SeqAccessDeserializer::new(list))?;
                match list.is_empty() {
                    true => Err(A::Error::custom(nothing_in("list"))),
                    false => Ok(FollowForm::of(list)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FollowForm, A::Error> {
                let table = FollowFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(FollowForm::On(Box::new(table)))
            }
        }
        deserializer.deserialize_any(FollowVisitor)
    }
}
