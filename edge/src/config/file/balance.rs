//! The value of `balance` in an upstream, as it was written.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::balance::{Kind, Measure};
use crate::config::value::{BALANCE, Key, OrFalse, Word};

/// Value of `balance`: the name of a policy, or a table with a policy's options.
#[derive(Clone, Debug)]
pub enum BalanceFile {
    /// The name of a policy.
    Named(Kind),
    /// A table with the options of a policy.
    Table(BalanceTable),
}

/// The table form of `balance`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct BalanceTable {
    #[serde(rename = "least-time")]
    pub least_time: Key<Word<Measure>>,
    pub hash: Key<String>,
    pub load: Key<OrFalse<f64>>,
}

impl<'de> Deserialize<'de> for BalanceFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BalanceFile, D::Error> {
        struct BalanceVisitor;
        impl<'de> Visitor<'de> for BalanceVisitor {
            type Value = BalanceFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(BALANCE)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<BalanceFile, E> {
                Kind::deserialize(StrDeserializer::new(name)).map(BalanceFile::Named)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BalanceFile, A::Error> {
                let table = BalanceTable::deserialize(MapAccessDeserializer::new(map));
                table.map(BalanceFile::Table)
            }
        }
        deserializer.deserialize_any(BalanceVisitor)
    }
}
