//! The addresses of the hosts to which a name leads, and the completion of a look-up of which a part failed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The reason for which a name could not be resolved.
pub type Failure = String;

/// The families of addresses: IPv4 and IPv6, in this order.
pub(super) type ByFamily<T> = [T; 2];

/// The result of looking up a host's addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// The addresses, at least one.
    Found(Vec<IpAddr>),
    /// The host has none.
    Absent(Failure),
    /// No name server has answered, so the addresses are unknown.
    Failed(Failure),
}

/// The result of looking up one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostAnswer {
    pub(super) families: ByFamily<Looked>,
    /// Time for which the addresses may be used, if there are any.
    pub(super) ttl: Option<Duration>,
}

/// The addresses of the hosts of an answer. They stand in for those that the next look-up can't find out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(BTreeMap<String, ByFamily<Vec<IpAddr>>>);

/// The addresses after a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completed {
    pub(super) hosts: Hosts,
    /// Whether a part of the look-up failed.
    pub(super) is_partial: bool,
    /// The failure for which some of the addresses are those of the last answer.
    pub(super) kept: Option<Failure>,
}

impl HostAnswer {
    /// Returns the answer about a host that could not be looked up at all.
    pub(super) fn failed(failure: &str) -> HostAnswer {
        HostAnswer {
            families: [(); 2].map(|()| Looked::Failed(failure.to_owned())),
            ttl: None,
        }
    }

    /// Whether an address was found.
    pub(super) fn has_address(&self) -> bool {
        let is_found = |looked: &Looked| matches!(looked, Looked::Found(_));
        self.families.iter().any(is_found)
    }

    /// Whether the addresses of a family are unknown.
    pub(super) fn has_failed(&self) -> bool {
        let is_failed = |looked: &Looked| matches!(looked, Looked::Failed(_));
        self.families.iter().any(is_failed)
    }
}

impl Hosts {
    /// Returns the addresses of a host, of both families.
    pub(super) fn addresses(&self, host: &str) -> impl Iterator<Item = IpAddr> {
        let families = self.0.get(host).into_iter().flatten();
        families.flatten().copied()
    }

    /// Completes the answers to a look-up with the addresses of the last one, which `self` has: each family of a host
    /// that could not be looked up keeps its addresses. All other addresses that are not in the answers go.
    ///
    /// # Errors
    ///
    /// No address was found. Then nothing is known about the name that would be better than the last answer.
    pub(super) fn complete(
        &self,
        answers: BTreeMap<String, HostAnswer>,
    ) -> Result<Completed, Failure> {
        if !answers.values().any(HostAnswer::has_address) {
            return Err(failure(answers));
        }
        let (mut is_partial, mut kept) = (false, None);
        let hosts = answers.into_iter().map(|(host, answer)| {
            let mut last = self.0.get(&host).cloned().unwrap_or_default();
            for (addresses, looked) in last.iter_mut().zip(answer.families) {
                match looked {
                    Looked::Found(found) => *addresses = found,
                    Looked::Absent(_) => addresses.clear(),
                    Looked::Failed(failure) => {
                        is_partial = true;
                        if !addresses.is_empty() {
                            kept = Some(failure);
                        }
                    }
                }
            }
            (host, last)
        });
        let hosts = Hosts(hosts.collect());
        Ok(Completed {
            hosts,
            is_partial,
            kept,
        })
    }
}

