//! Plans the paths of proxied requests: `rewrite`, and the path of `proxy`.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::RouteFile;
use crate::config::report::Problem;
use crate::config::value::{Pair, show_count};
use crate::edit::{Rewrite, RewriteRule};
use crate::http::path_regex::PatternError;
use crate::http::{Method, target};
use crate::route::Matcher;
use crate::upstream::PathMap;

/// Most rules of a route.
const RULES_MAX: usize = 64;
/// Flags of nginx's `rewrite`.
const FLAGS: [&str; 4] = ["last", "break", "redirect", "permanent"];
const PAIR: &str = "write two texts, as in [\"^/old/(.*)$\", \"/new/$1\"]";

/// Splits the value of `proxy` into the name or URL of an upstream, and the path after it.
pub fn split(proxy: &str) -> (&str, Option<&str>) {
    let start = proxy.find("://").map_or(0, |at| at + 3);
    // A socket's name is a path, and has no further one.
    if proxy.starts_with("unix:") {
        return (proxy, None);
    }
    match proxy[start..].find(['/', '?', '#']) {
        Some(at) => {
            let (upstream, path) = proxy.split_at(start + at);
            (upstream, Some(path))
        }
        None => (proxy, None),
    }
}

/// Returns the replacement of paths that the path of `proxy` asks for.
pub fn path_map(
    path: &str,
    at: Range<usize>,
    route: &RouteFile,
    matcher: &Matcher,
    checks: &mut Checks,
) -> Option<PathMap> {
    let mut wrong = |label: &str, help: &str| {
        checks.push(
            Problem::error("the path of `proxy` can't be used")
                .at(at.clone())
                .label(label)
                .help(help),
        );
    };
    if path.contains(['?', '#']) {
        wrong(
            "a path ends before `?` and `#`",
            "to add to the query, write `rewrite = [[\"^(.*)$\", \"$1?NAME=VALUE\"]]`",
        );
        return None;
    }
    if path.contains('$') {
        wrong(
            "a `$` stands for itself here",
            "for parts of the client's path, write `rewrite` with $1, as in [[\"^/old/(.*)$\", \"/new/$1\"]]",
        );
        return None;
    }
    let mut normal = String::new();
    if target::canonical(&Method::Get, path.as_bytes(), &mut normal).is_err() {
        wrong(
            "this can't be the path of a request",
            "write it as in \"/base\", with other bytes than visible ASCII percent-encoded",
        );
        return None;
    }
    // Rewritten paths no longer begin as the route says.
    if route.rewrite.is_some() {
        return Some(PathMap::new("/", &normal, false));
    }
    let Some((client, is_whole)) = matcher.replaceable() else {
        wrong(
            "the route's condition does not say which part of the path this replaces",
            "leave the path out, and write `rewrite = [[\"^(.*)$\", \"/base$1\"]]` with the path in place of /base; \
             or give the route a `path` that ends in its only `*`, as in \"/video/*\"",
        );
        return None;
    };
    Some(PathMap::new(client, &normal, is_whole))
}

/// Returns whether the origin's own URLs in responses are replaced.
pub fn write_back(route: &RouteFile, checks: &mut Checks) -> bool {
    let Some(typed) = &route.write_back else {
        return true;
    };
    if route.proxy.is_none() {
        checks.push(
            Problem::warning("`write_back` does nothing here")
                .at(typed.span())
                .label("the route has no `proxy`")
                .help("leave it out"),
        );
    }
    *typed.get_ref()
}

