//! h2o as a rival: one thread that serves static files over HTTP/2, without logs.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::scratch::Folder;

use crate::certificates::PairFiles;
use crate::process::{Launch, Process, free_port};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of h2o.
#[derive(Debug, Clone)]
pub struct H2oOptions {
    /// Folder whose files are served.
    pub root: PathBuf,
    /// Certificate of the server; `None`: clear text.
    pub tls: Option<PairFiles>,
    /// Core to which h2o is pinned.
    pub core: Option<usize>,
}

/// A running h2o. Dropping it ends it and removes its files.
#[derive(Debug)]
pub struct H2o {
    process: Process,
    address: SocketAddr,
    configuration: String,
    _folder: Folder,
}

impl H2o {
    /// Returns the path of the installed h2o.
    pub fn find() -> anyhow::Result<PathBuf> {
        super::H2O.find()
    }

    /// Returns the version of the installed h2o.
    pub fn version() -> anyhow::Result<String> {
        super::version_of(&H2o::find()?, "--version")
    }

    /// Starts h2o on a free port.
    pub fn start(options: &H2oOptions) -> anyhow::Result<H2o> {
        let program = H2o::find()?;
        let folder = Folder::new("lab-h2o-")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let file = folder.path().join("h2o.conf");
        let text = configuration(options, address);
        fs::write(&file, &text)?;
        let mut process = Launch::new("h2o", program, folder.path())
            // Stays in the foreground, as one process.
            .args(["--mode=worker", "--conf", &file.display().to_string()])
            .core(options.core)
            .start()?;
        process.wait_listening(address, START_TIMEOUT)?;
        Ok(H2o {
            process,
            address,
            configuration: text,
            _folder: folder,
        })
    }

    /// Returns the address on which h2o listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the text of the configuration file with which h2o was started.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Returns the process of h2o.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Returns the configuration file, in which connections stay open for an hour.
fn configuration(options: &H2oOptions, address: SocketAddr) -> String {
    let tls = options.tls.as_ref().map_or_else(String::new, |pair| {
        format!(
            "  ssl:
    certificate-file: {}
    key-file: {}
    minimum-version: TLSv1.3
",
            pair.certificate.display(),
            pair.key.display()
        )
    });
    // h2o run by root wants to know its user, and cannot change it otherwise.
    let user = match super::is_root() {
        true => "user: root\n",
        false => "",
    };
    format!(
        "{user}num-threads: 1
max-connections: 16384
http1-request-timeout: 3600
http2-idle-timeout: 3600
listen:
  host: {}
  port: {}
{tls}hosts:
  default:
    paths:
      /:
        file.dir: {}
",
        address.ip(),
        address.port(),
        options.root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[test]
    fn a_file_is_served() {
        if let Err(missing) = H2o::find() {
            eprintln!("skipped: {missing}");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "content").expect("a file");
        let options = H2oOptions {
            root: folder.path().to_owned(),
            tls: None,
            core: None,
        };
        let h2o = H2o::start(&options).expect("h2o starts");
        let reply = client::get(h2o.addr(), "/a", &[]).expect("a response");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"content"[..]));
    }
}
