//! Enumerations whose variants are the permitted words of one key.

use serde::Deserialize;

/// A response header that `ignore_headers` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the header of its name")]
pub enum Ignorable {
    CacheControl,
    Expires,
    Age,
    Vary,
    SetCookie,
    Targeted,
    XAccelExpires,
}

/// Value of `set_cookie`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each")]
pub enum Cookies {
    Pass,
    Store,
    Remove,
}

/// A method that may use the cache, in `methods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Usable {
    Get,
    Head,
    Post,
}

/// Value of `proxy_protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ProxyVersion {
    V1,
    V2,
    Any,
}

/// A protocol in `protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ProtocolName {
    #[serde(rename = "h2")]
    Http2,
    #[serde(rename = "http/1.1")]
    Http1,
}

/// Value of `client_ip_header`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum ClientHeader {
    #[default]
    XForwardedFor,
    Forwarded,
}

/// Value of `symlinks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "docs/configuration.md describes each word")]
pub enum Symlinks {
    #[default]
    Within,
    Any,
}

/// Value of `after` in `hedge`: the share of responses that are not late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the percentile of its name")]
pub enum Percentile {
    P50,
    P90,
    P95,
    P99,
}
