//! Globs on paths: interprets `*` and `**`.

/// The way in which paths are compared with a pattern that may have globs.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The pattern has no glob: the path must be equal.
    Exact,
    /// The only glob is at the end: the path must begin with this text.
    Prefix(&'a str),
    /// The only glob is at the beginning: the path must end with this text.
    Suffix(&'a str),
    /// Globs elsewhere: a regular expression is needed.
    Pattern,
}

/// Returns the way in which paths are compared with the pattern `text`.
pub fn kind(text: &str) -> Kind<'_> {
    let (before, after) = (text.trim_end_matches('*'), text.trim_start_matches('*'));
    match () {
        () if !text.contains('*') => Kind::Exact,
        () if !before.contains('*') && before.starts_with('/') => Kind::Prefix(before),
        () if !after.contains('*') && !after.is_empty() => Kind::Suffix(after),
        // The pattern consists only of stars.
        () if before.is_empty() => Kind::Prefix("/"),
        () => Kind::Pattern,
    }
}

/// Returns the text before the first `*`.
pub fn literal_prefix(text: &str) -> &str {
    text.split('*').next().unwrap_or_default()
}

/// Returns a regular expression that matches exactly the paths that the glob `text` matches.
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
            // `/**/` also matches a single slash, so the slash after the stars is optional.
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
