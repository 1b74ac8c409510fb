//! A server of an upstream: a URL, or a table with the URL and more.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

/// An entry of `servers`: a URL, or a table with the URL and more.
#[derive(Clone, Debug)]
pub struct ServerFile {
    /// URL of the server: `http://host:port`.
    pub url: Option<Spanned<String>>,
    /// Share of the requests relative to the other servers' weights.
    pub weight: Option<Spanned<u64>>,
    /// Whether the server is used only while all others fail.
    pub backup: Option<bool>,
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
                // A deserializer of a string does not know its position in the file (0..0). The
                // caller uses the position of the whole entry instead.
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
