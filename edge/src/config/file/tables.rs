//! What was typed in the tables of sites and routes: what each of them does, and to whom.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Key, Names};
use crate::config::value::{OrTable, Size, Time, Word};

/// `files`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct FilesFile {
    pub root: Key<String>,
    pub strip: Key<String>,
    pub index: Key<Names>,
    pub fallback: Key<Names>,
    pub symlinks: Key<Word<LinksWord>>,
    pub hidden: Option<bool>,
    pub types: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub charset: Key<String>,
    pub valid: Key<Time>,
    pub memory: Key<Size>,
    pub small: Key<Size>,
    pub open: Key<u64>,
    pub precompressed: Option<bool>,
}

impl From<Spanned<String>> for FilesFile {
    fn from(root: Spanned<String>) -> FilesFile {
        FilesFile {
            root: Some(root),
            ..FilesFile::default()
        }
    }
}

/// `errors`: pages by status or class.
pub type ErrorsFile = BTreeMap<Spanned<String>, Spanned<OrTable<PageFile>>>;

/// A page of `errors`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct PageFile {
    pub file: Key<String>,
    pub text: Key<String>,
    pub r#type: Key<String>,
}

impl From<Spanned<String>> for PageFile {
    fn from(file: Spanned<String>) -> PageFile {
        PageFile {
            file: Some(file),
            ..PageFile::default()
        }
    }
}

/// `expires`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ExpiresFile {
    pub default: Key<String>,
    pub types: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
}

impl From<Spanned<String>> for ExpiresFile {
    fn from(default: Spanned<String>) -> ExpiresFile {
        ExpiresFile {
            default: Some(default),
            types: None,
        }
    }
}

/// `request_fields` and `response_fields`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct FieldsFile {
    pub set: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub add: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub remove: Key<Names>,
}

/// `respond`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RespondFile {
    pub status: Key<u64>,
    pub body: Key<String>,
    pub r#type: Key<String>,
}

impl From<Spanned<String>> for RespondFile {
    fn from(body: Spanned<String>) -> RespondFile {
        RespondFile {
            body: Some(body),
            ..RespondFile::default()
        }
    }
}

/// `redirect`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RedirectFile {
    pub to: Key<String>,
    pub status: Key<u64>,
}

impl From<Spanned<String>> for RedirectFile {
    fn from(to: Spanned<String>) -> RedirectFile {
        RedirectFile {
            to: Some(to),
            status: None,
        }
    }
}

/// `symlinks = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum LinksWord {
    None,
    #[default]
    Within,
    Any,
}

/// `limit`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct LimitFile {
    pub requests: Key<String>,
    pub burst: Key<u64>,
    pub bandwidth: Key<Size>,
    pub bandwidth_after: Key<Size>,
    pub clients: Key<u64>,
}

/// `signed`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SignedFile {
    pub keys: Key<Names>,
    pub key_files: Key<Names>,
    pub client: Option<bool>,
    pub prefix: Option<bool>,
    pub expires_parameter: Key<String>,
    pub signature_parameter: Key<String>,
    pub prefix_parameter: Key<String>,
}

/// `log` of a site or a route
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RouteLogFile {
    /// The word in place of a table.
    #[serde(skip)]
    pub word: Option<Spanned<String>>,
    pub sample: Key<f64>,
    pub statuses: Key<Names>,
    pub slower_than: Key<Time>,
}

impl From<Spanned<String>> for RouteLogFile {
    fn from(word: Spanned<String>) -> RouteLogFile {
        RouteLogFile {
            word: Some(word),
            ..RouteLogFile::default()
        }
    }
}

/// `bypass`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct BypassFile {
    pub cookies: Key<Names>,
    pub headers: Key<Names>,
    pub query: Key<Names>,
}
