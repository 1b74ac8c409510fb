//! The TLS of all listeners and of the admin address in one snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;

use crate::config::{self, Plan};
use crate::downstream::Protocol;
use crate::sys::Clock;
use crate::sys::root::Stamp;
use crate::tls::{
    LoadError, LoadResult, LoadedFiles, Loader, Managed, Options, Server, Site, TicketKeys,
    UnknownName,
};

/// The stamp of each file that TLS needs. `None`: the file can't be examined.
pub(super) type Stamps = Vec<(PathBuf, Option<Stamp>)>;

/// The TLS of all listeners and of the admin address.
pub(super) struct Encryption {
    /// The certificates that come and go while the configuration stays.
    pub(super) managed: Arc<Managed>,
    /// The keys of session tickets, unless they are off.
    tickets: Option<Arc<TicketKeys>>,
    /// The TLS of each listener, in the order of the plan.
    pub(super) servers: Servers,
    /// The TLS of the admin address.
    pub(super) admin: Option<Arc<Server>>,
    /// The certificates and authorities in use.
    pub(super) files: LoadedFiles,
    /// The errors of changed files whose earlier contents stay in use.
    pub(super) refused: Vec<LoadError>,
    /// Whether the contents of a file differ from those before this renewal.
    pub(super) has_changed: bool,
    /// The stamps of the files, taken before the files were read.
    pub(super) stamps: Stamps,
}

impl Encryption {
    /// Reads the files of certificates, keys and secrets. Random keys of tickets are taken over, so that tickets
    /// outlive a reload.
    pub(super) fn open(
        plan: &Plan,
        before: Option<&Encryption>,
        clock: &Clock,
    ) -> anyhow::Result<Encryption> {
        let stamps = stamps(plan);
        let tickets = TicketKeys::open(&plan.tls.tickets, clock.clone())?;
        let managed = before.map_or_else(Arc::default, |before| before.managed.clone());
        let tickets = kept(tickets, before);
        Encryption::load(plan, managed, tickets, Loader::default(), stamps)
    }

    /// Reads the files again for the same plan. Files that can't be used don't keep others from coming into use: their
    /// earlier contents stay in use.
    pub(super) fn renew(
        plan: &Plan,
        before: &Encryption,
        clock: &Clock,
    ) -> anyhow::Result<Encryption> {
        let stamps = stamps(plan);
        let opened = TicketKeys::open(&plan.tls.tickets, clock.clone());
        let (tickets, refused) = match opened {
            Ok(tickets) => (kept(tickets, Some(before)), None),
            Err(error) => (before.tickets.clone(), Some(error)),
        };
        let loader = Loader::renewing(&before.files);
        let managed = before.managed.clone();
        let mut next = Encryption::load(plan, managed, tickets, loader, stamps)?;
        next.refused.extend(refused);
        let mut pairs = next.tickets.iter().zip(&before.tickets);
        next.has_changed |= !pairs.all(|(new, old)| Arc::ptr_eq(new, old));
        Ok(next)
    }

    fn load(
        plan: &Plan,
        managed: Arc<Managed>,
        tickets: Option<Arc<TicketKeys>>,
        mut loader: Loader<'_>,
        stamps: Stamps,
    ) -> anyhow::Result<Encryption> {
        let servers = servers(plan, tickets.as_ref(), &managed, &mut loader)?;
        let admin = admin(plan, &managed, &mut loader)?;
        let LoadResult {
            files,
            refused,
            has_changed,
        } = loader.finish();
        Ok(Encryption {
            managed,
            tickets,
            servers,
            admin,
            files,
            refused,
            has_changed,
            stamps,
        })
    }
}

/// Returns the keys of tickets that were in use before, if the new ones have the same secrets, else the new ones.
fn kept(new: Option<TicketKeys>, before: Option<&Encryption>) -> Option<Arc<TicketKeys>> {
    let new = new?;
    let old = before.and_then(|before| before.tickets.clone());
    let old = old.filter(|old| old.is_same(&new));
    Some(old.unwrap_or_else(|| Arc::new(new)))
}

