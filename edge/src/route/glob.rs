//! Globs on paths: `*` and `**`.

/// How a path with or without globs is matched.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The pattern has no `*`.
    Exact,
    /// One at its end: every path that begins with the text before.
    Prefix(&'a str),
    /// One at its beginning: every path that ends with the text after.
    Suffix(&'a str),
    /// Any other.
    Pattern,
}

/// How to match `text`.
pub fn kind(text: &str) -> Kind<'_> {
    let (before, after) = (text.trim_end_matches('*'), text.trim_start_matches('*'));
    match () {
        () if !text.contains('*') => Kind::Exact,
        () if !before.contains('*') && before.starts_with('/') => Kind::Prefix(before),
        () if !after.contains('*') && !after.is_empty() => Kind::Suffix(after),
        // Nothing but stars.
        () if before.is_empty() => Kind::Prefix("/"),
        () => Kind::Pattern,
    }
}

/// The text before the first `*`.
pub fn literal_prefix(text: &str) -> &str {
    text.split('*').next().unwrap_or_default()
}

/// The regular expression that matches the same whole paths.
pub fn to_regex(text: &str) -> String {
    let mut out = String::from("^");
    let mut rest = text;
    while let Some(at) = rest.find('*') {
        let literal = &rest[..at];
        let after = rest[at..].trim_start_matches('*');
        let stars = rest.len() - at - after.len();
        out.push_str(&regex::escape(literal));
        let is_first = at == 0 && rest.len() == text.len();
        let is_last = after.is_empty();
        match stars {
            // `/**/` also matches a single slash.
            2.. if literal.ends_with('/') && after.starts_with('/') => {
                out.push_str("(?:.*/)?");
                rest = &after[1..];
                continue;
            }
            1 if !is_first && !is_last => out.push_str("[^/]*"),
            _ => out.push_str(".*"),
        }
        rest = after;
    }
    out.push_str(&regex::escape(rest));
    out.push('$');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_globs_need_no_regular_expression() {
        assert_eq!(kind("/favicon.ico"), Kind::Exact);
        assert_eq!(kind("/video/*"), Kind::Prefix("/video/"));
        assert_eq!(kind("/video/**"), Kind::Prefix("/video/"));
        assert_eq!(kind("*.mp4"), Kind::Suffix(".mp4"));
        assert_eq!(kind("**/index.html"), Kind::Suffix("/index.html"));
        assert_eq!(kind("*"), Kind::Prefix("/"));
        assert_eq!(kind("/a/*/b"), Kind::Pattern);
        assert_eq!(kind("*/a/*"), Kind::Pattern);
    }

    #[test]
    fn a_star_stays_within_a_segment_and_two_stars_do_not() {
        assert_eq!(to_regex("/a/*/b"), "^/a/[^/]*/b$");
        assert_eq!(to_regex("/a/**/b"), "^/a/(?:.*/)?b$");
        assert_eq!(to_regex("/a/**.ts"), "^/a/.*\\.ts$");
        assert_eq!(to_regex("/a*/b*"), "^/a[^/]*/b.*$");
        assert_eq!(to_regex("*/a/*"), "^.*/a/.*$");
    }
}