/// Returns the rules of `rewrite`.
pub fn rewrite(route: &RouteFile, checks: &mut Checks) -> Option<Arc<Rewrite>> {
    let typed = route.rewrite.as_ref()?;
    if route.proxy.is_none() {
        checks.push(
            Problem::warning("`rewrite` does nothing here")
                .at(typed.span())
                .label("the route has no `proxy`")
                .help("leave it out: `files` has `strip_prefix`, and `redirect` a path of its own"),
        );
    }
    let pairs = &typed.get_ref().0;
    if pairs.len() > RULES_MAX {
        checks.push(
            Problem::error(format!("more than {RULES_MAX} rules"))
                .at(typed.span())
                .help("write fewer, or several routes"),
        );
    }
    let rules = pairs.iter().take(RULES_MAX);
    let rules: Vec<RewriteRule> = rules.filter_map(|pair| rule(pair, checks)).collect();
    Some(Arc::new(Rewrite::new(rules)))
}

fn rule(pair: &Spanned<Pair>, checks: &mut Checks) -> Option<RewriteRule> {
    let [pattern, replacement] = &pair.get_ref().0[..] else {
        checks.push(not_a_pair(pair));
        return None;
    };
    if let Some(problem) = strange(pattern, replacement) {
        checks.push(problem);
        return None;
    }
    match RewriteRule::parse(pattern.get_ref(), replacement.get_ref()) {
        Ok(rule) => Some(rule),
        Err((PatternError { what, why, help }, in_replacement)) => {
            let at = match in_replacement {
                true => replacement.span(),
                false => pattern.span(),
            };
            checks.push(Problem::error(what).at(at).label(why).help(help));
            None
        }
    }
}

fn not_a_pair(pair: &Spanned<Pair>) -> Problem {
    let texts = &pair.get_ref().0;
    let is_flag = |text: &&Spanned<String>| FLAGS.contains(&text.get_ref().as_str());
    let Some(flag) = texts.get(2).filter(is_flag) else {
        return Problem::error("a rule of `rewrite` is a pattern and a replacement")
            .at(pair.span())
            .label(format!(
                "this list has {}",
                show_count(texts.len() as u64, "text")
            ))
            .help(PAIR);
    };
    let help = match flag.get_ref().as_str() {
        "redirect" | "permanent" => {
            "for a redirect, write `redirect` in a route of its own".to_owned()
        }
        _ => format!("leave it out: all rules apply in their order; {PAIR}"),
    };
    Problem::error(format!("a rule has no flag `{}`", flag.get_ref()))
        .at(flag.span())
        .help(help)
}

/// Finds mistakes that are common among users of nginx and of other tools.
fn strange(pattern: &Spanned<String>, replacement: &Spanned<String>) -> Option<Problem> {
    let (text, new) = (pattern.get_ref().as_str(), replacement.get_ref().as_str());
    let of_pattern = |label: &str, help: &str| {
        let problem = Problem::error("this pattern can't match");
        Some(problem.at(pattern.span()).label(label).help(help))
    };
    let of_replacement = |label: &str, help: &str| {
        let problem = Problem::error("this replacement can't be used");
        Some(problem.at(replacement.span()).label(label).help(help))
    };
    let anchored = text.strip_prefix('^').or(text.strip_prefix("\\A"));
    if text.starts_with('~') {
        return of_pattern(
            "`~` is no part of a regular expression",
            "write the expression alone; to ignore case, begin it with (?i)",
        );
    }
    if text.contains("\\?") || text.contains("://") {
        return of_pattern(
            "the pattern is compared with the path alone, without scheme, host and query",
            "write a pattern for the path; `query` and `hosts` are conditions on the others",
        );
    }
    if anchored.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric())) {
        return of_pattern(
            "a path begins with `/`",
            "write the slash after `^`, as in ^/old/(.*)$",
        );
    }
    if new.contains("://") && !new.starts_with('/') || new.starts_with("$scheme") {
        return of_replacement(
            "a rewrite changes only the path and the query",
            "for another server write `proxy`, and to send clients elsewhere `redirect`",
        );
    }
    let begins = new.starts_with(['/', '$']);
    (anchored.is_some() && !begins).then(|| {
        let problem = Problem::error("this replacement can't be used").at(replacement.span());
        problem
            .label("the new path would not begin with `/`")
            .help("write the slash, as in \"/new/$1\"")
    })
}
