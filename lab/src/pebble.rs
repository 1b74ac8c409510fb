//! Pebble, the test authority of Let's Encrypt for ACME, with names that all lead to loopback.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificates::{Issued, PairFiles};
use crate::client::{Client, ClientOptions, ClientTls};
use crate::dns::NameServer;
use crate::process::{Launch, Process, free_port};

/// Longest wait until pebble listens.
const START_WITHIN: Duration = Duration::from_secs(20);

/// How pebble behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port of each name at which it reads the answers to HTTP-01.
    pub http_port: u16,
    /// Port of each name at which it verifies names by TLS-ALPN-01.
    pub tls_port: u16,
    /// Percentage of requests that it refuses because of their nonce.
    pub bad_nonces: u8,
    /// Most seconds for which it waits before it looks at an answer. 0: it does not wait.
    pub sleep_s: u8,
    /// Seconds for which its certificates are valid.
    pub validity_s: u64,
    /// Name server that it asks, in place of the one with names that lead to loopback.
    pub name_server: Option<SocketAddr>,
    /// Whether it has the profile `shortlived`, too. Orders without a profile then get any of the two.
    pub is_short_lived: bool,
    /// Names for which it issues no certificates.
    pub refused: Vec<String>,
    /// Id and key in base64url of the external account that an account must be bound to.
    pub external_account: Option<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            http_port: 80,
            tls_port: 443,
            bad_nonces: 0,
            sleep_s: 0,
            validity_s: 90 * 24 * 3600,
            name_server: None,
            is_short_lived: false,
            refused: Vec::new(),
            external_account: None,
        }
    }
}

/// A running pebble, with a name server.
pub struct Pebble {
    process: Process,
    directory: SocketAddr,
    management: SocketAddr,
    issued: Issued,
    names: NameServer,
}

impl Pebble {
    /// Starts pebble. `program` is its executable, `folder` is for its configuration.
    ///
    /// # Errors
    ///
    /// Pebble can't be started.
    pub fn start(program: &Path, folder: &Path, options: &Options) -> anyhow::Result<Pebble> {
        let issued = Issued::new(
            "Authority of pebble's own certificate",
            &["localhost", "127.0.0.1"],
        )?;
        let names = NameServer::start()?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (directory, management) = (loopback(free_port()?), loopback(free_port()?));
        let text = configuration(options, directory, management, &issued.files);
        let file = folder.join("pebble.json");
        fs::write(&file, text.to_string())?;
        let dns = options.name_server.unwrap_or(names.addr());
        let [file, dns] = [file.display().to_string(), dns.to_string()];
        let sleep = match options.sleep_s {
            0 => "PEBBLE_VA_NOSLEEP=1".to_owned(),
            seconds => format!("PEBBLE_VA_SLEEPTIME={seconds}"),
        };
        let program = program.display().to_string();
        let launch = Launch::new("pebble", "env", folder).args([
            sleep,
            format!("PEBBLE_WFE_NONCEREJECT={}", options.bad_nonces),
            // Each order proves the control of its names again.
            "PEBBLE_AUTHZREUSE=0".to_owned(),
            program,
            "-config".to_owned(),
            file,
            "-dnsserver".to_owned(),
            dns,
        ]);
        let mut process = launch.start()?;
        process.wait_listening(directory, START_WITHIN)?;
        process.wait_listening(management, START_WITHIN)?;
        Ok(Pebble {
            process,
            directory,
            management,
            issued,
            names,
        })
    }

    /// Makes these names lead to loopback.
    pub fn serve_names(&self, names: &[&str]) {
        for name in names {
            self.names.set(name, &[IpAddr::from(Ipv4Addr::LOCALHOST)]);
        }
    }

    /// Returns the address of the directory.
    pub fn address(&self) -> SocketAddr {
        self.directory
    }

    /// Returns the URL of the directory.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.directory)
    }

    /// Returns the certificate of the authority that signs what pebble issues, in DER.
    ///
    /// # Errors
    ///
    /// Pebble does not answer.
    pub fn authority(&self) -> anyhow::Result<Vec<u8>> {
        let options = ClientOptions {
            tls: Some(ClientTls::trusting(
                &self.issued.authority.der(),
                "localhost",
            )),
            ..ClientOptions::default()
        };
        let mut client = Client::connect_with(self.management, &options)?;
        let reply = client.get("/roots/0", &[("Host", "localhost")])?;
        Ok(CertificateDer::from_pem_slice(&reply.body)?.to_vec())
    }

    /// Stops pebble, so that requests wait until `resume`.
    ///
    /// # Errors
    ///
    /// Pebble has ended.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets pebble continue.
    ///
    /// # Errors
    ///
    /// Pebble has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Returns the file of the authority that has signed pebble's own certificate.
    pub fn trust(&self) -> PathBuf {
        self.issued.trust.clone()
    }

    /// Returns the name server.
    pub fn names(&self) -> &NameServer {
        &self.names
    }

    /// Returns what pebble has logged.
    pub fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }

    /// Returns the number of orders that pebble has ended because a challenge failed.
    pub fn invalid_orders(&self) -> usize {
        self.log().matches("set INVALID by invalid authz").count()
    }

    /// Returns the number of orders that pebble has accepted.
    pub fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }
}

fn configuration(
    options: &Options,
    directory: SocketAddr,
    management: SocketAddr,
    files: &PairFiles,
) -> serde_json::Value {
    let profile =
        |validity_s: u64| serde_json::json!({ "description": "", "validityPeriod": validity_s });
    let mut profiles = HashMap::from([("default", profile(options.validity_s))]);
    if options.is_short_lived {
        profiles.insert("shortlived", profile(6 * 24 * 3600));
    }
    let accounts = options.external_account.iter();
    let accounts: HashMap<&String, &String> = accounts.map(|(id, key)| (id, key)).collect();
    serde_json::json!({ "pebble": {
        "listenAddress": directory.to_string(),
        "managementListenAddress": management.to_string(),
        "certificate": files.certificate,
        "privateKey": files.key,
        "httpPort": options.http_port,
        "tlsPort": options.tls_port,
        "retryAfter": { "authz": 1, "order": 1 },
        "keyAlgorithm": "ecdsa",
        "domainBlocklist": options.refused,
        "externalAccountBindingRequired": options.external_account.is_some(),
        "externalAccountMACKeys": accounts,
        "profiles": profiles,
    }})
}

/// Returns pebble's executable in the folder of `cargo xtask`'s tools, below the target folder.
///
/// # Errors
///
/// Pebble is not installed.
pub fn installed(target: &Path) -> anyhow::Result<PathBuf> {
    let program = target.join("tools/pebble/pebble");
    let is_there = program.is_file().then_some(program);
    is_there.context("pebble is not installed: `cargo xtask test` installs it")
}
