//! BIND, a name server with zones that dynamic updates change (RFC 2136).

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use crate::process::{Launch, Process, free_port};

/// Longest wait until BIND responds.
const START_WITHIN: Duration = Duration::from_secs(20);
/// Name of the key that may change the zone.
pub const KEY_NAME: &str = "acme.test";
/// Secret of the key.
const SECRET: &str = "c2x1aWNlLWxhYi1zZWNyZXQtb2YtYS10ZXN0LWtleSE=";

/// A running BIND, with one zone on loopback.
pub struct Bind {
    process: Process,
    address: SocketAddr,
    key: PathBuf,
}

impl Bind {
    /// Starts BIND as the primary name server of a zone, which the key may change. `records` are further lines of the zone
    /// file. All files are in `folder`.
    ///
    /// # Errors
    ///
    /// BIND is not installed, or can't be started.
    pub fn start(folder: &Path, zone: &str, records: &str) -> anyhow::Result<Bind> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let key = folder.join("acme.key");
        fs::write(&key, key_text(SECRET))?;
        let zone_text = format!(
            "$TTL 60\n@ SOA ns root 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n@ A 127.0.0.1\n* A 127.0.0.1\n{records}\n"
        );
        fs::write(folder.join("zone.db"), zone_text)?;
        let text = configuration(folder, address.port(), zone);
        let file = folder.join("named.conf");
        fs::write(&file, text)?;
        let launch = Launch::new("bind", program(), folder).args([
            "-g".to_owned(),
            "-n".to_owned(),
            "1".to_owned(),
            "-c".to_owned(),
            file.display().to_string(),
        ]);
        let mut process = launch.start()?;
        process.wait_logged(" running", START_WITHIN)?;
        process.wait_listening(address, START_WITHIN)?;
        Ok(Bind {
            process,
            address,
            key,
        })
    }

    /// Returns the address for questions and updates.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the file of the key, as `tsig-keygen` writes it.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Returns the values of a name's TXT records.
    ///
    /// # Errors
    ///
    /// `dig` is not installed, or BIND does not respond.
    pub fn texts(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let port = self.address.port().to_string();
        let output = Command::new("dig")
            .args(["@127.0.0.1", "-p", &port, "+tcp", "+short", name, "TXT"])
            .output()
            .context("dig of the package bind9-dnsutils can't be run")?;
        let text = String::from_utf8(output.stdout)?;
        anyhow::ensure!(output.status.success(), "dig: {text}");
        let lines = text.lines();
        Ok(lines
            .map(|line| line.trim_matches('"').to_owned())
            .collect())
    }

    /// Returns what BIND has logged.
    pub fn log(&self) -> String {
        self.process.stderr()
    }
}

/// Returns the text of a key's file. `secret` is in base64.
pub fn key_text(secret: &str) -> String {
    format!("key \"{KEY_NAME}\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n")
}

fn configuration(folder: &Path, port: u16, zone: &str) -> String {
    let folder = folder.display();
    format!(
        "options {{\n\
         directory \"{folder}\";\n\
         managed-keys-directory \"{folder}\";\n\
         session-keyfile none;\n\
         pid-file none;\n\
         listen-on port {port} {{ 127.0.0.1; }};\n\
         listen-on-v6 {{ none; }};\n\
         recursion no;\n\
         dnssec-validation no;\n\
         notify no;\n\
         }};\n\
         controls {{ }};\n\
         include \"{folder}/acme.key\";\n\
         zone \"{zone}\" {{\n\
         type primary;\n\
         file \"{folder}/zone.db\";\n\
         allow-update {{ key \"{KEY_NAME}\"; }};\n\
         }};\n"
    )
}

/// Returns the path of `named`, which is in a folder for servers.
fn program() -> PathBuf {
    let found = ["/usr/sbin/named", "/usr/local/sbin/named"];
    let found = found.iter().find(|path| Path::new(path).is_file());
    found.map_or_else(|| PathBuf::from("named"), PathBuf::from)
}
