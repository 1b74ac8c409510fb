//! Finds routes that can never match, because an earlier route of the site matches all of their
//! requests.

use std::collections::{BTreeSet, HashMap};

use smallvec::SmallVec;

use super::matcher::{Matcher, Shape};

/// The routes of a site, in their order, without those that can never match.
///
/// Routes are found by the text with which their paths begin or end. A path is therefore compared with
/// few of the earlier routes, and the time for a site grows almost linearly with the number of its
/// routes.
#[derive(Default)]
pub struct Covering<'a> {
    routes: Vec<(usize, &'a Matcher)>,
    /// The routes by their conditions on the query.
    by_query: HashMap<Option<&'a str>, Group<'a>>,
    /// Number of all routes.
    count: usize,
}

/// Routes with the same condition on the query. The values are positions in `Covering::routes`.
#[derive(Default)]
struct Group<'a> {
    beginnings: Texts<'a>,
    endings: Texts<'a>,
    regexes: Texts<'a>,
}

/// Positions of routes, by text.
#[derive(Default)]
struct Texts<'a> {
    positions: HashMap<&'a str, SmallVec<[usize; 1]>>,
    lengths: BTreeSet<usize>,
}

impl<'a> Covering<'a> {
    /// Adds the next route. Returns the index of the first earlier route that matches all requests which
    /// this one matches.
    pub fn add(&mut self, matcher: &'a Matcher) -> Option<usize> {
        let index = self.count;
        self.count += 1;
        let first = self.candidates(matcher).into_iter().filter_map(|at| {
            let (index, earlier) = &self.routes[at];
            earlier.covers(matcher).then_some(*index)
        });
        let first = first.min();
        // A route that can never match needs no entry: the earlier route covers all that it covers.
        if first.is_none() {
            let at = self.routes.len();
            self.routes.push((index, matcher));
            let group = self.by_query.entry(matcher.query());
            group.or_default().add(matcher, at);
        }
        first
    }

    /// Returns the positions of all routes that may cover this one, and possibly of some others.
    fn candidates(&self, matcher: &Matcher) -> Vec<usize> {
        let mut found = Vec::new();
        let own = matcher.query().map(Some);
        for query in [None].into_iter().chain(own) {
            if let Some(group) = self.by_query.get(&query) {
                group.find(matcher, &mut found);
            }
        }
        found
    }
}

impl<'a> Group<'a> {
    fn add(&mut self, matcher: &'a Matcher, at: usize) {
        match matcher.shape() {
            // This prefix covers every other condition.
            Shape::Prefix("/") | Shape::Any => self.beginnings.add("", at),
            Shape::Exact(text) | Shape::Prefix(text) | Shape::Glob(text) => {
                self.beginnings.add(text, at);
            }
            Shape::Suffix(text) => self.endings.add(text, at),
            Shape::Regex(text) => self.regexes.add(text, at),
        }
    }

    fn find(&self, matcher: &Matcher, found: &mut Vec<usize>) {
        let (begins_with, ends_with) = match matcher.shape() {
            Shape::Exact(text) => (text, text),
            Shape::Prefix(text) | Shape::Glob(text) => (text, ""),
            Shape::Suffix(text) => ("", text),
            Shape::Any | Shape::Regex(_) => ("", ""),
        };
        let beginning = |length: usize| begins_with.get(..length);
        self.beginnings.find(begins_with.len(), beginning, found);
        let ending = |length: usize| ends_with.get(ends_with.len() - length..);
        self.endings.find(ends_with.len(), ending, found);
        if let Shape::Regex(text) = matcher.shape() {
            found.extend(self.regexes.positions.get(text).into_iter().flatten());
        }
    }
}

impl<'a> Texts<'a> {
    fn add(&mut self, text: &'a str, at: usize) {
        self.lengths.insert(text.len());
        self.positions.entry(text).or_default().push(at);
    }

    /// Adds the positions of all texts of at most `length_max` bytes that `part` returns for their
    /// length.
    fn find<'b>(
        &self,
        length_max: usize,
        part: impl Fn(usize) -> Option<&'b str>,
        found: &mut Vec<usize>,
    ) {
        for &length in self.lengths.range(..=length_max) {
            let positions = part(length).and_then(|text| self.positions.get(text));
            found.extend(positions.into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::tests::{matcher, path};

    #[test]
    fn a_route_is_compared_with_few_of_many_others() {
        let routes = (0..1000).flat_map(|n| {
            let with_query = path("/q").with_query(&format!("q={n}"));
            [
                path(&format!("/r{n}")),
                path(&format!("/r{n}/*")),
                path(&format!("*/r{n}.mp4")),
                path(&format!("/r{n}-*/x")),
                with_query.expect("a good pattern"),
            ]
        });
        let routes: Vec<_> = routes.collect();
        let later = ["/r7/a", "/r7", "/r7-1/x", "/a/r7.mp4"].map(path);
        let mut covering = Covering::default();
        for matcher in &routes {
            assert!(covering.candidates(matcher).len() < 8, "{matcher}");
            assert_eq!(covering.add(matcher), None, "{matcher}");
        }
        for (matcher, first) in later.iter().zip([36, 35, 38, 37]) {
            assert!(covering.candidates(matcher).len() < 8, "{matcher}");
            assert_eq!(covering.add(matcher), Some(first), "{matcher}");
        }
    }

    proptest! {
        #[test]
        fn the_same_routes_are_found_as_by_comparing_all(
            matchers in prop::collection::vec(matcher(), 1..60),
        ) {
            let mut covering = Covering::default();
            for (index, matcher) in matchers.iter().enumerate() {
                let scanned = matchers[..index].iter().position(|earlier| earlier.covers(matcher));
                prop_assert_eq!(covering.add(matcher), scanned);
            }
        }
    }
}
