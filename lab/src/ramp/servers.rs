//! The servers of static files that experiments compare, each in the configurations that may be its fastest.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SERVER_CORE;
use crate::bench::contest::Server;
use crate::bench::{Files, Sluice, statics};
use crate::rivals::{APACHE, ApacheMode, ApacheOptions, H2O, H2oOptions, NGINX, Program};

/// A server of another project that can serve static files in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticRival {
    /// nginx.
    Nginx,
    /// Apache's httpd.
    Apache,
    /// h2o.
    H2o,
}

impl FromStr for StaticRival {
    type Err = String;

    fn from_str(name: &str) -> Result<StaticRival, String> {
        match name {
            "nginx" => Ok(StaticRival::Nginx),
            "apache" => Ok(StaticRival::Apache),
            "h2o" => Ok(StaticRival::H2o),
            _ => Err("nginx, apache or h2o".to_owned()),
        }
    }
}

impl StaticRival {
    /// All rivals.
    pub const ALL: [StaticRival; 3] = [StaticRival::Nginx, StaticRival::Apache, StaticRival::H2o];

    /// Returns the program of the rival.
    pub fn program(self) -> &'static Program {
        match self {
            StaticRival::Nginx => &NGINX,
            StaticRival::Apache => &APACHE,
            StaticRival::H2o => &H2O,
        }
    }

    /// Returns the configurations of which the fastest one is compared.
    pub(crate) fn candidates(self) -> Vec<Candidate> {
        let sendfile = [true, false].into_iter();
        match self {
            StaticRival::Nginx => sendfile
                .map(|sendfile| Candidate::Nginx { sendfile })
                .collect(),
            StaticRival::Apache => sendfile
                .map(|sendfile| Candidate::Apache { sendfile })
                .collect(),
            StaticRival::H2o => vec![Candidate::H2o],
        }
    }
}

/// A server with one configuration, which serves the files of a folder with one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// This build of Sluice.
    Sluice(PathBuf),
    Nginx {
        sendfile: bool,
    },
    Apache {
        sendfile: bool,
    },
    H2o,
}

impl Candidate {
    /// Returns the name of server and configuration.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Candidate::Sluice(_) => "Sluice",
            Candidate::Nginx { sendfile: true } => "nginx, sendfile on",
            Candidate::Nginx { sendfile: false } => "nginx, sendfile off",
            Candidate::Apache { sendfile: true } => "Apache, sendfile on",
            Candidate::Apache { sendfile: false } => "Apache, sendfile off",
            Candidate::H2o => "h2o",
        }
    }

    /// Starts the server on the servers' core. The server serves the files in `root`.
    pub(crate) fn start(&self, root: &Path) -> anyhow::Result<Server> {
        let core = Some(SERVER_CORE);
        let rival = match self {
            Candidate::Sluice(program) => {
                let mut options = statics::sluice_files(program, Files::new(root));
                options.core = core;
                return Ok(Server::Sluice(Box::new(Sluice::start(&options)?)));
            }
            Candidate::Nginx { sendfile } => {
                let mut options = statics::nginx_files(root);
                options.sendfile = *sendfile;
                options.core = core;
                options.start()
            }
            Candidate::Apache { sendfile } => {
                let mut options = ApacheOptions::new(ApacheMode::Static(root.to_owned()));
                options.sendfile = *sendfile;
                options.core = core;
                options.start()
            }
            Candidate::H2o => {
                let options = H2oOptions {
                    root: root.to_owned(),
                    tls: None,
                    core,
                };
                options.start()
            }
        };
        Ok(Server::Rival(rival?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::configurations::Configurations;
    use crate::rivals::{PROGRAMS, Task};

    #[test]
    fn all_servers_of_static_files_are_rivals() {
        let serves = PROGRAMS
            .iter()
            .filter(|program| program.tasks.contains(&Task::Static));
        let mut expected: Vec<&str> = serves.map(|program| program.name).collect();
        let rivals = StaticRival::ALL.into_iter();
        let mut names: Vec<&str> = rivals.map(|rival| rival.program().name).collect();
        expected.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, expected);
        for name in names {
            let rival: StaticRival = name.to_lowercase().parse().expect("a rival");
            assert_eq!(rival.program().name, name);
        }
        assert!("varnish".parse::<StaticRival>().is_err());
    }

    #[test]
    fn each_configuration_of_an_installed_server_is_known_and_serves_files() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a"), "content").expect("a file");
        for rival in StaticRival::ALL {
            if crate::rivals::tests::is_missing(rival.program()) {
                continue;
            }
            for candidate in rival.candidates() {
                let server = candidate.start(folder.path()).expect("the server starts");
                let reply = client::get(server.address(), "/a", &[]).expect("a response");
                assert_eq!((reply.status, &reply.body[..]), (200, &b"content"[..]));
                let text = server.configuration().expect("a configuration");
                let port = server.address().port().to_string();
                assert!(text.contains(&port), "{}: {text}", candidate.name());
                let other = candidate.start(folder.path()).expect("the server starts");
                let mut configurations = Configurations::default();
                for one in [&server, &other] {
                    configurations.keep(candidate.name(), one.configuration());
                }
                assert_eq!(configurations.all().len(), 1, "{configurations:?}");
            }
        }
    }
}
