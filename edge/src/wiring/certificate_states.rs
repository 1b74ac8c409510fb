//! The certificates for the admin API, and the operator's orders about those from authorities.

use std::collections::BTreeSet;

use super::edge::Edge;
use super::obtained;
use crate::acme::{self, Reason, Refused, State};
use crate::admin::{
    CertificateAction, CertificateOrder, CertificateSource, CertificateState, Certificates,
    Ordered, Refusal,
};
use crate::config::{self, Plan};
use crate::sys::Clock;
use crate::tls::{self, CertificateFiles, Facts, ListenerTls, Management, SiteTls};
use crate::upstream::unknown;

/// Most names that a refusal lists.
const NAMES_MAX: usize = 20;

impl Edge {
    /// Returns the state of all certificates.
    pub(super) fn certificate_states(&self) -> Certificates {
        let now_unix_s = self.clock.unix_s();
        let snapshot = self.snapshots.borrow().clone();
        let files = of_files(snapshot.encryption.files.certificates(), now_unix_s);
        let acme = self.obtained.states().into_iter();
        let acme = acme.map(|state| of_authority(state, now_unix_s));
        let managed = &snapshot.encryption.managed;
        let internal = obtained::hosts(&snapshot.plan, Management::Internal);
        let internal = internal.into_iter().map(|host| {
            let certificate = managed.in_use(&host);
            let facts = certificate.as_ref().map(|one| &*one.facts);
            of_internal(&host, facts, now_unix_s)
        });
        let all = files.into_iter().chain(acme).chain(internal);
        Certificates::new(all.collect(), now_unix_s)
    }

    /// Begins to carry out an order about a certificate.
    pub(super) fn carry_out_about_certificate(
        &self,
        order: &CertificateOrder,
    ) -> Result<Ordered, Refusal> {
        let name = order.name.trim_end_matches('.').to_ascii_lowercase();
        let refused = |refused| self.refusal(&name, refused);
        match (order.order, &order.reason) {
            (CertificateAction::Renew, Some(_)) => {
                Err(refusal(400, "a reason belongs to `order=revoke`"))
            }
            (CertificateAction::Renew, None) => {
                self.obtained.renew(&name).map_err(refused)?;
                let text = format!(
                    "a certificate for {name} is being obtained; `sluice certs` shows the result\n"
                );
                Ok(Ordered { text, result: None })
            }
            (CertificateAction::Revoke, reason) => {
                let reason = reason
                    .as_deref()
                    .map_or(Some(Reason::default()), Reason::named);
                let reason = reason.ok_or_else(|| {
                    let known: Vec<&str> = Reason::ALL.iter().map(|one| one.name()).collect();
                    refusal(400, &format!("the reasons are {}", known.join(", ")))
                })?;
                let result = self.obtained.revoke(&name, reason).map_err(refused)?;
                Ok(Ordered {
                    text: format!(
                        "the certificate for {name} is revoked and not used any more; a new one is being obtained\n"
                    ),
                    result: Some(result),
                })
            }
        }
    }

    fn refusal(&self, name: &str, refused: Refused) -> Refusal {
        match refused {
            Refused::Busy => refusal(409, "an attempt is in progress; try it again later"),
            Refused::Missing => refusal(409, "there is no certificate yet that could be revoked"),
            Refused::Unknown => {
                let states = self.obtained.states();
                let known = states.iter().flat_map(|state| &state.names);
                let known = known.take(NAMES_MAX).map(String::as_str);
                let why = unknown("certificate from an authority for", name, known);
                refusal(404, &why)
            }
        }
    }
}

/// Returns the state of the certificates of a plan in files and in the folder of certificates from authorities, for a
/// command that finds no running Sluice. Files that can't be read are left out.
///
/// # Errors
///
/// The folder of certificates from authorities can't be read.
pub fn stored(plan: &Plan, clock: &Clock) -> std::io::Result<Certificates> {
    let now_unix_s = clock.unix_s();
    let loaded = files(plan).into_iter();
    let loaded = loaded.filter_map(|files| Some((files, tls::load(files).ok()?)));
    let loaded: Vec<_> = loaded.collect();
    let loaded = loaded.iter().map(|(files, one)| (*files, &*one.facts));
    let mut all = of_files(loaded, now_unix_s);
    let wanted = obtained::wanted(plan).certificates;
    let states = acme::stored(&plan.acme.state, &wanted, now_unix_s)?;
    all.extend(states.into_iter().map(|one| of_authority(one, now_unix_s)));
    let internal = obtained::hosts(plan, Management::Internal);
    all.extend(
        internal
            .into_iter()
            .map(|host| of_internal(&host, None, now_unix_s)),
    );
    Ok(Certificates::new(all, now_unix_s))
}

