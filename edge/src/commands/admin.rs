//! The options by which a command finds the running Sluice, and its requests to the admin address.

use std::path::PathBuf;

use clap::Args;
use sluice_lab::client::{self, BodyEnd, ClientOptions, ClientTls, ReadError, Reply};

use super::admin_url::AdminUrl;
use super::output::{failed, harmless, misused};
use super::source::{self, AdminAddress};
use crate::admin::ADMIN_HEADER;
use crate::config;
use crate::tls::{self, CertificateFiles, ConnectError, OpenError, Trust};

/// Options that say how a command finds the running Sluice.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Admin address of the running Sluice, as in 127.0.0.1:9901 or https://HOST:9901 [default: SLUICE_ADMIN, or that of
    /// the configuration file, or 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = admin_url)]
    admin: Option<AdminUrl>,
    /// Configuration file of the running Sluice, from which the admin address is read [default:
    /// SLUICE_CONFIG, or ./sluice.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
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
            "write an IP address and a port, as in {}, or http://HOST:PORT or https://HOST:PORT",
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
        let reply = exchange(url, tls, method, target, body).map_err(|error| match error {
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
        if !url.is_tls && reply.text().starts_with(tls::Refusal::NotTls.name()) {
            let help = format!("write --admin https://{}, with --ca FILE", url.authority());
            return Err(failed(format!("{url} expects TLS"), help));
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
        if !url.is_tls {
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
        }
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
            name: url.host.clone(),
        }))
    }
}

/// The reason why there is no reply.
enum Failure {
    Tls(ConnectError),
    Other(String),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        let of_tls = match &error {
            ReadError::Io(error) => ConnectError::of_io(error),
            _ => None,
        };
        of_tls.map_or_else(|| Failure::Other(error.to_string()), Failure::Tls)
    }
}

/// Sends a request to the first address of the host that accepts a connection.
fn exchange(
    url: &AdminUrl,
    tls: Option<ClientTls>,
    method: &str,
    target: &str,
    body: &[u8],
) -> Result<Reply, Failure> {
    let options = ClientOptions {
        tls,
        ..ClientOptions::default()
    };
    let addresses = url.addresses().map_err(ReadError::from)?;
    let mut connected = Err(ReadError::Timeout);
    for address in addresses {
        connected = client::Client::connect_with(address, &options).map_err(ReadError::from);
        if connected.is_ok() {
            break;
        }
    }
    let mut client = connected?;
    client.handshake().map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Failure::Tls(ConnectError::Closed),
        _ => ReadError::from(error).into(),
    })?;
    let authority = url.authority();
    let headers = [
        ("host", authority.as_str()),
        ("x-sluice", "1"),
        ("connection", "close"),
    ];
    Ok(client.request(method, target, &headers, body)?)
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
