//! Certificates by ACME, with pebble as the authority, and those that Sluice signs itself.

mod authorities;
mod challenges;
mod commands;
mod defaults;
mod dns;
mod internal;
mod kills;
mod on_demand;
mod renewal;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use sluice_lab::client::{Client, ClientOptions, ClientTls};
use sluice_lab::pebble::{self, Pebble};
use sluice_lab::process::free_port;

use crate::harness::{Edge, Setup, eventually};

/// Pebble, and the ports of the edge that it asks.
struct Bed {
    pebble: Pebble,
    folder: tempfile::TempDir,
    http: u16,
    https: u16,
}

impl Bed {
    /// Starts pebble for these names.
    fn new(names: &[&str], change: impl FnOnce(&mut pebble::Options)) -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let [http, https] = [0; 2].map(|_| free_port().expect("a free port"));
        let mut options = pebble::Options {
            http_port: http,
            tls_port: https,
            ..pebble::Options::default()
        };
        change(&mut options);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("a folder");
        let program = pebble::installed(target).expect("pebble");
        let pebble = Pebble::start(&program, folder.path(), &options).expect("pebble runs");
        pebble.serve_names(names);
        Bed {
            pebble,
            folder,
            http,
            https,
        }
    }

    /// Returns the configuration of an edge that obtains a certificate for each of these names. `keys` are further keys of
    /// `acme`.
    fn text(&self, keys: &str, names: &[&str]) -> String {
        let directory = match keys.contains("directory = ") {
            true => String::new(),
            false => format!("directory = {:?}\n", self.pebble.directory()),
        };
        let site = format!("hosts = {names:?}\ntls = \"auto\"\n");
        self.text_of_site(&format!("{directory}{keys}"), &site)
    }

    /// Returns the configuration of an edge with a site of these keys. `keys` are those of `acme`.
    fn text_of_site(&self, keys: &str, site: &str) -> String {
        let state = match keys.contains("state = ") {
            true => String::new(),
            false => format!("state = {:?}\n", self.state()),
        };
        format!(
            "[admin]\naddress = \"127.0.0.1:0\"\n\
             [[listener]]\naddress = \"127.0.0.1:{}\"\n\
             [[listener]]\naddress = \"127.0.0.1:{}\"\ntls = true\n\
             [tls.acme]\nca = {:?}\n{state}{keys}\n\
             [[site]]\n{site}[[site.route]]\nrespond = \"hello\"\n",
            self.http,
            self.https,
            self.pebble.trust(),
        )
    }

    /// Returns the folder of the edge's certificates.
    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn start(&self, keys: &str, names: &[&str]) -> Edge {
        Setup::of_text(self.text(keys, names)).start()
    }

    /// Completes a handshake with this name, in which the certificate is verified.
    fn handshake(&self, name: &str) -> Result<Client, String> {
        let authority = self.pebble.authority().expect("pebble's authority");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.https));
        handshake(address, &authority, name)
    }

    /// Returns the certificate that a handshake with this name gets, in DER.
    fn certificate(&self, name: &str) -> Vec<u8> {
        let client = self.handshake(name).expect("a handshake");
        let session = client.session().expect("TLS");
        let chain = session.peer_certificates().expect("a certificate");
        chain[0].to_vec()
    }

    /// Waits until a handshake with this name succeeds, and returns the response to a request over it.
    fn wait_served(&self, name: &str) -> String {
        let mut client = None;
        eventually("there is a certificate", || {
            client = self.handshake(name).ok();
            client.is_some()
        });
        let mut client = client.expect("a connection");
        let reply = client.get("/", &[("Host", name)]).expect("a reply");
        reply.text().clone()
    }
}

/// Completes a handshake with this name, in which the certificate is verified. `authority` is a certificate in DER.
fn handshake(address: SocketAddr, authority: &[u8], name: &str) -> Result<Client, String> {
    let options = ClientOptions {
        tls: Some(ClientTls::trusting(authority, name)),
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(address, &options).expect("a connection");
    match client.handshake() {
        Ok(()) => Ok(client),
        Err(error) => Err(error.to_string()),
    }
}
