//! h2o as a rival: one thread that serves static files over HTTP/2, without logs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::running::{RivalLaunch, RunningRival};
use crate::certificates::PairFiles;

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

impl H2oOptions {
    /// Starts h2o on a free port.
    pub fn start(&self) -> anyhow::Result<RunningRival> {
        let mut rival = RivalLaunch::new(&super::H2O, "lab-h2o-", self.core)?;
        let file = rival.write("h2o.conf", configuration(self, rival.address))?;
        // Stays in the foreground, as one process.
        rival.start(["--mode=worker", "--conf", &file], START_TIMEOUT)
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
    use std::fs;

    use super::*;
    use crate::client;
    use crate::rivals::tests::is_missing;

    #[test]
    fn a_file_is_served() {
        if is_missing(&crate::rivals::H2O) {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), "content").expect("a file");
        let options = H2oOptions {
            root: folder.path().to_owned(),
            tls: None,
            core: None,
        };
        let h2o = options.start().expect("h2o starts");
        let reply = client::get(h2o.addr(), "/a", &[]).expect("a response");
        assert_eq!((reply.status, &reply.body[..]), (200, &b"content"[..]));
    }
}
