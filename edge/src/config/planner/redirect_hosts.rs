//! The hosts in `follow_redirects` of a route.

use std::ops::Range;

use toml::Spanned;

use super::{paths, server_url};
use crate::config::file::{FollowForm, RouteFile};

/// Most hosts of a route.
pub const HOSTS_MAX: usize = 64;

/// Returns the hosts, each with its position in the file.
pub fn of_key(key: &Spanned<FollowForm>) -> impl Iterator<Item = Spanned<String>> {
    let hosts = key.get_ref().to().iter().take(HOSTS_MAX);
    hosts.map(|host| at(host, key.span()))
}

/// Returns the hosts of a route that are URLs, each with its position in the file.
pub fn urls(route: &RouteFile) -> impl Iterator<Item = Spanned<String>> {
    let hosts = route.follow_redirects.iter().flat_map(of_key);
    hosts.filter(|host| is_url(host.get_ref()))
}

/// Returns an entry with its position in the file: its own, or that of the whole value if the entry is
/// the value.
fn at(host: &Spanned<String>, whole: Range<usize>) -> Spanned<String> {
    let span = match host.span() {
        span if span.is_empty() => whole,
        span => span,
    };
    Spanned::new(span, host.get_ref().clone())
}

/// Whether this is the URL of a host that can have the URLs of redirects.
pub fn is_url(text: &str) -> bool {
    let (_, path) = paths::split(text);
    server_url::is_url(text) && !text.starts_with("unix:") && matches!(path, None | Some("/"))
}