/// The TLS of each listener that has TLS.
type Servers = Arc<[Option<Arc<Server>>]>;

fn servers(
    plan: &Plan,
    tickets: Option<&Arc<TicketKeys>>,
    managed: &Arc<Managed>,
    loader: &mut Loader<'_>,
) -> anyhow::Result<Servers> {
    let sites: Vec<Site<'_>> = plan
        .sites
        .iter()
        .map(|site| Site {
            hosts: &site.hosts,
            tls: site.tls.as_ref(),
        })
        .collect();
    let servers = plan.listeners.iter().map(|listener| {
        let Some(tls) = &listener.tls else {
            return Ok(None);
        };
        let protocols: Vec<_> = listener.protocols.iter().map(Protocol::alpn).collect();
        let parts = (tickets, managed);
        let server = Server::open(&plan.tls, tls, &sites, &protocols, parts, loader)
            .with_context(|| format!("TLS on {}", listener.address))?;
        Ok(Some(Arc::new(server)))
    });
    servers.collect()
}

/// Opens the TLS of the admin address, if it has any. Its connections are few, so it makes no tickets.
fn admin(
    plan: &Plan,
    managed: &Arc<Managed>,
    loader: &mut Loader<'_>,
) -> anyhow::Result<Option<Arc<Server>>> {
    let Some(tls) = &plan.admin_tls else {
        return Ok(None);
    };
    let options = Options {
        // Clients may use any name that the guard against DNS rebinding permits.
        unknown_name: UnknownName::Default,
        ..plan.tls.clone()
    };
    let server = Server::open(&options, tls, &[], &["http/1.1"], (None, managed), loader);
    let server = server.context("TLS on the admin address")?;
    Ok(Some(Arc::new(server)))
}

/// Returns the current stamps of the files that TLS needs.
pub(super) fn stamps(plan: &Plan) -> Stamps {
    let files = config::tls_files(plan).into_iter();
    files
        .map(|path| (path.to_owned(), Stamp::at(path).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use sluice_lab::certificates::Authority;

    use super::*;

    #[test]
    fn authorities_and_secrets_that_can_not_be_used_keep_their_earlier_contents()
    -> std::io::Result<()> {
        let (folder, clock) = (tempfile::tempdir()?, Clock::system());
        let authority = Authority::new("Test authority");
        let pair = authority.server(&["a.example.com"]);
        let files = pair.write(folder.path(), "server")?;
        let [ca, secret] = ["ca", "secret"].map(|name| folder.path().join(name));
        std::fs::write(&ca, authority.pem())?;
        std::fs::write(&secret, "0123456789abcdef".repeat(2))?;
        let text = format!(
            "[tls]\ntickets = {secret:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ {}, client_ca = {ca:?} }}\n[[route]]\nrespond = \"a\"\n",
            files.keys()
        );
        let plan = config::parse("test.toml", &text).expect("a plan").plan;
        let first = Encryption::open(&plan, None, &clock).expect("files");
        let same = Encryption::renew(&plan, &first, &clock).expect("files");
        assert!(!same.has_changed && same.refused.is_empty());
        std::fs::write(&ca, "none")?;
        std::fs::write(&secret, "short")?;
        authority
            .server(&["a.example.com"])
            .write(folder.path(), "server")?;
        let next = Encryption::renew(&plan, &same, &clock).expect("files");
        assert!(next.has_changed, "the certificate is new");
        let refused: Vec<_> = next.refused.iter().map(|error| &error.file).collect();
        assert_eq!(refused, [&ca, &secret]);
        // The earlier contents are kept again.
        let third = Encryption::renew(&plan, &next, &clock).expect("files");
        assert!(!third.has_changed);
        assert_eq!(third.refused.len(), 2);
        std::fs::write(&secret, "fedcba9876543210".repeat(2))?;
        let fourth = Encryption::renew(&plan, &third, &clock).expect("files");
        assert!(fourth.has_changed, "the secret is new");
        assert_eq!(fourth.refused.len(), 1);
        Ok(())
    }
}
