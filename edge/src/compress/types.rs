//! Media types that are worth compressing.

/// A list of media types: exact types (`text/html`), prefixes (`text/*`), and suffixes (`*+json`,
/// RFC 6839).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Types(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// An exact media type, such as `text/html`.
    Type(Box<str>),
    /// A prefix of media types, such as `text/`.
    Kind(Box<str>),
    /// A suffix of media types, such as `+json`.
    Suffix(Box<str>),
}

/// The default list: common types of text, and binary types that compress as well as text.
pub const DEFAULT: [&str; 17] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/json",
    "application/javascript",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
];

impl Types {
    /// Parses patterns of media types. Returns `None` if one of them is malformed.
    pub fn of<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Option<Types> {
        patterns
            .into_iter()
            .map(Pattern::of)
            .collect::<Option<_>>()
            .map(Types)
    }

    /// Whether the list contains the media type of a Content-Type, whose parameters are ignored.
    pub fn matches(&self, content_type: &[u8]) -> bool {
        let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
        let essence = content_type[..end].trim_ascii();
        self.0.iter().any(|pattern| pattern.matches(essence))
    }

    /// Returns the patterns of the list as written in the configuration.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|pattern| match pattern {
            Pattern::Type(all) => all.to_string(),
            Pattern::Kind(kind) => format!("{kind}*"),
            Pattern::Suffix(suffix) => format!("*{suffix}"),
        })
    }
}

impl Default for Types {
    fn default() -> Types {
        Types(DEFAULT.into_iter().filter_map(Pattern::of).collect())
    }
}

impl Pattern {
    fn of(text: &str) -> Option<Pattern> {
        let is_name = |name: &str| {
            let is_part = |b: u8| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let text = text.to_ascii_lowercase();
        if let Some(suffix) = text.strip_prefix('*') {
            let name = suffix.strip_prefix('+')?;
            return is_name(name).then(|| Pattern::Suffix(suffix.into()));
        }
        let (kind, rest) = text.split_once('/')?;
        match rest {
            "*" => is_name(kind).then(|| Pattern::Kind(format!("{kind}/").into())),
            rest => (is_name(kind) && is_name(rest)).then(|| Pattern::Type(text.as_str().into())),
        }
    }

    fn matches(&self, essence: &[u8]) -> bool {
        let len = essence.len();
        match self {
            Pattern::Type(all) => essence.eq_ignore_ascii_case(all.as_bytes()),
            Pattern::Kind(kind) => {
                len > kind.len() && essence[..kind.len()].eq_ignore_ascii_case(kind.as_bytes())
            }
            Pattern::Suffix(suffix) => {
                let from = len.saturating_sub(suffix.len());
                from > 0 && essence[from..].eq_ignore_ascii_case(suffix.as_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn compressible_types_are_in_the_default_list() {
        let types = Types::default();
        for (media_type, expected) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/Plain", true),
            ("application/json", true),
            (" application/json ;x=\"text/html\"", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("image/png", false),
            ("video/mp4; a=text/html", false),
            ("application/octet-stream", false),
            ("application/jsonx", false),
            ("text", false),
            ("text/", false),
            ("+json", false),
            ("", false),
        ] {
            assert_eq!(
                types.matches(media_type.as_bytes()),
                expected,
                "{media_type}"
            );
        }
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for wrong in [
            "", "*", "*/*", "text", "text/", "/html", "*json", "te xt/*", "a/b/c", "*+",
        ] {
            assert_eq!(Types::of([wrong]), None, "{wrong}");
        }
        let types = Types::of(["Text/*", "*+JSON", "a/b"]).expect("good");
        let patterns: Vec<_> = types.patterns().collect();
        assert_eq!(patterns, ["text/*", "*+json", "a/b"]);
    }

    proptest! {
        #[test]
        fn patterns_match_types_prefixes_and_suffixes(
            kind in "[a-zA-Z]{1,8}",
            name in "[a-zA-Z.-]{1,8}",
            suffix in "[a-zA-Z]{1,6}",
            parameter in "[ ;=a-z\"/*+]{0,12}",
        ) {
            let media_type = format!("{kind}/{name}+{suffix} ;{parameter}");
            let all = format!("{kind}/*");
            let by_suffix = format!("*+{suffix}");
            let exact = format!("{kind}/{name}+{suffix}");
            for pattern in [&all, &by_suffix, &exact] {
                let types = Types::of([pattern.as_str()]).expect("a pattern");
                prop_assert!(types.matches(media_type.as_bytes()), "{pattern}");
                prop_assert!(types.matches(media_type.to_ascii_uppercase().as_bytes()));
                let other = format!("x{media_type}x");
                let other = other.split(';').next().unwrap_or("");
                let same = pattern == &by_suffix && other.trim_end().ends_with(&format!("+{suffix}"));
                prop_assert_eq!(types.matches(other.as_bytes()), same);
            }
        }

        #[test]
        fn arbitrary_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            Types::default().matches(&bytes);
        }
    }
}
