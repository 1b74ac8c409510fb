//! The tables inside sites and routes, as they were written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::words::{Percentile, Symlinks};
use crate::config::value::{
    EDITS, Key, List, Names, OrFalse, OrTable, PAGES, RETRY, RetryCause, Shaped, Size, StatusRange,
    TABLE, TABLE_OR_FALSE, Time, Word,
};

/// The table form of `files`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct FilesFile {
    pub root: Key<String>,
    pub strip_prefix: Key<String>,
    pub index: Option<Names>,
    pub try_files: Option<Names>,
    pub symlinks: Key<OrFalse<Word<Symlinks>>>,
    pub hidden: Option<bool>,
    pub types: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub charset: Key<OrFalse<String>>,
    pub recheck: Key<Time>,
    pub memory: Key<Size>,
    pub max_memory_file: Key<Size>,
    pub open_files: Key<u64>,
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

/// Value of `error_pages`: pages by status or class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct PagesFile(pub BTreeMap<Spanned<String>, Spanned<OrTable<PageFile>>>);

impl Shaped for PagesFile {
    const SHAPE: &str = PAGES;

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One page of `error_pages`.
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

/// Value of `expires`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct ExpiresFile {
    pub default: Key<OrFalse<String>>,
    pub types: Option<BTreeMap<Spanned<String>, Spanned<OrFalse<String>>>>,
}

impl From<Spanned<String>> for ExpiresFile {
    fn from(default: Spanned<String>) -> ExpiresFile {
        let at = default.span();
        ExpiresFile {
            default: Some(Spanned::new(at, OrFalse::On(default.into_inner()))),
            types: None,
        }
    }
}

/// Value of `request_headers` and of `response_headers`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct HeadersFile {
    pub set: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub add: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    pub remove: Option<Names>,
}

impl Shaped for HeadersFile {
    const SHAPE: &str = EDITS;

    fn is_empty(&self) -> bool {
        self.set.is_none() && self.add.is_none() && self.remove.is_none()
    }
}

/// The table form of `respond`.
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

/// The table form of `redirect`.
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

/// Value of `limit`.
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

impl Shaped for LimitFile {
    const SHAPE: &str = TABLE_OR_FALSE;
}

/// Value of `signed_urls`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SignedFile {
    pub keys: Option<Names>,
    pub key_files: Option<Names>,
    pub client: Option<bool>,
    pub prefix: Option<bool>,
    pub expires_parameter: Key<String>,
    pub signature_parameter: Key<String>,
    pub prefix_parameter: Key<String>,
}

impl Shaped for SignedFile {
    const SHAPE: &str = TABLE_OR_FALSE;
}

/// Value of `log` in a site or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RouteLogFile {
    pub sample: Key<f64>,
    pub statuses: Option<List<StatusRange>>,
    pub slower_than: Key<Time>,
}

/// Value of `bypass`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct BypassFile {
    pub cookies: Option<Names>,
    pub headers: Option<Names>,
    pub query: Option<Names>,
}

impl Shaped for BypassFile {
    const SHAPE: &str = TABLE;

    fn is_empty(&self) -> bool {
        self.cookies.is_none() && self.headers.is_none() && self.query.is_none()
    }
}

/// Value of `sign` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct SignFile {
    pub region: Key<String>,
    pub access_key: Key<String>,
    pub secret_key: Key<String>,
    pub secret_key_file: Key<String>,
    pub session_token: Key<String>,
    pub query: Option<bool>,
    pub writes: Option<bool>,
}

impl Shaped for SignFile {
    const SHAPE: &str = TABLE;
}

/// Value of `retry` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct RetryFile {
    pub tries: Key<u64>,
    pub on: Option<List<RetryCause>>,
    pub budget: Key<f64>,
    pub budget_min: Key<u64>,
    pub total: Key<Time>,
}

impl Shaped for RetryFile {
    const SHAPE: &str = RETRY;

    fn is_empty(&self) -> bool {
        self.tries.is_none()
            && self.on.is_none()
            && self.budget.is_none()
            && self.budget_min.is_none()
            && self.total.is_none()
    }
}

/// Value of `hedge` in an upstream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "docs/configuration.md describes each key")]
pub struct HedgeFile {
    pub after: Key<Word<Percentile>>,
    pub at_most: Key<f64>,
    pub max_size: Key<Size>,
}

impl Shaped for HedgeFile {
    const SHAPE: &str = TABLE_OR_FALSE;
}
