//! The keys of earlier versions and their replacements.

/// Renamed keys: the new name, and the old one.
const RENAMED: &[(&str, &str)] = &[
    // `[server]`
    ("sandbox", "confine"),
    ("client_ip_header", "client_field"),
    // `[limits]`
    ("connections_per_ip", "connections_per_address"),
    ("shutdown_timeout", "drain"),
    // `[[listener]]`
    ("tcp_keepalive", "keepalive"),
    // `[admin]`
    ("purge_from", "purge"),
    // `[cache.NAME]`
    ("max_object_size", "object"),
    // `[upstream.NAME]`
    ("max_connections", "connections"),
    ("max_response_headers", "head"),
    // `[[site]]` and `[[site.route]]`
    ("request_headers", "request_fields"),
    ("response_headers", "response_fields"),
    ("security_headers", "security"),
    ("signed_urls", "signed"),
    ("error_pages", "errors"),
    ("intercept_errors", "intercept"),
    // Caching rules of caches and routes
    ("ignore_headers", "ignore"),
    ("target_list", "targets"),
    ("tag_headers", "tags"),
    ("client_cache_control", "client_directives"),
    ("forward_headers", "forward"),
    ("hit_for_pass", "pass_for"),
    // `[site.route.files]`
    ("strip_prefix", "strip"),
    ("try_files", "fallback"),
    ("recheck", "valid"),
    ("max_memory_file", "small"),
    ("open_files", "open"),
    // `[site.route.compress]`
    ("encodings", "codings"),
    ("request_identity", "ask_plain"),
];

/// Keys with another form now: a key of the same section, the old key, and its replacement.
const REPLACED: &[(&str, &str, &str)] = &[
    (
        "min_uses",
        "admit",
        "`min_uses = 2` for `admit = \"second\"`",
    ),
    (
        "max_connections",
        "retries",
        "`retry = { tries = 2 }` for `retries = 1`: the first try is counted too",
    ),
    (
        "path_regex",
        "match",
        "`path_regex` for the path, and `query` for the query",
    ),
];

/// Returns the replacement of a key that earlier versions had in the section with the keys `known`.
/// The new key, or the other key of the section, shows which section is meant.
pub fn replacement(word: &str, known: &[&str]) -> Option<String> {
    let replaced = REPLACED.iter();
    let mut replaced = replaced.filter(|(key, old, _)| *old == word && known.contains(key));
    if let Some((_, _, new)) = replaced.next() {
        return Some((*new).to_owned());
    }
    let mut renamed = RENAMED.iter();
    let renamed = renamed.find(|(new, old)| *old == word && known.contains(new));
    renamed.map(|(new, _)| format!("`{new}`"))
}
