//! Types of optional values and named sections.

use std::collections::BTreeMap;

use toml::Spanned;

/// A value that may be missing, with its position in the file.
pub type Key<T> = Option<Spanned<T>>;

/// Named sections, such as `[cache.NAME]`.
pub type Named<T> = BTreeMap<Spanned<String>, T>;
