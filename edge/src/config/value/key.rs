//! Optional values and named sections.

use std::collections::BTreeMap;

use toml::Spanned;

/// A value that may be missing, with its place in the text.
pub type Key<T> = Option<Spanned<T>>;

/// Named sections: `[cache.NAME]`.
pub type Named<T> = BTreeMap<Spanned<String>, T>;
