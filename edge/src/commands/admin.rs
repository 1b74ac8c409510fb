//! The options by which a command finds the running Sluice, and its requests to the admin address.

use std::path::PathBuf;

use clap::Args;
use sluice_lab::client::{BodyEnd, ClientTls, Reply};

use super::admin_exchange::{Failure, Order, exchange};
use super::admin_url::AdminUrl;
use super::output::{failed, harmless, misused};
use super::source::{self, AdminAddress};
use crate::admin::ADMIN_HEADER;
use crate::config;
use crate::tls::{self, CertificateFiles, ConnectError, OpenError, Trust};

/// Options that say how a command finds the running Sluice.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Admin address of the running Sluice, as in 127.0.0.1:9901, https://HOST:9901 or unix:/run/sluice/admin.sock
    /// [default: SLUICE_ADMIN, or that of the configuration file, or 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = admin_url)]
    admin: Option<AdminUrl>,
    /// Configuration file of the running Sluice, from which the admin address is read [default:
    /// SLUICE_CONFIG, or ./sluice.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the token for the admin address: one token, or lines with a name and a token, of which the first counts
    /// [default: the token in SLUICE_ADMIN_TOKEN, or that of the file that the configuration file names]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the authority that signed the certificate of the admin address, or that certificate itself, in PEM
    /// [default: the certificate in the configuration file, or with --admin the authorities that this system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate for the admin address, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the client certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

fn admin_url(text: &str) -> Result<AdminUrl, String> {
    AdminUrl::parse(text).ok_or_else(|| {
        format!(
            "write an IP address and a port, as in {}, or http://HOST:PORT, https://HOST:PORT or unix:PATH",
            config::ADMIN
        )
    })
}

impl AdminArgs {
    /// Returns the configuration file of the running Sluice, if there is one. `None` with an admin address, which may be
    /// that of another machine.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        let is_by_variable = self.config.is_none() && source::has_admin_variable();
        match self.admin.is_some() || is_by_variable {
            true => None,
            false => source::config_file(self.config.as_deref()),
        }
    }

    /// Returns the admin address of the running Sluice as text.
    #[cfg(feature = "top")]
    pub(super) fn address(&self) -> anyhow::Result<String> {
        let found = source::admin(self.admin.as_ref(), self.config.as_deref())?;
        Ok(found.url.to_string())
    }

    /// Sends a request to the admin address and returns the reply with any status.
    pub(super) fn request(&self, method: &str, target: &str) -> anyhow::Result<Reply> {
        self.send(method, target, b"")
    }

    /// Sends a request with a body to the admin address and returns the reply with any status.
    pub(super) fn send(&self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let found = source::admin(self.admin.as_ref(), self.config.as_deref())?;
        let AdminAddress { url, source, .. } = &found;
        let help = || {
            format!(
                "this is {source}; if Sluice has another one, for example because the file was changed \
                 since its start, give that: --admin ADDRESS, or SLUICE_ADMIN"
            )
        };
        let tls = self.tls(&found)?;
        let token = source::token(self.token_file.as_deref(), &found.tokens)?;
        let order = Order {
            method,
            target,
            body,
            token: token.as_deref(),
        };
        let reply = exchange(url, tls, &order).map_err(|error| match error {
            Failure::ClearText => failed(
                format!("{url} has no TLS, so everyone on the way could read the token"),
                "write --admin https://HOST:PORT, or leave out the token",
            ),
            Failure::Tls(reason) => failed(
                format!("TLS with {url} failed: {reason}"),
                advice(reason, url).unwrap_or_else(help),
            ),
            Failure::Other(why) => failed(format!("no Sluice answers at {url}: {why}"), help()),
        })?;
        if reply.header(ADMIN_HEADER).is_none() {
            let title = format!("{url} answered {} and is no admin address", reply.status);
            return Err(failed(title, help()));
        }
        if !url.is_tls() && reply.text().starts_with(tls::Refusal::NotTls.name()) {
            let help = format!("write --admin https://{}, with --ca FILE", url.authority());
            return Err(failed(format!("{url} expects TLS"), help));
        }
        if matches!(reply.status, 401 | 429) {
            return Err(denied(&reply, token.is_some(), url));
        }
        // Without the end that the framing gives, the reply may be truncated.
        match reply.end {
            BodyEnd::Complete => Ok(reply),
            _ => Err(failed(
                format!("the answer of {url} is incomplete"),
                "try it again",
            )),
        }
    }

    /// Returns the TLS for an admin address, if it has TLS.
    fn tls(&self, found: &AdminAddress) -> anyhow::Result<Option<ClientTls>> {
        let url = &found.url;
        let AdminUrl::Host {
            is_tls: true, host, ..
        } = url
        else {
            let given = [("--ca", &self.ca), ("--certificate", &self.certificate)];
            let given = given
                .iter()
                .find_map(|(name, file)| Some((name, file.as_ref()?)));
            return given.map_or(Ok(None), |(name, file)| {
                Err(misused(
                    harmless(&format!("{name} {}", file.display())),
                    format!("the admin address {url} has no TLS"),
                    "leave this out, or write --admin https://HOST:PORT",
                ))
            });
        };
        let trust = match (&self.ca, &found.certificates) {
            (Some(file), _) => Trust::Authorities(vec![file.clone()]),
            (None, Some(certificates)) => Trust::Exactly(certificates.clone()),
            (None, None) => Trust::System,
        };
        let pair = self.certificate.clone().zip(self.key.clone());
        let options = tls::ClientOptions {
            trust,
            certificate: pair.map(|(certificate, key)| CertificateFiles { certificate, key }),
            protocols: vec!["http/1.1".to_owned()],
            ..tls::ClientOptions::default()
        };
        let client = tls::Client::open(&options).map_err(|error| match error {
            OpenError::Load(error) => failed(harmless(&error.to_string()), error.help),
            OpenError::Settings(why) => failed(harmless(&why), "check the options about TLS"),
        })?;
        Ok(Some(ClientTls {
            config: client.config().clone(),
            name: host.clone(),
        }))
    }
}

