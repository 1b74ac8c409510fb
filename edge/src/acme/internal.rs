//! The certificates that Sluice signs itself: by the local authority for development, and self-signed ones until an
//! authority has issued a certificate.
//!
//! These certificates are only in memory, and each start makes them anew. Clients trust the root, which is stored, so
//! they accept each of them; making one takes less than a millisecond, and no key of a site is ever on a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::root::{self, Root};
use super::schedule::{self, Held, Validity};
use super::storage::Storage;
use crate::sys::Clock;
use crate::tls::{Certificate, Managed};

/// Most addresses that each certificate is also for.
const ADDRESSES_MAX: usize = 32;
/// Time in seconds after which a renewal that failed is tried again.
const AGAIN_S: i64 = 60;

/// The hosts for which Sluice signs certificates itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Hosts with certificates of the local authority.
    pub internal: BTreeSet<String>,
    /// Hosts with self-signed certificates until there are others.
    pub self_signed: BTreeSet<String>,
}

/// The certificates that Sluice signs itself.
pub struct Internal {
    managed: Arc<Managed>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    root: Option<Root>,
    /// The certificates by the names that they are for.
    issued: BTreeMap<Names, Certificate>,
    /// The time before which no renewal is tried, as Unix time in seconds.
    not_before_unix_s: i64,
}

/// The names of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Names {
    is_self_signed: bool,
    /// The host for which the certificate is used, and addresses that it is also for.
    hosts: Vec<String>,
}

impl Internal {
    /// Creates the place of the certificates, without any.
    pub fn new(managed: Arc<Managed>, clock: Clock) -> Internal {
        Internal {
            managed,
            clock,
            state: Mutex::default(),
        }
    }

    /// Reads the root from the storage, or makes one if there is none. Further calls have no effect.
    ///
    /// # Errors
    ///
    /// The storage failed, or the stored root can't be used.
    pub fn open_root(&self, storage: &dyn Storage) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.root.is_none() {
            state.root = Some(Root::open(storage, &self.clock)?);
        }
        Ok(())
    }

    /// Uses certificates for these hosts from now on, and none for others. `open_root` has succeeded if any are to be
    /// of the local authority.
    ///
    /// # Errors
    ///
    /// A certificate can't be made. Those in use don't change.
    pub fn want(&self, hosts: &Hosts) -> Result<(), String> {
        let now_unix_s = self.clock.unix_s();
        let mut state = self.state.lock();
        let mut issued = BTreeMap::new();
        for names in wanted(hosts) {
            if self.is_replaced(&names) {
                continue;
            }
            let kept = state.issued.get(&names).cloned();
            let certificate = match kept {
                Some(certificate) => certificate,
                None => state.issue(&names, now_unix_s)?,
            };
            issued.insert(names, certificate);
        }
        state.issued = issued;
        self.serve(&state);
        Ok(())
    }

    /// Whether there are any certificates.
    #[cfg(test)]
    pub fn is_in_use(&self) -> bool {
        !self.state.lock().issued.is_empty()
    }

    /// Renews the certificates whose time has come, and forgets self-signed ones that are no longer necessary.
    pub fn renew(&self) {
        let now_unix_s = self.clock.unix_s();
        let mut state = self.state.lock();
        let before = state.issued.len();
        state.issued.retain(|names, _| !self.is_replaced(names));
        let mut has_changed = state.issued.len() != before;
        if now_unix_s >= state.not_before_unix_s {
            let due = state.issued.iter();
            let due = due.filter(|(names, one)| is_due(&names.hosts, one, now_unix_s));
            let due: Vec<Names> = due.map(|(names, _)| names.clone()).collect();
            for names in due {
                match state.issue(&names, now_unix_s) {
                    Ok(certificate) => {
                        state.issued.insert(names, certificate);
                        has_changed = true;
                    }
                    Err(problem) => {
                        tracing::error!(target: "sluice::event::certificate::failed", problem, "a certificate could not be renewed");
                        state.not_before_unix_s = now_unix_s + AGAIN_S;
                    }
                }
            }
        }
        if has_changed {
            self.serve(&state);
        }
    }

    /// Whether a self-signed certificate is not necessary, since there is one of an authority.
    fn is_replaced(&self, names: &Names) -> bool {
        let host = names.hosts.first().filter(|_| names.is_self_signed);
        host.is_some_and(|host| self.managed.find(host).is_some())
    }

    fn serve(&self, state: &State) {
        let issued = state.issued.iter();
        let by_host = issued.filter_map(|(names, one)| Some((names.hosts.first()?, one)));
        self.managed.replace_own(by_host);
    }
}

impl State {
    fn issue(&self, names: &Names, now_unix_s: i64) -> Result<Certificate, String> {
        let issued = match (&self.root, names.is_self_signed) {
            (_, true) => root::self_signed(&names.hosts, now_unix_s),
            (Some(root), false) => root.sign(&names.hosts, now_unix_s),
            (None, false) => Err("the local authority has no root".to_owned()),
        };
        issued.map_err(|why| {
            let host = names.hosts.first().map_or("", String::as_str);
            format!("no certificate can be made for {host}: {why}")
        })
    }
}

