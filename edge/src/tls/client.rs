//! TLS as a client of servers.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};
use tokio::time::timeout;

use super::connect_error::ConnectError;
use super::loading;
use super::options::{CipherSuite, ClientOptions, Group};
use super::server::OpenError;
use super::stream::Stream;
use super::wire::Wire;
use super::{parameters, server_certificates};

/// Most names of servers whose sessions are kept. rustls keeps at most eight tickets for each.
const SESSIONS_MAX: usize = 256;

/// The TLS of a client. All connections share its settings, and resume one another's sessions.
///
/// The commands of `sluice` use the settings for their connections to the admin address. Connections to origins use
/// `connect`.
pub struct Client {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Client {
    /// Loads the certificates that the options name.
    ///
    /// # Errors
    ///
    /// A certificate can't be used, or `server_name` is no name.
    pub fn open(options: &ClientOptions) -> Result<Client, OpenError> {
        let settings = |why: &dyn std::fmt::Display| OpenError::Settings(why.to_string());
        let provider = parameters::provider(CipherSuite::ALL, Group::ALL);
        let verifier = server_certificates::load(&options.trust, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(parameters::versions(options.min_version))
            .map_err(|why| settings(&format!("TLS can't be set up: {why}")))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let certificate = loading::load(files)?;
                let resolver = SingleCertAndKey::from(certificate.key);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
        };
        let protocols = options.protocols.iter();
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        let server_name = options.server_name.as_deref().map(|name| {
            let parsed = ServerName::try_from(name.to_owned());
            parsed.map_err(|_| settings(&format!("`{name}` is not a name of a server")))
        });
        Ok(Client {
            config: Arc::new(config),
            server_name: server_name.transpose()?,
        })
    }

    /// Returns the settings of all connections.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Completes a handshake with the server at the other end of `wire`. `host` is the host name or IP address for which
    /// the server's certificate has to be valid, unless the options name another one. `protocols` are those to offer (ALPN),
    /// in place of the options' ones.
    ///
    /// # Errors
    ///
    /// The handshake has failed, or is not complete after the time `within`.
    pub async fn connect<W: Wire>(
        &self,
        wire: W,
        host: &str,
        within: Duration,
        protocols: Option<&[&str]>,
    ) -> Result<Stream<W>, ConnectError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::WrongName)?,
        };
        let config = self.config.clone();
        let session = match protocols {
            None => ClientConnection::new(config, name),
            Some(names) => {
                let names = names.iter().map(|name| name.as_bytes().to_vec());
                ClientConnection::new_with_alpn(config, name, names.collect())
            }
        };
        let session = session.map_err(|error| ConnectError::of(&error))?;
        let mut stream = Stream::new(wire, session.into());
        let handshake = poll_fn(|cx| stream.poll_handshake(cx));
        match timeout(within, handshake).await {
            Ok(result) => result?,
            Err(_) => return Err(ConnectError::Timeout),
        }
        Ok(stream)
    }
}