/// Returns the error for a request whose token is missing, wrong or refused.
fn denied(reply: &Reply, has_token: bool, url: &AdminUrl) -> anyhow::Error {
    let (title, help) = match (reply.status, has_token) {
        (401, false) => (
            format!("{url} needs a token"),
            "give it: --token-file FILE, or SLUICE_ADMIN_TOKEN",
        ),
        (401, true) => (
            format!("{url} does not accept the token"),
            "give another one with --token-file FILE or SLUICE_ADMIN_TOKEN; `sluice reload` or SIGHUP makes Sluice read changed files",
        ),
        _ => (
            format!("{url} refuses tokens for now, since there were too many wrong ones"),
            "wait a few seconds",
        ),
    };
    failed(title, help)
}

/// Returns advice for a failure of TLS, if there is special advice.
fn advice(reason: ConnectError, url: &AdminUrl) -> Option<String> {
    let advice = match reason {
        ConnectError::NotTrusted => {
            "give the certificate of its authority, or its certificate itself: --ca FILE"
        }
        ConnectError::OtherCertificate => {
            "the running Sluice has not read the file since it changed, or another server answers; \
             to trust an authority instead: --ca FILE"
        }
        ConnectError::Expired | ConnectError::NotValidYet => {
            "renew it (a running Sluice reads changed files by itself), and compare the clocks"
        }
        ConnectError::WrongName => {
            "use a name or address of its certificate: --admin https://HOST:PORT"
        }
        ConnectError::ClientCertificate => {
            "give a client certificate that it accepts: --certificate FILE --key FILE"
        }
        ConnectError::NotTls => {
            return Some(format!(
                "if it has no TLS, write --admin http://{}",
                url.authority()
            ));
        }
        _ => return None,
    };
    Some(advice.to_owned())
}
