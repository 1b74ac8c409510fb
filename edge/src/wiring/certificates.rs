//! Loads the files of TLS that have changed, without a reload by the operator, and renews the certificates that Sluice has
//! signed itself.

use std::time::Duration;

use super::edge::Edge;
use super::encryption::{Encryption, Stamps, stamps};
use super::expiry::ExpiryWarnings;
use crate::config;

/// Time between two checks whether the files have changed.
pub(super) const POLL_EVERY: Duration = Duration::from_secs(2);

/// Time in milliseconds after which the problems of certificates are reported again.
const REPORT_EVERY_MS: u64 = 24 * 3600 * 1000;

/// Watches the files of certificates, keys and secrets, and the validity of certificates.
///
/// Certificate and key are usually written one after the other, so changed files are read only once their stamps are
/// equal in two successive polls.
#[derive(Default)]
pub(super) struct CertificateWatch {
    /// The stamps at the last poll.
    seen: Stamps,
    /// The stamps of files that could not be used.
    refused: Stamps,
    daily: Daily,
    expiry: ExpiryWarnings,
}

impl CertificateWatch {
    /// Loads files that have changed, and renews certificates that Sluice has signed itself. May wait for the disk.
    pub(super) fn poll(&mut self, edge: &Edge) {
        edge.obtained.renew_own();
        let now_unix_ms = edge.clock.unix_ms();
        let is_due = self.daily.is_due(now_unix_ms);
        let snapshot = edge.snapshots.borrow().clone();
        if self.expiry.is_due(now_unix_ms) {
            for warning in self
                .expiry
                .warnings(&edge.certificate_states(), now_unix_ms)
            {
                tracing::warn!("{warning}");
            }
        }
        let stamps = stamps(&snapshot.plan);
        let needs_renewal = self.needs_renewal(&stamps, &snapshot.encryption, is_due);
        drop(snapshot);
        if needs_renewal && !renew(edge) {
            self.refused.clone_from(&stamps);
        }
        self.seen = stamps;
    }

    /// Whether the files are to be loaded, whose stamps are `stamps` now. Files that could not be used are loaded again
    /// when the daily report is due, which also repeats the messages about them.
    fn needs_renewal(&self, stamps: &Stamps, in_use: &Encryption, is_due: bool) -> bool {
        let has_changed = *stamps != in_use.stamps && (is_due || *stamps != self.refused);
        *stamps == self.seen && (has_changed || is_due && !in_use.refused.is_empty())
    }
}

/// Loads all files again. Returns whether this succeeded, at least with the earlier contents of some files.
fn renew(edge: &Edge) -> bool {
    let renewed = edge.renew_certificates();
    match &renewed {
        Ok(has_changed) => {
            let snapshot = edge.snapshots.borrow().clone();
            for error in &snapshot.encryption.refused {
                tracing::error!(target: "sluice::event::certificate::files-refused", "{}", kept(error));
            }
            if *has_changed {
                tracing::info!(target: "sluice::event::certificate::changed", "changed certificates are in use");
            }
        }
        Err(error) => {
            tracing::error!(target: "sluice::event::certificate::files-refused", "{}", kept(error))
        }
    }
    renewed.is_ok()
}

/// Describes an error because of which earlier files stay in use.
fn kept(error: &dyn std::fmt::Display) -> String {
    format!("changed certificates can't be used, and the earlier ones stay in use: {error}")
}

/// Decides when the problems of certificates are reported again. The start and each reload report them, too.
#[derive(Default)]
struct Daily {
    /// Time of the last report, or of the start, as Unix time in milliseconds.
    last_unix_ms: Option<u64>,
}

impl Daily {
    /// Whether a day has passed since this last returned true, or since the first call.
    fn is_due(&mut self, now_unix_ms: u64) -> bool {
        let last = *self.last_unix_ms.get_or_insert(now_unix_ms);
        let is_due = now_unix_ms.saturating_sub(last) >= REPORT_EVERY_MS;
        if is_due {
            self.last_unix_ms = Some(now_unix_ms);
        }
        is_due
    }
}

/// Whether certificates have to be watched: files that may change, and certificates that may expire.
pub(super) fn are_watched(edge: &Edge) -> bool {
    let is_acme = edge.obtained.is_running();
    is_acme || !config::tls_files(&edge.snapshots.borrow().plan).is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluice_lab::certificates::{Authority, PairFiles};

    use super::*;
    use crate::config::Plan;
    use crate::sys::Clock;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn problems_are_reported_again_once_a_day() {
        let mut daily = Daily::default();
        assert!(!daily.is_due(1000), "the start has reported them");
        assert!(!daily.is_due(1000 + REPORT_EVERY_MS - 1));
        assert!(daily.is_due(1000 + REPORT_EVERY_MS));
        assert!(!daily.is_due(1000 + REPORT_EVERY_MS + 1));
        assert!(daily.is_due(1000 + 3 * REPORT_EVERY_MS));
        assert!(!daily.is_due(0), "the clock was set back");
    }

    /// Returns the plan of a listener with these certificates.
    fn plan(files: &[PairFiles]) -> Plan {
        let sites = files.iter().enumerate().map(|(index, files)| {
            format!(
                "[[site]]\nhosts = \"{index}.example.com\"\ntls = {{ {} }}\n[[site.route]]\nrespond = \"a\"\n",
                files.keys()
            )
        });
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n{}",
            sites.collect::<String>()
        );
        config::parse("test.toml", &text).expect("a plan").plan
    }

    /// Creates a certificate for each of these numbers of days of validity.
    fn files(folder: &Path, days: &[u32]) -> std::io::Result<Vec<PairFiles>> {
        let authority = Authority::new("Test authority");
        let pairs = days.iter().enumerate().map(|(index, days)| {
            let name = format!("{index}.example.com");
            let pair = authority.server_until(&[&name], *days * DAY + DAY / 2);
            pair.write(folder, &name)
        });
        pairs.collect()
    }

    #[test]
    fn files_are_loaded_if_they_have_changed_and_each_day_if_they_can_not_be_used()
    -> std::io::Result<()> {
        let (folder, clock) = (tempfile::tempdir()?, Clock::system());
        let files = files(folder.path(), &[30])?;
        let plan = plan(&files);
        let first = Encryption::open(&plan, None, &clock).expect("certificates");
        let mut watch = CertificateWatch {
            seen: stamps(&plan),
            ..CertificateWatch::default()
        };
        assert!(!watch.needs_renewal(&stamps(&plan), &first, true));
        std::fs::write(&files[0].key, "no key")?;
        assert!(!watch.needs_renewal(&stamps(&plan), &first, false));
        watch.seen = stamps(&plan);
        assert!(watch.needs_renewal(&stamps(&plan), &first, false));
        let second = Encryption::renew(&plan, &first, &clock).expect("the earlier contents");
        assert_eq!(second.refused.len(), 1);
        assert!(!second.has_changed);
        assert!(!watch.needs_renewal(&stamps(&plan), &second, false));
        assert!(watch.needs_renewal(&stamps(&plan), &second, true));
        // The whole renewal failed.
        watch.refused = stamps(&plan);
        assert!(!watch.needs_renewal(&stamps(&plan), &first, false));
        assert!(watch.needs_renewal(&stamps(&plan), &first, true));
        assert!(Encryption::open(&plan, Some(&first), &clock).is_err());
        Ok(())
    }
}
