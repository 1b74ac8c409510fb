//! The certificates that Sluice obtains from authorities or signs itself, for the sites that want them.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::acme::dns::Helper;
use crate::acme::{self, Challenges, Internal, Manager, Reason, Refused, State, Storage, Wanted};
use crate::config::{Plan, SitePlan};
use crate::handler::{Answer, Handler, Request, Response};
use crate::sys::Clock;
use crate::tls::{self, Managed, Management, SiteTls};

/// The certificates that come and go while the configuration stays, once a configuration wants some.
#[derive(Default)]
pub(super) struct Obtained(Mutex<Option<Running>>);

struct Running {
    storage: Arc<dyn Storage>,
    /// The certificates of authorities, once a configuration wants some.
    by_acme: Option<ByAcme>,
    /// The certificates that Sluice signs itself.
    internal: Internal,
}

struct ByAcme {
    manager: Manager,
    challenges: Arc<Challenges>,
}

impl Obtained {
    /// Obtains the certificates that a plan wants from now on. Those that Sluice signs itself are in use when this
    /// returns. `helper` runs the program that sets the records of DNS-01.
    ///
    /// # Errors
    ///
    /// The folder of the state can't be used, or a certificate can't be made.
    pub(super) fn follow(
        &self,
        plan: &Plan,
        managed: &Arc<Managed>,
        clock: &Clock,
        helper: Option<Arc<Helper>>,
    ) -> anyhow::Result<()> {
        let (wanted, signed) = (wanted(plan), signed(plan));
        let mut running = self.0.lock();
        if running.is_none() && wanted.is_empty() && signed.internal.is_empty() {
            return Ok(());
        }
        let state = plan.acme.state.display();
        let what = || {
            format!(
                "the folder of certificates {state} can't be used (`state` in [tls.acme] names it)"
            )
        };
        let running = match &mut *running {
            Some(running) => running,
            none => {
                let storage = acme::in_folder(&plan.acme.state).with_context(what)?;
                none.insert(Running {
                    storage: storage.into(),
                    by_acme: None,
                    internal: Internal::new(managed.clone(), clock.clone()),
                })
            }
        };
        if !signed.internal.is_empty() {
            let root = running.internal.open_root(&*running.storage);
            root.with_context(what)?;
        }
        let by_acme = running.by_acme(wanted, managed, clock, helper);
        by_acme.with_context(what)?;
        // A stored certificate, which the manager has loaded, makes a self-signed one unnecessary.
        running.internal.want(&signed).map_err(anyhow::Error::msg)
    }

    /// Renews the certificates that Sluice has signed itself, if their time has come.
    pub(super) fn renew_own(&self) {
        if let Some(running) = &*self.0.lock() {
            running.internal.renew();
        }
    }

    /// Returns the state of each certificate.
    pub(super) fn states(&self) -> Vec<State> {
        let running = self.0.lock();
        let by_acme = running
            .as_ref()
            .and_then(|running| running.by_acme.as_ref());
        by_acme.map_or_else(Vec::new, |by_acme| by_acme.manager.states())
    }

    /// Whether there are certificates that come and go, and which have to be watched.
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
        manager(&running)?.renew(name)
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
        manager(&running)?.revoke(name, reason)
    }

    /// Wraps the handler of all requests, so that challenges of authorities are answered before any route is chosen.
    pub(super) fn answering(&self, inner: Rc<dyn Handler>) -> Rc<dyn Handler> {
        let running = self.0.lock();
        let by_acme = running
            .as_ref()
            .and_then(|running| running.by_acme.as_ref());
        match by_acme {
            None => inner,
            Some(by_acme) => Rc::new(Answering {
                challenges: by_acme.challenges.clone(),
                inner,
            }),
        }
    }

    /// Ends the thread. Orders in progress continue at the next start.
    pub(super) fn end(&self) {
        drop(self.0.lock().take());
    }
}

/// Returns the manager of the certificates from authorities.
fn manager(running: &Option<Running>) -> Result<&Manager, Refused> {
    let by_acme = running
        .as_ref()
        .and_then(|running| running.by_acme.as_ref());
    by_acme
        .map(|by_acme| &by_acme.manager)
        .ok_or(Refused::Unknown)
}

impl Running {
    /// Obtains these certificates from authorities from now on.
    fn by_acme(
        &mut self,
        wanted: Wanted,
        managed: &Arc<Managed>,
        clock: &Clock,
        helper: Option<Arc<Helper>>,
    ) -> anyhow::Result<()> {
        if let Some(by_acme) = &self.by_acme {
            return Ok(by_acme.manager.want(wanted)?);
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let challenges = Challenges::new(managed.clone(), helper);
        let client = directory_tls(&wanted.options)?;
        let manager = Manager::start(
            wanted,
            (managed.clone(), challenges.clone()),
            self.storage.clone(),
            client.config().clone(),
            clock.clone(),
        )?;
        self.by_acme = Some(ByAcme {
            manager,
            challenges,
        });
        Ok(())
    }
}

/// Returns the certificates that a plan wants: one for each host of the sites with `tls = "auto"`, or one for all of a
/// site's hosts.
pub(super) fn wanted(plan: &Plan) -> Wanted {
    let mut certificates: Vec<Vec<String>> = Vec::new();
    for (site, tls) in managed(plan, Management::Acme) {
        match tls.is_shared {
            true => certificates.push(site.hosts.clone()),
            false => certificates.extend(site.hosts.iter().map(|host| vec![host.clone()])),
        }
    }
    Wanted {
        options: plan.acme.clone(),
        has_on_demand: managed(plan, Management::OnDemand).next().is_some(),
        certificates,
    }
}

/// Returns the hosts for which Sluice signs certificates itself: those of the sites with `tls = "internal"`, and with
/// `self_signed` those of the sites with `tls = "auto"`.
fn signed(plan: &Plan) -> acme::Hosts {
    acme::Hosts {
        internal: hosts(plan, Management::Internal),
        self_signed: match plan.acme.self_signed {
            true => hosts(plan, Management::Acme),
            false => BTreeSet::new(),
        },
    }
}

/// Returns the hosts of the sites whose certificates come from there.
pub(super) fn hosts(plan: &Plan, from: Management) -> BTreeSet<String> {
    let sites = managed(plan, from);
    sites.flat_map(|(site, _)| site.hosts.clone()).collect()
}

/// Returns the sites whose certificates come from there, with their TLS.
fn managed(plan: &Plan, from: Management) -> impl Iterator<Item = (&SitePlan, &SiteTls)> {
    let sites = plan.sites.iter();
    sites.filter_map(move |site| {
        let tls = site.tls.as_ref();
        tls.filter(|tls| tls.managed == Some(from))
            .map(|tls| (site, tls))
    })
}

/// Returns the TLS of connections to directories.
///
/// # Errors
///
/// A file of authorities can't be used.
pub fn directory_tls(options: &acme::Options) -> anyhow::Result<tls::Client> {
    let client = tls::Client::open(&options.client());
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
