//! The challenge DNS-01 (RFC 8555 8.4): a TXT record proves the control of a name, and is the only proof for a wildcard. A
//! program of the operator sets the records (`program`), or dynamic updates do (`update`).

mod exchange;
mod options;
mod program;
mod propagation;
mod servers;
mod update;

use std::net::SocketAddr;

use hickory_proto::rr::Name;

pub use options::{Algorithm, DnsOptions, ProgramOptions, Setter, UpdateOptions};
use program::Action;
pub use program::{COMMAND, Helper, serve as serve_program};
use servers::Resolver;

/// The records of one order's challenges. `remove_all` must be called at the end.
pub struct Records<'a> {
    options: Option<&'a DnsOptions>,
    helper: Option<&'a Helper>,
    /// The records to remove.
    added: Vec<Added>,
}

/// A record.
#[derive(Debug)]
struct Added {
    /// The name without an alias, for the program.
    name: String,
    /// The name of the record itself.
    target: Name,
    value: String,
}

impl<'a> Records<'a> {
    /// Creates the records of an order: none yet. `helper` runs the program, if `options` name one.
    pub fn new(options: Option<&'a DnsOptions>, helper: Option<&'a Helper>) -> Records<'a> {
        Records {
            options,
            helper,
            added: Vec::new(),
        }
    }

    /// Adds the record that proves the control of a name, which may be a wildcard, and waits until it is visible.
    ///
    /// # Errors
    ///
    /// The record could not be added, or did not become visible in time.
    pub async fn publish(&mut self, name: &str, value: &str) -> Result<(), String> {
        let options = self.options.ok_or("`dns` in [tls.acme] is missing")?;
        let name = record_name(name);
        let full = update::dns_name(&name)?;
        let resolver = Resolver::new(&options.name_servers);
        let target = match &resolver {
            Ok(resolver) => resolver.target(&full).await,
            Err(_) => full,
        };
        let record = Added {
            name,
            target,
            value: value.to_owned(),
        };
        let added = self.change(options, Action::Add, &record).await;
        let target = record.target.clone();
        // A failed program, or a lost response to an update, may have added the record as well.
        self.added.push(record);
        added?;
        let Some(within) = options.propagation else {
            return Ok(());
        };
        let servers = watched(options, &resolver, &target).await?;
        propagation::wait(&servers, &target, value, within).await
    }

    /// Removes all records. A failure is logged, since it concerns no certificate.
    pub async fn remove_all(&mut self) {
        let Some(options) = self.options else { return };
        for record in std::mem::take(&mut self.added) {
            if let Err(cause) = self.change(options, Action::Remove, &record).await {
                let name = record.name;
                tracing::warn!(
                    name,
                    cause,
                    "the record of a challenge could not be removed"
                );
            }
        }
    }

    async fn change(
        &self,
        options: &DnsOptions,
        action: Action,
        record: &Added,
    ) -> Result<(), String> {
        match &options.setter {
            Setter::Update(options) => {
                update::update(options, action, &record.target, &record.value).await
            }
            Setter::Program(_) => {
                let helper = self
                    .helper
                    .ok_or("the program of `dns` needs a restart of Sluice")?;
                helper.ask(action, &record.name, &record.value).await
            }
        }
    }
}

/// Returns the name servers that are asked whether they have a record.
async fn watched(
    options: &DnsOptions,
    resolver: &Result<Resolver, String>,
    target: &Name,
) -> Result<Vec<SocketAddr>, String> {
    if !options.name_servers.is_empty() {
        return Ok(options.name_servers.clone());
    }
    let found = match resolver {
        Ok(resolver) => resolver.of_zone(target).await,
        Err(why) => Err(why.clone()),
    };
    match (found, &options.setter) {
        (Ok(servers), _) => Ok(servers),
        // The zone may be known only to this server and its clients.
        (Err(_), Setter::Update(options)) => Ok(vec![options.server]),
        (Err(why), Setter::Program(_)) => Err(format!(
            "the name servers of {target} can't be found ({why}): name them as `name_servers` of `dns`"
        )),
    }
}

/// Whether this text is a name in DNS.
pub fn is_dns_name(text: &str) -> bool {
    update::dns_name(text).is_ok_and(|name| !name.is_root())
}

/// Returns the name of the record that proves the control of a name. A wildcard has the same one as the name below it.
fn record_name(name: &str) -> String {
    let name = name.strip_prefix("*.").unwrap_or(name);
    format!("_acme-challenge.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_wildcard_have_one_record_name() {
        assert_eq!(record_name("example.com"), "_acme-challenge.example.com");
        assert_eq!(record_name("*.example.com"), "_acme-challenge.example.com");
    }
}
