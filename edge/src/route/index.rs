//! The index of a site's routes: finds the routes whose path or prefix fits a target, without a scan
//! of all routes.

use super::matcher::Matcher;

/// Sites with fewer routes have no index, because a scan of so few routes is as fast.
const INDEXED_MIN: usize = 16;

/// The routes of one site, by their paths.
///
/// Paths and prefixes are in one sorted list. An entry that is a prefix of a requested path precedes
/// that path in the order, and all entries between the two begin with the same text. The last entry
/// that does not follow the path therefore begins with all entries that are prefixes of the path, or
/// is one itself. Each entry refers to the longest entry that is its prefix, so these references lead
/// to all prefixes of the path.
pub(super) struct Index {
    entries: Box<[Entry]>,
    /// The routes with other conditions, by number.
    others: Box<[u32]>,
}

/// The path or prefix of a route.
struct Entry {
    route: u32,
    /// Position of the last entry before this one that is a prefix of it, or `NONE`.
    prefix: u32,
}

const NONE: u32 = u32::MAX;

impl Index {
    /// Creates the index of these routes. `None` if a scan is as fast.
    pub(super) fn new<T>(routes: &[(Matcher, T)]) -> Option<Index> {
        let count = u32::try_from(routes.len()).ok()?;
        if routes.len() < INDEXED_MIN {
            return None;
        }
        let mut texts = Vec::new();
        let mut others = Vec::new();
        for (route, (matcher, _)) in (0..count).zip(routes) {
            match matcher.prefix() {
                Some(text) => texts.push((text, route)),
                None => others.push(route),
            }
        }
        texts.sort_unstable();
        let mut open: Vec<u32> = Vec::new();
        let entries = (0..count).zip(&texts).map(|(at, (text, route))| {
            let is_prefix = |other: &u32| text.starts_with(texts[*other as usize].0);
            while open.pop_if(|other| !is_prefix(other)).is_some() {}
            let prefix = open.last().copied().unwrap_or(NONE);
            open.push(at);
            Entry {
                route: *route,
                prefix,
            }
        });
        Some(Index {
            entries: entries.collect(),
            others: others.into(),
        })
    }

    /// Returns the first of `routes` that matches the target. `routes` are those of `new`.
    pub(super) fn find<T>(&self, routes: &[(Matcher, T)], target: &str) -> Option<usize> {
        let matches = |route: u32| routes[route as usize].0.matches(target);
        let mut first = NONE;
        for route in self.prefixes(routes, target) {
            if route < first && matches(route) {
                first = route;
            }
        }
        let before = self.others.iter().take_while(|route| **route < first);
        let other = before.copied().find(|route| matches(*route));
        let found = other.unwrap_or(first);
        (found != NONE).then_some(found as usize)
    }

    /// Returns all routes whose path or prefix is a prefix of the target's path, and possibly some
    /// others.
    fn prefixes<T>(
        &self,
        routes: &[(Matcher, T)],
        target: &str,
    ) -> impl Iterator<Item = u32> + use<'_, T> {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let text = |entry: &Entry| routes[entry.route as usize].0.prefix();
        let follows = |entry: &Entry| text(entry).is_some_and(|text| text > path);
        let before = self.entries.partition_point(|entry| !follows(entry));
        let mut next = self.entries[..before].last();
        std::iter::from_fn(move || {
            let entry = next?;
            next = self.entries.get(entry.prefix as usize);
            Some(entry.route)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::tests::{matcher, path};

    fn scan(routes: &[(Matcher, ())], target: &str) -> Option<usize> {
        routes
            .iter()
            .position(|(matcher, ())| matcher.matches(target))
    }

    #[test]
    fn few_routes_are_tried_of_many() {
        let mut routes: Vec<(Matcher, ())> = Vec::new();
        for n in 0..10_000 {
            routes.push((path(&format!("/r{n}/*")), ()));
            routes.push((path(&format!("/r{n}/exact")), ()));
        }
        routes.push((path("/r7/a/*"), ()));
        routes.push((path("*"), ()));
        let index = Index::new(&routes).expect("many routes");
        for target in ["/r7/exact", "/r7/a/b?c", "/none", "/", "*", ""] {
            let tried = index.prefixes(&routes, target).count();
            assert!(tried <= 4, "{tried} routes for {target}");
            assert_eq!(index.find(&routes, target), scan(&routes, target));
        }
        assert_eq!(size_of::<Entry>(), 8);
    }

    proptest! {
        #[test]
        fn the_index_and_a_scan_find_the_same_route(
            matchers in prop::collection::vec(matcher(), INDEXED_MIN..60),
            targets in prop::collection::vec("([/*][ab/]{0,6}(\\?[ab/]{0,3})?)?", 1..20),
        ) {
            let routes: Vec<_> = matchers.into_iter().map(|matcher| (matcher, ())).collect();
            let index = Index::new(&routes).expect("enough routes");
            for target in targets {
                prop_assert_eq!(index.find(&routes, &target), scan(&routes, &target), "{}", target);
            }
        }
    }
}
