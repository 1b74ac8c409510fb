//! The certificates that Sluice obtains from authorities, for the sites that want them.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::edge::Edge;
use crate::acme::{self, Challenges, Manager, Reason, Refused, State, Wanted};
use crate::config::Plan;
use crate::handler::{Answer, Handler, Request, Response};
use crate::sys::Clock;
use crate::tls::{self, ClientOptions, Managed, Management, Trust};

/// The certificates that are obtained, once a configuration wants some.
#[derive(Default)]
pub(super) struct Obtained(Mutex<Option<Running>>);

struct Running {
    manager: Manager,
    challenges: Arc<Challenges>,
}

impl Obtained {
    /// Obtains the certificates that a plan wants from now on.
    ///
    /// # Errors
    ///
    /// The folder of the state can't be used.
    pub(super) fn follow(
        &self,
        plan: &Plan,
        managed: &Arc<Managed>,
        clock: &Clock,
    ) -> anyhow::Result<()> {
        let wanted = wanted(plan);
        let state = plan.acme.state.display().to_string();
        let what = || format!("the state of certificates in {state} can't be used");
        let mut running = self.0.lock();
        match &*running {
            Some(running) => running.manager.want(wanted).with_context(what),
            None if wanted.certificates.is_empty() => Ok(()),
            None => {
                let storage = acme::in_folder(&plan.acme.state).with_context(what)?;
                let challenges = Challenges::new(managed.clone());
                let client = directory_tls(&plan.acme)?;
                let manager = Manager::start(
                    wanted,
                    managed.clone(),
                    challenges.clone(),
                    storage.into(),
                    client.config().clone(),
                    clock.clone(),
                );
                let manager = manager.with_context(what)?;
                *running = Some(Running {
                    manager,
                    challenges,
                });
                Ok(())
            }
        }
    }

    /// Returns the state of each certificate.
    pub(super) fn states(&self) -> Vec<State> {
        let running = self.0.lock();
        running
            .as_ref()
            .map_or_else(Vec::new, |running| running.manager.states())
    }

    /// Whether certificates are obtained.
    pub(super) fn is_running(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Has the certificate of a name obtained now.
    ///
    /// # Errors
    ///
    /// There is no such certificate, or an attempt is in progress.
    pub(super) fn renew(&self, name: &str) -> Result<(), Refused> {
        let running = self.0.lock();
        let running = running.as_ref().ok_or(Refused::Unknown)?;
        running.manager.renew(name)
    }

    /// Has the certificate of a name revoked and replaced. Returns the receiver of the result.
    ///
    /// # Errors
    ///
    /// There is no such certificate, or an attempt is in progress.
    pub(super) fn revoke(
        &self,
        name: &str,
        reason: Reason,
    ) -> Result<oneshot::Receiver<Result<(), String>>, Refused> {
        let running = self.0.lock();
        let running = running.as_ref().ok_or(Refused::Unknown)?;
        running.manager.revoke(name, reason)
    }

    /// Wraps the handler of all requests, so that challenges of authorities are answered before any route is chosen.
    pub(super) fn answering(&self, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        match &*self.0.lock() {
            None => inner,
            Some(running) => Rc::new(Answering {
                challenges: running.challenges.clone(),
                inner,
            }),
        }
    }

    /// Ends the thread. Orders in progress continue at the next start.
    pub(super) fn end(&self) {
        drop(self.0.lock().take());
    }
}

impl Edge {
    /// Obtains the certificates that the snapshot in use wants.
    pub(super) fn obtain_certificates(&self) -> anyhow::Result<()> {
        let snapshot = self.snapshots.borrow().clone();
        let managed = &snapshot.encryption.managed;
        self.obtained.follow(&snapshot.plan, managed, &self.clock)
    }
}

/// Returns the certificates that a plan wants: one for each host of the sites with `tls = "auto"`.
pub(super) fn wanted(plan: &Plan) -> Wanted {
    let sites = plan.sites.iter().filter(|site| {
        let managed = site.tls.as_ref().and_then(|tls| tls.managed);
        managed == Some(Management::Acme)
    });
    let hosts: BTreeSet<&String> = sites.flat_map(|site| &site.hosts).collect();
    Wanted {
        options: plan.acme.clone(),
        certificates: hosts.into_iter().map(|host| vec![host.clone()]).collect(),
    }
}

/// Returns the TLS of connections to directories.
///
/// # Errors
///
/// A file of authorities can't be used.
pub fn directory_tls(options: &acme::Options) -> anyhow::Result<tls::Client> {
    let client = tls::Client::open(&ClientOptions {
        trust: match options.trusted.is_empty() {
            true => Trust::System,
            false => Trust::Authorities(options.trusted.clone()),
        },
        protocols: vec!["http/1.1".to_owned()],
        ..ClientOptions::default()
    });
    client.context("TLS with the directories of ACME can't be set up")
}

/// Answers the challenges of authorities (HTTP-01, RFC 8555 8.3).
struct Answering {
    challenges: Arc<Challenges>,
    inner: Rc<dyn Handler>,
}

impl Handler for Answering {
    fn handle(&self, request: Request) -> Answer {
        match self.challenges.answer(request.head.path()) {
            Some(text) => Answer::Ready(Ok(Response::text(200, text))),
            None => self.inner.handle(request),
        }
    }
}
