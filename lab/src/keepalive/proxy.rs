//! The proxies under test, in the settings of a case.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::case::Case;
use crate::bench::contest::Server;
use crate::bench::{Sluice, SluiceOptions};
use crate::rivals::{NginxMode, NginxOptions};

/// A proxy that can be started.
#[derive(Debug, Clone)]
pub(super) enum ProxyKind {
    /// This build of `sluice`.
    Sluice(PathBuf),
    /// nginx.
    Nginx,
}

/// The values of a line of the access log, which the formats of both proxies have in this order.
const SLUICE_FORMAT: &str =
    "{time_unix}|{connect_time}|{header_time}|{response_time}|{request_time}|{bytes}";
const NGINX_FORMAT: &str = "$msec|$upstream_connect_time|$upstream_header_time|$upstream_response_time|$request_time|$body_bytes_sent";

impl ProxyKind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            ProxyKind::Sluice(_) => "Sluice",
            ProxyKind::Nginx => "nginx",
        }
    }

    /// Whether the time of a line in the access log is the beginning of the request. Otherwise it is the end.
    pub(super) fn logs_beginning(&self) -> bool {
        matches!(self, ProxyKind::Sluice(_))
    }

    /// Whether the proxy's requests have `Connection: close` in this case. Sluice has one setting for both properties of the
    /// proxy: its requests have `Connection: close` if it keeps no idle connections.
    pub(super) fn closes_requests(&self, case: Case) -> bool {
        match self {
            ProxyKind::Sluice(_) => !case.upstream_keepalive,
            ProxyKind::Nginx => case.close_requests,
        }
    }

    /// Starts the proxy in front of `server`, with its access log in the file `log`. Dropping the returned value ends the
    /// proxy, which completes its access log first.
    pub(super) fn start(
        &self,
        case: Case,
        server: SocketAddr,
        log: &Path,
    ) -> anyhow::Result<Server> {
        match self {
            ProxyKind::Sluice(program) => {
                let mut options = SluiceOptions::new(program, server);
                if !case.upstream_keepalive {
                    options.upstream = vec![("keepalive".to_owned(), "0".to_owned())];
                }
                options.log = vec![
                    (
                        "access".to_owned(),
                        format!("{:?}", log.display().to_string()),
                    ),
                    ("format".to_owned(), format!("'{SLUICE_FORMAT}'")),
                ];
                Ok(Server::Sluice(Box::new(Sluice::start(&options)?)))
            }
            ProxyKind::Nginx => {
                let options = NginxOptions {
                    keepalive: case.upstream_keepalive,
                    close: self.closes_requests(case),
                    access_log: Some((log.to_owned(), NGINX_FORMAT.to_owned())),
                    // With tcp_nopush, nginx delays the ends of responses.
                    nopush: false,
                    ..NginxOptions::new(NginxMode::Proxy, Some(server))
                };
                Ok(Server::Rival(options.start()?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_sluice_close_whenever_it_keeps_no_idle_connections() {
        let closing = |proxy: ProxyKind| {
            let cases = Case::all().filter(|case| proxy.closes_requests(*case));
            cases.map(|case| case.name).collect::<Vec<_>>()
        };
        let sluice = ProxyKind::Sluice(PathBuf::new());
        assert_eq!(closing(sluice), ["A", "B", "C", "loaded, close"]);
        assert_eq!(closing(ProxyKind::Nginx), ["A", "loaded, close"]);
    }
}
