//! The redirects of an origin that were followed for one response, and their meaning for caches.

use crate::http::Fields;
use crate::http::cache_control::{ResponseDirectives, Scope};

/// The redirects that were followed for one response.
///
/// A cache that stores the response stores the choices of the redirects, too. The response is
/// therefore stored and reused only as all redirects permit (RFC 9111 3, 5.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Number of redirects.
    pub count: u8,
    /// Whether a redirect forbids storing (RFC 9111 5.2.2.5).
    pub no_store: bool,
    /// Whether a redirect is for one client (RFC 9111 5.2.2.7).
    pub private: bool,
    /// Whether a redirect must be validated before each use, or is never fresh (RFC 9111 5.2.2.4).
    pub no_cache: bool,
    /// Whether a redirect does not permit sharing if the request had Authorization (RFC 9111 3.5).
    pub not_for_all: bool,
}

impl Followed {
    /// Adds a redirect with these headers.
    pub fn add(&mut self, fields: &Fields) {
        let directives = ResponseDirectives::of(fields);
        self.count = self.count.saturating_add(1);
        self.no_store |= directives.no_store;
        self.private |= directives.private == Scope::Whole;
        self.no_cache |= directives.no_cache == Scope::Whole
            || directives.s_maxage.or(directives.max_age) == Some(0);
        self.not_for_all |= !directives.is_for_all();
    }

    /// Returns the directives that the response needs because of the redirects.
    pub fn directives(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.no_store, "no-store"),
            (self.private, "private"),
            (self.no_cache, "no-cache"),
        ]
        .into_iter()
        .filter_map(|(is_needed, directive)| is_needed.then_some(directive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_redirect_counts() {
        let of = |values: &[&str]| {
            let mut followed = Followed::default();
            for value in values {
                followed.add(&[("Cache-Control", *value)].into_iter().collect());
            }
            assert_eq!(followed.count as usize, values.len());
            followed.directives().collect::<Vec<_>>().join(", ")
        };
        assert_eq!(of(&["public, max-age=60", "x"]), "");
        assert_eq!(of(&["public", "no-store", "public"]), "no-store");
        assert_eq!(of(&["private", "max-age=0"]), "private, no-cache");
        assert_eq!(of(&["s-maxage=5, max-age=0"]), "");
        assert_eq!(of(&["no-cache"]), "no-cache");
        let mut followed = Followed::default();
        followed.add(&[("Cache-Control", "public")].into_iter().collect());
        assert!(!followed.not_for_all);
        followed.add(&Fields::new());
        assert!(followed.not_for_all);
    }
}
