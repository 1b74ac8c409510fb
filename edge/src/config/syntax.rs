//! Rewrites errors of the TOML parser for users: unknown keys and words, renamed keys, wrong types.

use super::report::Problem;
use super::suggestions::did_you_mean;
use super::value;

/// Keys and words that are planned but not supported in this version.
const PLANNED: &[&str] = &[
    "tls",
    "protocols",
    "health",
    "max_fails",
    "fail_timeout",
    "slow_start",
    "least-time",
    "random-two",
    "hash",
];

/// A key of an earlier version, and its replacement.
struct Renamed {
    /// Another key of the same section, by which the section is recognized: no other section has
    /// this key.
    section: &'static str,
    old: &'static str,
    new: &'static str,
}

const fn renamed(section: &'static str, old: &'static str, new: &'static str) -> Renamed {
    Renamed { section, old, new }
}

/// All renamed keys, by section.
const RENAMED: &[Renamed] = &[
    // `[server]`
    renamed("sandbox", "confine", "`sandbox`"),
    renamed("client_ip_header", "client_field", "`client_ip_header`"),
    // `[limits]`
    renamed(
        "connections_per_ip",
        "connections_per_address",
        "`connections_per_ip`",
    ),
    renamed("shutdown_timeout", "drain", "`shutdown_timeout`"),
    // `[[listener]]`
    renamed("tcp_keepalive", "keepalive", "`tcp_keepalive`"),
    // `[admin]`
    renamed("purge_from", "purge", "`purge_from`"),
    // `[cache.NAME]`
    renamed("max_object_size", "object", "`max_object_size`"),
    renamed(
        "min_uses",
        "admit",
        "`min_uses = 2` for `admit = \"second\"`",
    ),
    // `[upstream.NAME]`
    renamed("max_connections", "connections", "`max_connections`"),
    renamed("max_response_headers", "head", "`max_response_headers`"),
    renamed(
        "max_connections",
        "retries",
        "`retry = { tries = 2 }` for `retries = 1`: the first try is counted too",
    ),
    // `[[site]]` and `[[site.route]]`
    renamed("request_headers", "request_fields", "`request_headers`"),
    renamed("response_headers", "response_fields", "`response_headers`"),
    renamed("security_headers", "security", "`security_headers`"),
    renamed("signed_urls", "signed", "`signed_urls`"),
    renamed("error_pages", "errors", "`error_pages`"),
    renamed("intercept_errors", "intercept", "`intercept_errors`"),
    // `[[site.route]]`
    renamed(
        "path_regex",
        "match",
        "`path_regex` for the path, and `query` for the query",
    ),
    // Caching rules of caches and routes
    renamed("ignore_headers", "ignore", "`ignore_headers`"),
    renamed("target_list", "targets", "`target_list`"),
    renamed("tag_headers", "tags", "`tag_headers`"),
    renamed(
        "client_cache_control",
        "client_directives",
        "`client_cache_control`",
    ),
    renamed("forward_headers", "forward", "`forward_headers`"),
    renamed("hit_for_pass", "pass_for", "`hit_for_pass`"),
    // `[site.route.files]`
    renamed("strip_prefix", "strip", "`strip_prefix`"),
    renamed("try_files", "fallback", "`try_files`"),
    renamed("recheck", "valid", "`recheck`"),
    renamed("max_memory_file", "small", "`max_memory_file`"),
    renamed("open_files", "open", "`open_files`"),
    // `[site.route.compress]`
    renamed("encodings", "codings", "`encodings`"),
    renamed("request_identity", "ask_plain", "`request_identity`"),
];

/// Turns an error of the TOML parser into a problem with Sluice's own message.
pub fn from_parser(error: &toml::de::Error) -> Problem {
    let (title, advice) = match error.message().split_once('\n') {
        Some((title, advice)) => (title, Some(advice.to_owned())),
        None => (error.message(), None),
    };
    let problem = match unknown_word(title) {
        Some((kind, word, known)) => unknown(kind, word, &known),
        None => {
            let (title, how) = value::advice(title);
            Problem {
                help: advice.or(how),
                ..Problem::error(title)
            }
        }
    };
    match error.span() {
        Some(span) => problem.at(span),
        None => problem,
    }
}

/// Parses serde's message "unknown field `a`, expected one of `b`, `c`".
fn unknown_word(message: &str) -> Option<(&'static str, &str, Vec<&str>)> {
    let (kind, rest) = match message.strip_prefix("unknown field `") {
        Some(rest) => ("key", rest),
        None => ("value", message.strip_prefix("unknown variant `")?),
    };
    let (word, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((kind, word, known))
}

fn unknown(kind: &str, word: &str, known: &[&str]) -> Problem {
    let problem = Problem::error(format!("unknown {kind} `{word}`"));
    let listed = known
        .iter()
        .map(|k| format!("`{k}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let is_renamed = |r: &&Renamed| r.old == word && known.contains(&r.section);
    if let Some(renamed) = RENAMED.iter().find(is_renamed) {
        return problem
            .label("this key was renamed")
            .help(format!("write {}", renamed.new));
    }
    if PLANNED.contains(&word) {
        return problem
            .label("this version does not support it")
            .help(format!(
                "a later version will have it; this one has {listed}"
            ));
    }
    if let Some(nearest) = did_you_mean(word, known.iter().copied()) {
        return problem.help(format!("did you mean `{nearest}`?"));
    }
    problem.help(format!("allowed here: {listed}"))
}