/// Returns the reason for which no host has an address: rather a failure than that there are none.
fn failure(answers: BTreeMap<String, HostAnswer>) -> Failure {
    let mut reason = None;
    for looked in answers.into_values().flat_map(|answer| answer.families) {
        match looked {
            Looked::Failed(failure) => return failure,
            Looked::Absent(failure) => reason = reason.or(Some(failure)),
            Looked::Found(_) => {}
        }
    }
    reason.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [u8; 4] = [10, 0, 0, 1];
    const OTHER_V4: [u8; 4] = [10, 0, 0, 2];
    const V6: [u16; 8] = [1; 8];

    fn found(ip: impl Into<IpAddr>) -> Looked {
        Looked::Found(vec![ip.into()])
    }

    fn absent() -> Looked {
        Looked::Absent("absent".to_owned())
    }

    fn failed() -> Looked {
        Looked::Failed("failed".to_owned())
    }

    fn answers<const N: usize>(
        hosts: [(&str, ByFamily<Looked>); N],
    ) -> BTreeMap<String, HostAnswer> {
        let answer = |(host, families): (&str, _)| {
            let ttl = None;
            (host.to_owned(), HostAnswer { families, ttl })
        };
        hosts.into_iter().map(answer).collect()
    }

    fn addresses(completed: &Completed, host: &str) -> Vec<IpAddr> {
        completed.hosts.addresses(host).collect()
    }

    /// Returns the addresses of two hosts.
    fn last() -> Hosts {
        let both = answers([("a", [found(V4), found(V6)]), ("b", [found(V4), absent()])]);
        let completed = Hosts::default().complete(both).expect("addresses");
        assert!(!completed.is_partial && completed.kept.is_none());
        completed.hosts
    }

    #[test]
    fn a_family_that_fails_keeps_its_addresses_and_the_other_one_changes() {
        let next = answers([("a", [found(OTHER_V4), failed()])]);
        let completed = last().complete(next).expect("addresses");
        let expected: Vec<IpAddr> = vec![OTHER_V4.into(), V6.into()];
        assert_eq!(addresses(&completed, "a"), expected);
        assert!(completed.is_partial);
        assert_eq!(completed.kept.as_deref(), Some("failed"));
        // They are kept as long as it fails, and go when it does not.
        let again = answers([("a", [found(V4), failed()])]);
        let completed = completed.hosts.complete(again).expect("addresses");
        assert_eq!(addresses(&completed, "a"), [IpAddr::from(V4), V6.into()]);
        let gone = answers([("a", [found(V4), absent()])]);
        let completed = completed.hosts.complete(gone).expect("addresses");
        assert_eq!(addresses(&completed, "a"), [IpAddr::from(V4)]);
        assert!(!completed.is_partial && completed.kept.is_none());
    }

    #[test]
    fn a_host_that_fails_keeps_its_addresses_and_hosts_that_are_gone_do_not() {
        let next = answers([
            ("b", [failed(), failed()]),
            ("c", [found(OTHER_V4), absent()]),
        ]);
        let completed = last().complete(next).expect("addresses");
        assert!(addresses(&completed, "a").is_empty());
        assert_eq!(addresses(&completed, "b"), [IpAddr::from(V4)]);
        assert_eq!(addresses(&completed, "c"), [IpAddr::from(OTHER_V4)]);
        assert_eq!(completed.kept.as_deref(), Some("failed"));
    }

    #[test]
    fn a_part_that_always_fails_has_no_addresses_to_keep() {
        let next = || answers([("a", [found(V4), failed()]), ("b", [failed(), failed()])]);
        let first = Hosts::default().complete(next()).expect("addresses");
        let second = first.hosts.complete(next()).expect("addresses");
        for completed in [first, second] {
            assert_eq!(addresses(&completed, "a"), [IpAddr::from(V4)]);
            assert!(addresses(&completed, "b").is_empty());
            assert!(completed.is_partial && completed.kept.is_none());
        }
    }

    #[test]
    fn answers_without_an_address_are_a_failure() {
        for (next, reason) in [
            (answers([("a", [absent(), absent()])]), "absent"),
            (answers([("a", [absent(), failed()])]), "failed"),
            (
                answers([("a", [absent(), absent()]), ("b", [failed(), failed()])]),
                "failed",
            ),
        ] {
            assert_eq!(last().complete(next), Err(reason.to_owned()));
        }
    }
}
