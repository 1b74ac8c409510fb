//! Plans `tls` of an upstream.

use std::path::PathBuf;

use crate::config::checks::Checks;
use crate::config::file::UpstreamFile;
use crate::config::report::Problem;
use crate::config::value::{Key, Table};
use crate::http::Scheme;
use crate::tls::{CertificateFiles, ClientOptions, Trust};
use crate::upstream::Server;

use super::server_url::is_host;

/// Returns the options of TLS with the servers of an upstream, whose defaults are `default`.
pub fn options(
    file: &UpstreamFile,
    servers: &[Server],
    default: ClientOptions,
    checks: &mut Checks,
) -> ClientOptions {
    let Some(typed) = &file.tls else {
        return default;
    };
    let Table(table) = typed.get_ref();
    if !servers.iter().any(|server| server.scheme == Scheme::Https) {
        checks.push(
            Problem::warning("`tls` does nothing here")
                .at(typed.span())
                .label("no server of this upstream has TLS")
                .help("write `https://` in the URLs of the servers, or leave this out"),
        );
    }
    let authorities = table.ca.as_ref().map_or(&[][..], |list| list.get_ref());
    let authorities: Vec<PathBuf> = authorities.iter().map(|ca| ca.get_ref().into()).collect();
    let trust = match (&table.verify, authorities.is_empty()) {
        (Some(verify), is_empty) if !*verify.get_ref() => {
            checks.push(
                Problem::warning("certificates of the servers are not verified")
                    .at(verify.span())
                    .label("everyone on the way to the servers can read and change the traffic")
                    .help("name the authority, or the certificate itself, with `ca` instead"),
            );
            if let (false, Some(ca)) = (is_empty, &table.ca) {
                checks.push(
                    Problem::warning("`ca` does nothing with `verify = false`")
                        .at(ca.span())
                        .help("leave out one of them"),
                );
            }
            Trust::Anything
        }
        (_, true) => Trust::System,
        (_, false) => Trust::Authorities(authorities),
    };
    let certificate = match (&table.certificate, &table.key) {
        (Some(certificate), Some(key)) => Some(CertificateFiles {
            certificate: certificate.get_ref().into(),
            key: key.get_ref().into(),
        }),
        (None, None) => None,
        (Some(alone), None) | (None, Some(alone)) => {
            checks.push(
                Problem::error("a certificate needs its key")
                    .at(alone.span())
                    .help("write `certificate = \"chain.pem\", key = \"key.pem\"`"),
            );
            None
        }
    };
    ClientOptions {
        trust,
        server_name: server_name(&table.server_name, checks),
        certificate,
        ..default
    }
}

fn server_name(key: &Key<String>, checks: &mut Checks) -> Option<String> {
    let typed = key.as_ref()?;
    let name = typed.get_ref().to_ascii_lowercase();
    if is_host(&name) {
        return Some(name);
    }
    checks.push(
        Problem::error("`server_name` is not a host name or an address")
            .at(typed.span())
            .help("write the name in the servers' certificate, without a port, as in \"origin.example.com\""),
    );
    None
}