/// Returns the files of the certificates of listeners, sites and the admin address.
fn files(plan: &Plan) -> BTreeSet<&CertificateFiles> {
    let listeners = plan.listeners.iter().filter_map(|one| one.tls.as_ref());
    let listeners = listeners.chain(&plan.admin_tls);
    let listeners = listeners.flat_map(|tls: &ListenerTls| &tls.certificates);
    let sites = plan.sites.iter().filter_map(|site| site.tls.as_ref());
    let sites = sites.flat_map(|tls: &SiteTls| &tls.certificates);
    listeners.chain(sites).collect()
}

fn of_files<'a>(
    loaded: impl Iterator<Item = (&'a CertificateFiles, &'a Facts)>,
    now_unix_s: i64,
) -> Vec<CertificateState> {
    let mut all: Vec<CertificateState> = Vec::new();
    for (files, facts) in loaded {
        let path = Some(files.certificate.display().to_string());
        // A certificate may be configured with several copies of its key.
        if all.last().is_none_or(|last| last.file != path) {
            all.push(CertificateState {
                file: path,
                names: facts.names.clone(),
                ..of_facts(facts, now_unix_s)
            });
        }
    }
    all
}

fn of_internal(host: &str, facts: Option<&Facts>, now_unix_s: i64) -> CertificateState {
    let state = facts.map(|facts| of_facts(facts, now_unix_s));
    CertificateState {
        names: vec![host.to_owned()],
        source: CertificateSource::Internal,
        ..state.unwrap_or_default()
    }
}

fn of_facts(facts: &Facts, now_unix_s: i64) -> CertificateState {
    CertificateState {
        in_use: true,
        issuer: Some(facts.issuer.clone()),
        not_before_unix_s: Some(facts.not_before_unix_s),
        not_after_unix_s: Some(facts.not_after_unix_s),
        left_s: Some(facts.not_after_unix_s.saturating_sub(now_unix_s)),
        warning: config::expiry_of_file(facts, now_unix_s),
        ..CertificateState::default()
    }
}

fn of_authority(state: State, now_unix_s: i64) -> CertificateState {
    let validity = state.not_before_unix_s.zip(state.not_after_unix_s);
    let warning = match validity {
        Some((from, until)) => config::expiry(from, until, now_unix_s),
        None if state.failures > 0 => {
            Some("there is no certificate yet, and the last attempt failed".to_owned())
        }
        None => None,
    };
    CertificateState {
        names: state.names,
        source: CertificateSource::Acme,
        file: None,
        in_use: validity.is_some(),
        issuer: state.issuer,
        not_before_unix_s: state.not_before_unix_s,
        not_after_unix_s: state.not_after_unix_s,
        left_s: state
            .not_after_unix_s
            .map(|until| until.saturating_sub(now_unix_s)),
        // The first attempt has no time.
        renewal_unix_s: Some(state.next_unix_s).filter(|at| *at > 0),
        last_attempt_unix_s: state.last_attempt_unix_s,
        failures: state.failures,
        last_error: state.last_error,
        in_progress: state.is_busy,
        warning,
    }
}

fn refusal(status: u16, why: &str) -> Refusal {
    Refusal {
        status,
        why: format!("{why}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 24 * 3600;

    #[test]
    fn certificates_have_a_warning_from_a_third_of_their_validity_on() {
        let facts = Facts {
            names: vec!["a.example".to_owned()],
            issuer: "CN=R11".to_owned(),
            not_before_unix_s: 0,
            not_after_unix_s: 90 * DAY_S,
            chain: None,
        };
        let state = State {
            issuer: Some("CN=R11".to_owned()),
            not_before_unix_s: Some(0),
            not_after_unix_s: Some(90 * DAY_S),
            ..State::default()
        };
        for (now_unix_s, expected) in [
            (60 * DAY_S - 1, None),
            (60 * DAY_S, Some("this certificate expires in 30 days")),
            (90 * DAY_S, Some("this certificate has expired")),
        ] {
            let of_file = of_facts(&facts, now_unix_s);
            let acme = of_authority(state.clone(), now_unix_s);
            assert_eq!(of_file.warning.as_deref(), expected);
            assert_eq!(acme.warning, of_file.warning);
            assert_eq!(acme.left_s, Some(90 * DAY_S - now_unix_s));
        }
    }

    #[test]
    fn a_certificate_that_can_not_be_obtained_has_a_warning() {
        let mut state = State::default();
        assert_eq!(of_authority(state.clone(), 0).warning, None);
        state.failures = 1;
        let failed = of_authority(state, 0);
        assert!(failed.warning.is_some() && !failed.in_use);
        assert_eq!(failed.renewal_unix_s, None);
    }
}
