//! Describes TLS.

use crate::config::plan::Plan;
use crate::tls::{
    CertificateFiles, CipherSuite, ClientCertificates, ClientOptions, Group, HttpsRedirect,
    ListenerTls, Options, SiteTls, TicketOptions, Trust, UnknownName, Version,
};

/// Returns a line about the options of TLS, if a listener or the admin address has TLS.
pub fn describe(plan: &Plan) -> Option<String> {
    let of_listener = plan.listeners.iter().any(|listener| listener.tls.is_some());
    let uses = of_listener || plan.admin_tls.is_some();
    uses.then(|| format!("TLS {}", options(&plan.tls, of_listener)))
}

/// Describes the options, with those that only listeners have if `of_listener` is set.
fn options(options: &Options, of_listener: bool) -> String {
    let mut text = match options.min_version {
        Version::Tls12 => "1.2 and 1.3".to_owned(),
        Version::Tls13 => "1.3 only".to_owned(),
    };
    let groups: Vec<&str> = options
        .groups
        .iter()
        .map(|group| Group::name(*group))
        .collect();
    text += &format!(", groups {}", groups.join(", "));
    if options.ciphers != CipherSuite::ALL {
        let suites = options.ciphers.iter().map(|suite| suite.name());
        text += &format!(", suites {}", suites.collect::<Vec<_>>().join(", "));
    }
    if of_listener {
        text += match options.unknown_name {
            UnknownName::Default => ", unknown names get the default certificate",
            UnknownName::Refuse => ", unknown names are refused",
        };
        text += &match &options.tickets {
            TicketOptions::Off => ", no tickets".to_owned(),
            TicketOptions::Random => ", tickets".to_owned(),
            TicketOptions::Shared(files) => format!(", tickets of {}", list(files.iter())),
        };
    }
    if options.key_log {
        text += ", keys are logged";
    }
    text
}

/// Returns the part about TLS of the line about a listener or the admin address.
pub fn listener(tls: &ListenerTls) -> String {
    let mut text = String::new();
    match tls.min_version {
        Some(Version::Tls12) => text += ", TLS 1.2 or later",
        Some(Version::Tls13) => text += ", TLS 1.3 only",
        None => {}
    }
    text + &certificates(&tls.certificates) + &clients(tls.clients.as_ref())
}

/// Returns the part about TLS of the line about an upstream.
pub fn client(tls: &ClientOptions) -> String {
    let mut text = match &tls.trust {
        Trust::System => ", verified by the system's authorities".to_owned(),
        Trust::Authorities(files) => format!(", verified by {}", list(files.iter())),
        Trust::Exactly(files) => format!(", verified by {} alone", list(files.iter())),
        Trust::Anything => ", not verified".to_owned(),
    };
    if let Some(name) = &tls.server_name {
        text += &format!(", as {name}");
    }
    if let Some(files) = &tls.certificate {
        text += &certificates(std::slice::from_ref(files));
    }
    text
}

/// Returns the part about TLS of the line about a site.
pub fn site(tls: &SiteTls) -> String {
    let redirect = match tls.redirect {
        HttpsRedirect::Off => ", also in clear text".to_owned(),
        HttpsRedirect::On => ", clear text is redirected to https".to_owned(),
        HttpsRedirect::To(port) => format!(", clear text is redirected to https at port {port}"),
    };
    certificates(&tls.certificates) + &clients(tls.clients.as_ref()) + &redirect
}

fn certificates(files: &[CertificateFiles]) -> String {
    match files {
        [] => String::new(),
        files => format!(
            ", certificate {}",
            list(files.iter().map(|files| &files.certificate))
        ),
    }
}

fn clients(clients: Option<&ClientCertificates>) -> String {
    match clients {
        None => String::new(),
        Some(clients) => {
            let word = match clients.required {
                true => "must",
                false => "may",
            };
            let file = clients.authorities.display();
            format!(", clients {word} have a certificate of {file}")
        }
    }
}

fn list<'a>(paths: impl Iterator<Item = &'a std::path::PathBuf>) -> String {
    let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    names.join(", ")
}
