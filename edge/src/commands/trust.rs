//! `sluice trust`: says how to trust the root of the local authority, which signs certificates for development.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::output::{failed, say, shell_word};
use super::source;
use crate::acme::{self, Root};
use crate::config::StatePlace;
use crate::http::date;
use crate::sys::Clock;
use crate::sys::user::{self, ProcessUser};

#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Configuration file, from which the folder of certificates is read [default: SLUICE_CONFIG, or ./sluice.toml if
    /// it exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the certificates and their keys [default: that of the configuration file, or that in which
    /// `sluice serve` keeps certificates by default]
    #[arg(long, value_name = "FOLDER", conflicts_with = "config")]
    acme_state: Option<PathBuf>,
    /// Write only the root's certificate, in PEM
    #[arg(long)]
    print: bool,
}

pub fn run(args: &TrustArgs) -> anyhow::Result<()> {
    let mut place = source::state(args.acme_state.as_deref(), args.config.as_deref())?;
    place.folder = std::path::absolute(&place.folder)?;
    let root = root(&place)?;
    match args.print {
        true => say(root.pem()),
        false => say(&advice(&root, &place.folder)),
    }
}

/// Returns the root of the local authority, which is made if there is none.
fn root(place: &StatePlace) -> anyhow::Result<Root> {
    let open = || open(&place.folder);
    let opened = match &place.user {
        // Sluice itself could not read files of root.
        Some(owner) if user::is_root() => {
            let (name, group) = match owner.split_once(':') {
                Some((name, group)) => (name, Some(group)),
                None => (owner.as_str(), None),
            };
            let owner = ProcessUser::find(name, group).map_err(anyhow::Error::msg)?;
            owner.run(open).context("can't switch to Sluice's user")?
        }
        _ => open(),
    };
    let folder = place.folder.display();
    opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => failed(
            format!("there is no root yet, and another process uses {folder}"),
            "give a site of the running Sluice `tls = \"internal\"`: Sluice then makes the root",
        ),
        ErrorKind::PermissionDenied => failed(
            format!("{folder} can't be used: permission denied"),
            "run this command as the user that Sluice runs as, or as root",
        ),
        _ => failed(
            format!("the root in {folder} can't be used: {error}"),
            "`state` in [tls.acme] or --acme-state names the folder",
        ),
    })
}

fn open(folder: &Path) -> io::Result<Root> {
    // A root that exists is read without the lock, so that Sluice can run or start meanwhile.
    if let Some(root) = Root::read(&*acme::read_only(folder))? {
        return Ok(root);
    }
    Root::open(&*acme::in_folder(folder)?, &Clock::system())
}

/// Returns how to trust a root in this folder of certificates.
fn advice(root: &Root, folder: &Path) -> String {
    let file = Root::file(folder);
    let until = date::format(root.not_after_unix_s().max(0).unsigned_abs());
    let until = String::from_utf8_lossy(&until);
    let (name, path) = (root.name(), shell_word(&file.display().to_string()));
    let nickname = shell_word(name);
    format!(
        "{name}
  file         {file}
  valid until  {until}
  SHA-256      {fingerprint}

Sites with `tls = \"internal\"` have certificates of this authority. Programs that trust the file above accept them.
Everyone who has the key in the same folder can make certificates that these programs accept, so keep it to this
machine. Nothing has been installed; choose from these commands.

curl and other programs, each time:
  curl --cacert {path} https://localhost/
  NODE_EXTRA_CA_CERTS={path} node …
  SSL_CERT_FILE={path} PROGRAM  # many others; they then trust no other authority

Debian, Ubuntu:
  sudo install -m 644 {path} /usr/local/share/ca-certificates/sluice.crt
  sudo update-ca-certificates

Fedora, RHEL:
  sudo install -m 644 {path} /etc/pki/ca-trust/source/anchors/sluice.pem
  sudo update-ca-trust

Chromium, Chrome on Linux (certutil is in libnss3-tools or nss-tools):
  mkdir -p $HOME/.pki/nssdb
  certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n {nickname} -i {path}

Firefox on Linux (restart it afterwards):
  for profile in $HOME/.mozilla/firefox/*.default*; do
    certutil -d \"sql:$profile\" -A -t C,, -n {nickname} -i {path}
  done

macOS (Safari, Chrome), after copying the file there:
  sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain root.pem

Windows (Edge, Chrome), after copying the file there, as administrator:
  certutil -addstore -f Root root.pem

Firefox on macOS and Windows reads the system's store. To copy the file: sluice trust --print > root.pem
",
        file = file.display(),
        fingerprint = root.fingerprint(),
    )
}
