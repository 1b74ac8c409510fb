//! Plans the certificates of sites that come and go while Sluice runs.

use std::ops::Range;

use crate::acme::OnDemand;
use crate::config::checks::Checks;
use crate::config::file::{File, SiteFile, SiteTlsFile};
use crate::config::plan::Plan;
use crate::config::report::Problem;
use crate::tls::Management;

/// Whether all hosts of a site share one certificate.
pub fn is_shared(managed: Option<Management>, table: &SiteTlsFile, checks: &mut Checks) -> bool {
    let Some(typed) = table.shared.as_ref().filter(|typed| *typed.get_ref()) else {
        return false;
    };
    if managed != Some(Management::Acme) {
        checks.push(
            Problem::error("`shared` is for certificates from an authority")
                .at(typed.span())
                .help("leave it out, or write `certificate = \"auto\"`"),
        );
    }
    true
}

/// Returns where a site's certificates come from while Sluice runs, if they are not files.
pub fn place(table: &SiteTlsFile) -> Option<Management> {
    let [only] = table.certificate.as_ref()?.get_ref() else {
        return None;
    };
    match only.get_ref().as_str() {
        "auto" => Some(Management::Acme),
        "on-demand" => Some(Management::OnDemand),
        "internal" => Some(Management::Internal),
        _ => None,
    }
}

/// Reports a value of `certificate` without a key that looks like a word and not like a file. Returns whether it is one.
/// `at` is the position of `tls`: the short form has no position of its own.
pub fn is_unknown_word(table: &SiteTlsFile, at: Range<usize>, checks: &mut Checks) -> bool {
    let (Some([only]), None) = (
        table.certificate.as_ref().map(|list| list.get_ref()),
        &table.key,
    ) else {
        return false;
    };
    let is_word = !only.get_ref().contains(['/', '.']);
    if is_word {
        checks.push(
            Problem::error("this is no place where certificates come from")
                .at(at)
                .help(
                    "write \"auto\" for certificates from an authority, \"on-demand\", \"internal\", or \
                     `{ certificate = \"chain.pem\", key = \"key.pem\" }` for files",
                ),
        );
    }
    is_word
}

/// Reports sites that get certificates on demand although no name is permitted to.
pub fn without_permission(file: &File, plan: &Plan, checks: &mut Checks) {
    if plan.acme.on_demand != OnDemand::default() {
        return;
    }
    let sites = file
        .site
        .iter()
        .filter_map(|site| site.get_ref().tls.as_ref());
    for typed in sites {
        if place(&typed.get_ref().0) == Some(Management::OnDemand) {
            checks.push(
                Problem::error("no name is permitted to get a certificate on demand")
                    .at(typed.span())
                    .help("write `on_demand = { allow = [\"*.customers.example.com\"] }` in [tls.acme]"),
            );
        }
    }
}

/// Whether a site has TLS of its own.
pub fn has_sites(file: &File) -> bool {
    file.site.iter().any(|site| site.get_ref().tls.is_some())
}

/// Reports what contradicts certificates that are obtained by the names of a site.
pub fn check(
    managed: Management,
    file: &SiteFile,
    (table, at): (&SiteTlsFile, Range<usize>),
    checks: &mut Checks,
) {
    if let Some(key) = &table.key {
        checks.push(
            Problem::error("a key without a file with its certificate")
                .at(key.span())
                .help("leave `key` out: Sluice makes the key"),
        );
    }
    let hosts = file.hosts.as_ref().map_or(&[][..], |list| list.get_ref());
    if hosts.is_empty() && managed != Management::OnDemand {
        checks.push(
            Problem::error("a certificate needs a name, and this site has no `hosts`")
                .at(at)
                .help("add the names, as in `hosts = [\"cdn.example.com\"]`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config;

    #[test]
    fn mistakes_in_the_short_form_are_shown_at_its_line() {
        for (site, title) in [
            ("hosts = \"a.example\"\ntls = \"atuo\"\n", "no place where"),
            (
                "tls = \"auto\"\nclient_certificate = false\n",
                "needs a name",
            ),
        ] {
            let text = format!("[[site]]\n{site}[[site.route]]\nrespond = \"a\"\n");
            let report = config::parse("test.toml", &text).expect_err("a mistake");
            let shown = report.to_string();
            let line = text
                .lines()
                .position(|line| line.starts_with("tls"))
                .expect("a line")
                + 1;
            assert!(shown.contains(title), "{shown}");
            assert!(shown.contains(&format!("test.toml:{line}:")), "{shown}");
        }
    }
}
