//! A server of an upstream: a URL, or a table with the URL and more.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

use crate::config::value::{Key, OrFalse, Shaped, TCP, Time};

/// An entry of `servers`: a URL, or a table with the URL and more.
#[derive(Clone, Debug)]
pub struct ServerFile {
    /// URL of the server: `http://host:port`.
    pub url: Option<Spanned<String>>,
    /// Share of the requests relative to the other servers' weights.
    pub weight: Option<Spanned<u64>>,
    /// Whether the server is used only while all others fail or are full.
    pub backup: Option<bool>,
    /// Whether the server gets no requests until an operator orders otherwise.
    pub down: Option<bool>,
    /// Most connections per worker, in place of the upstream's limit.
    pub max_connections: Option<Spanned<u64>>,
}

/// Value of `tcp` of an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct TcpFile {
    pub nodelay: Option<bool>,
    pub keepalive: Key<OrFalse<Time>>,
    pub user_timeout: Key<Time>,
    pub bind: Key<String>,
}

impl Shaped for TcpFile {
    const SHAPE: &str = TCP;
}

/// Value of `http` of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "each is the version of its name")]
pub enum HttpVersion {
    #[serde(rename = "1.0")]
    Http10,
    #[serde(rename = "1.1")]
    Http11,
    #[serde(rename = "2")]
    Http2,
}

impl<'de> Deserialize<'de> for ServerFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerFile, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: Option<Spanned<String>>,
            weight: Option<Spanned<u64>>,
            backup: Option<bool>,
            down: Option<bool>,
            max_connections: Option<Spanned<u64>>,
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
                    down: None,
                    max_connections: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ServerFile, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ServerFile {
                    url: table.url,
                    weight: table.weight,
                    backup: table.backup,
                    down: table.down,
                    max_connections: table.max_connections,
                })
            }
        }
        deserializer.deserialize_any(ServerVisitor)
    }
}
