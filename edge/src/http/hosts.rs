//! Finds what belongs to a host: the rules by which routing and TLS find the site of a request.

use std::collections::HashMap;

/// Longest DNS name (RFC 1035 2.3.4). A longer host has no entry.
const NAME_MAX: usize = 253;

/// A table of hosts. The entry for a host is the one with this name, else the one with the longest matching `*.name`,
/// else the one for any host.
#[derive(Debug)]
pub struct Hosts<T> {
    exact: HashMap<Box<str>, T, foldhash::fast::RandomState>,
    /// Entries for `*.name`, by `name`.
    wildcard: HashMap<Box<str>, T, foldhash::fast::RandomState>,
    any: Option<T>,
}

impl<T> Default for Hosts<T> {
    fn default() -> Hosts<T> {
        Hosts {
            exact: HashMap::default(),
            wildcard: HashMap::default(),
            any: None,
        }
    }
}

impl<T: Clone> Hosts<T> {
    /// Adds an entry for these hosts: names in lower case, or `*.name`. Without hosts, the entry is for any host. A host
    /// that has an entry keeps it.
    pub fn add(&mut self, hosts: &[String], value: &T) {
        if hosts.is_empty() {
            self.any.get_or_insert_with(|| value.clone());
        }
        for host in hosts {
            let (names, name) = match host.strip_prefix("*.") {
                Some(name) => (&mut self.wildcard, name),
                None => (&mut self.exact, host.as_str()),
            };
            names.entry(name.into()).or_insert_with(|| value.clone());
        }
    }

    /// Whether no host has an entry of its own.
    #[inline]
    pub fn is_unnamed(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty()
    }

    /// Returns the entry for any host.
    #[inline]
    pub fn any(&self) -> Option<&T> {
        self.any.as_ref()
    }

    /// Returns the entry for a host in lower case without a port. Allocates nothing.
    #[inline]
    pub fn find(&self, host: &str) -> Option<&T> {
        self.named(host).or(self.any.as_ref())
    }

    /// Returns the entry that names the host or a `*.name` above it.
    pub fn named(&self, host: &str) -> Option<&T> {
        if host.len() > NAME_MAX {
            return None;
        }
        if let Some(value) = self.exact.get(host) {
            return Some(value);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        // Each suffix of the host is looked up from the first dot on, so that the longest name is
        // found first.
        memchr::memchr_iter(b'.', host.as_bytes())
            .filter(|dot| *dot > 0)
            .find_map(|dot| self.wildcard.get(&host[dot + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(lists: &[&[&str]]) -> Hosts<usize> {
        let mut hosts = Hosts::default();
        for (index, list) in lists.iter().enumerate() {
            let list: Vec<String> = list.iter().map(|host| (*host).to_owned()).collect();
            hosts.add(&list, &index);
        }
        hosts
    }

    #[test]
    fn the_most_specific_entry_is_found() {
        let hosts = hosts(&[
            &["a.example.com"],
            &["*.example.com", "*.b.example.com"],
            &["*.c.example.com"],
            &[],
        ]);
        for (host, expected) in [
            ("a.example.com", 0),
            ("x.example.com", 1),
            ("x.b.example.com", 1),
            ("x.y.c.example.com", 2),
            ("example.com", 3),
            (".example.com", 3),
            ("", 3),
        ] {
            assert_eq!(hosts.find(host), Some(&expected), "{host}");
        }
        let long = format!("{}.example.com", "a".repeat(NAME_MAX));
        assert_eq!(hosts.find(&long), Some(&3));
        assert_eq!(hosts.named("example.com"), None);
    }

    #[test]
    fn the_first_entry_of_a_host_stays() {
        let hosts = hosts(&[&["a"], &["a", "b"], &[], &[]]);
        assert_eq!(hosts.find("a"), Some(&0));
        assert_eq!(hosts.find("b"), Some(&1));
        assert_eq!(hosts.any(), Some(&2));
    }
}
