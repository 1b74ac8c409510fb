//! The request headers that a route's configuration names.

use crate::http::hop::{self, is_withheld};

/// The request headers that a route's configuration names, all in lower case.
#[derive(Clone, Debug, Default)]
pub struct RouteHeaders {
    /// Headers that `hop::is_withheld` covers and that reach the origin nevertheless.
    pub kept: Vec<Box<str>>,
    /// Headers that the route removes or replaces, which are removed from trailers, too.
    pub removed: Vec<Box<str>>,
}

impl RouteHeaders {
    /// Whether the route names no header.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.removed.is_empty()
    }

    /// Whether this header does not reach the origin because an origin may take URL, host or method
    /// from it.
    pub(super) fn withholds(&self, name: &[u8]) -> bool {
        let named = || {
            let mut kept = self.kept.iter();
            kept.any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
        };
        is_withheld(name) && !named()
    }

    /// Whether the route removes this header, or one that an origin could take for it.
    pub(super) fn removes(&self, name: &[u8]) -> bool {
        let mut removed = self.removed.iter();
        removed.any(|removed| hop::reads_as(name, removed.as_bytes()))
    }
}
