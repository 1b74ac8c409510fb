//! Name patterns of configuration lists: an exact name, or a prefix followed by `*`.

/// An exact name or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    prefix: bool,
}

impl Pattern {
    /// Parses `name` or `prefix*`.
    pub fn new(text: &str) -> Pattern {
        let (text, prefix) = match text.strip_suffix('*') {
            Some(start) => (start, true),
            None => (text, false),
        };
        Pattern {
            text: text.into(),
            prefix,
        }
    }

    /// Whether the pattern matches every name.
    pub fn is_any(&self) -> bool {
        self.prefix && self.text.is_empty()
    }

    /// Whether the pattern matches this name, case-sensitively.
    pub fn matches(&self, name: &[u8]) -> bool {
        let text = self.text.as_bytes();
        match self.prefix {
            true => name.starts_with(text),
            false => name == text,
        }
    }

    /// Whether the pattern matches this header name, case-insensitively (RFC 9110 5.1).
    pub fn matches_field(&self, name: &[u8]) -> bool {
        let text = self.text.as_bytes();
        match self.prefix {
            true => name
                .get(..text.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(text)),
            false => name.eq_ignore_ascii_case(text),
        }
    }
}

/// Formats the pattern as it is written in the configuration.
impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        f.write_str(if self.prefix { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_means_a_prefix() {
        let (one, all) = (Pattern::new("utm_id"), Pattern::new("utm_*"));
        assert!(one.matches(b"utm_id") && !one.matches(b"utm_id2") && !one.matches(b"UTM_id"));
        assert!(all.matches(b"utm_") && all.matches(b"utm_id") && !all.matches(b"utm"));
        assert!(all.matches_field(b"UTM_x") && one.matches_field(b"UTM_ID"));
        assert!(Pattern::new("*").matches(b""));
    }
}