/// Returns the names of the certificates for these hosts.
///
/// A client that connects to an address sends no name, and gets the certificate of the first host. Each certificate of
/// the local authority is therefore also for the addresses among the hosts.
fn wanted(hosts: &Hosts) -> impl Iterator<Item = Names> {
    let addresses = hosts.internal.iter().filter(|host| is_address(host));
    let addresses: Vec<&String> = addresses.take(ADDRESSES_MAX).collect();
    let internal = hosts.internal.iter().map(move |host| Names {
        is_self_signed: false,
        hosts: std::iter::once(host)
            .chain(addresses.iter().copied().filter(|one| *one != host))
            .cloned()
            .collect(),
    });
    let self_signed = hosts.self_signed.iter().map(|host| Names {
        is_self_signed: true,
        hosts: vec![host.clone()],
    });
    internal.chain(self_signed)
}

/// Whether a host is an IPv4 address, or an IPv6 address in brackets.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok()
}

/// Whether a certificate is to be renewed, also if the clock was set back since it was made.
fn is_due(hosts: &[String], certificate: &Certificate, now_unix_s: i64) -> bool {
    let from_unix_s = certificate.facts.not_before_unix_s;
    let held = Held {
        validity: Validity {
            from_unix_s,
            until_unix_s: certificate.facts.not_after_unix_s,
        },
        obtained_unix_s: from_unix_s,
        window: None,
    };
    let renewal_unix_s = schedule::renewal_unix_s(held, schedule::spread(hosts));
    now_unix_s >= renewal_unix_s || now_unix_s < from_unix_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::storage;

    const DAY_US: u64 = 24 * 3600 * 1_000_000;

    fn set(hosts: &[&str]) -> BTreeSet<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    /// Returns certificates that are in memory only, with a root.
    fn internal(managed: &Arc<Managed>, clock: &Clock) -> Internal {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = storage::in_folder(folder.path()).expect("a storage");
        let internal = Internal::new(managed.clone(), clock.clone());
        internal.open_root(&*storage).expect("a root");
        internal
    }

    #[test]
    fn each_host_gets_a_certificate_which_is_also_for_the_addresses() {
        let (managed, clock) = (Arc::<Managed>::default(), Clock::manual(1_800_000_000));
        let internal = internal(&managed, &clock);
        let hosts = Hosts {
            internal: set(&["*.dev.example", "127.0.0.1", "[::1]", "localhost"]),
            ..Hosts::default()
        };
        internal.want(&hosts).expect("certificates");
        let names = |host: &str| managed.in_use(host).map(|one| one.facts.names.clone());
        let of = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(names("localhost"), of(&["localhost", "127.0.0.1", "[::1]"]));
        assert_eq!(names("127.0.0.1"), of(&["127.0.0.1", "[::1]"]));
        assert_eq!(
            names("a.dev.example"),
            of(&["*.dev.example", "127.0.0.1", "[::1]"])
        );
        assert_eq!(names("other.example"), None);
        assert!(managed.find("localhost").is_none(), "none of an authority");
        internal.want(&Hosts::default()).expect("no certificates");
        assert_eq!(names("localhost"), None);
        assert!(!internal.is_in_use());
    }

    #[test]
    fn certificates_are_renewed_in_time_and_if_the_clock_was_set_back() {
        let (managed, clock) = (Arc::<Managed>::default(), Clock::manual(1_800_000_000));
        let internal = internal(&managed, &clock);
        let hosts = Hosts {
            internal: set(&["localhost"]),
            ..Hosts::default()
        };
        internal.want(&hosts).expect("a certificate");
        let end = || {
            let in_use = managed.in_use("localhost").expect("a certificate");
            in_use.facts.not_after_unix_s
        };
        let first = end();
        clock.advance_us(4 * DAY_US);
        internal.renew();
        internal.want(&hosts).expect("a certificate");
        assert_eq!(end(), first);
        clock.advance_us(DAY_US);
        internal.renew();
        assert_eq!(end() - first, 5 * 24 * 3600);
        let in_use = managed.in_use("localhost").expect("a certificate");
        let earlier = in_use.facts.not_before_unix_s - 1;
        assert!(is_due(&["localhost".to_owned()], &in_use, earlier));
    }

    #[test]
    fn a_self_signed_certificate_ends_with_the_first_one_of_an_authority() {
        let (managed, clock) = (Arc::<Managed>::default(), Clock::manual(1_800_000_000));
        let internal = Internal::new(managed.clone(), clock);
        let hosts = Hosts {
            self_signed: set(&["a.example"]),
            ..Hosts::default()
        };
        internal.want(&hosts).expect("a certificate");
        assert!(managed.find("a.example").is_none());
        assert!(managed.in_use("a.example").is_some());
        internal.renew();
        assert!(internal.is_in_use());
        let names = ["a.example".to_owned()];
        let real = root::self_signed(&names, 0).expect("a certificate");
        managed.put(&names, &real);
        let in_use = managed.in_use("a.example").expect("a certificate");
        assert!(Arc::ptr_eq(&in_use.key, &real.key));
        internal.renew();
        assert!(!internal.is_in_use());
        internal.want(&hosts).expect("no certificate");
        assert!(!internal.is_in_use());
    }

    #[test]
    fn a_certificate_of_the_local_authority_needs_a_root() {
        let internal = Internal::new(Arc::default(), Clock::manual(1_800_000_000));
        let hosts = Hosts {
            internal: set(&["localhost"]),
            ..Hosts::default()
        };
        let error = internal.want(&hosts).expect_err("no root");
        assert!(error.contains("for localhost"), "{error}");
    }
}
