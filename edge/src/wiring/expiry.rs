//! Warns about certificates that expire, once a day for each.

use std::collections::BTreeMap;

use crate::admin::{CertificateSource, CertificateState, Certificates};

/// Time in milliseconds between two looks at all certificates.
const LOOK_EVERY_MS: u64 = 60 * 1000;
/// Time in milliseconds after which the warning about a certificate is repeated.
const REPEAT_EVERY_MS: u64 = 24 * 3600 * 1000;
/// Most warnings of one look. Further ones are counted.
const WARNINGS_MAX: usize = 50;
/// Most names of a certificate in a warning.
const NAMES_MAX: usize = 10;

/// The warnings about certificates that were logged.
#[derive(Default)]
pub(super) struct ExpiryWarnings {
    /// Time of the last look, as Unix time in milliseconds.
    looked_unix_ms: Option<u64>,
    /// Time of the last warning about each certificate with a problem, as Unix time in milliseconds.
    logged: BTreeMap<String, u64>,
}

impl ExpiryWarnings {
    /// Whether it is time to look at all certificates.
    pub(super) fn is_due(&self, now_unix_ms: u64) -> bool {
        let is_old = |last: u64| now_unix_ms.abs_diff(last) >= LOOK_EVERY_MS;
        self.looked_unix_ms.is_none_or(is_old)
    }

    /// Returns the warnings to log now. The start has reported the problems of files.
    pub(super) fn warnings(
        &mut self,
        certificates: &Certificates,
        now_unix_ms: u64,
    ) -> Vec<String> {
        let is_first = self.looked_unix_ms.replace(now_unix_ms).is_none();
        let mut before = std::mem::take(&mut self.logged);
        let (mut warnings, mut left_out) = (Vec::new(), 0_usize);
        for one in &certificates.list {
            let Some(problem) = one.warning.as_deref().filter(|_| one.in_use) else {
                continue;
            };
            let id = id(one);
            let last = before.remove(&id);
            let is_known = match last {
                None => is_first && one.source == CertificateSource::File,
                Some(last) => now_unix_ms.abs_diff(last) < REPEAT_EVERY_MS,
            };
            self.logged.insert(
                id,
                match (is_known, last) {
                    (true, Some(last)) => last,
                    _ => now_unix_ms,
                },
            );
            match is_known {
                true => {}
                false if warnings.len() < WARNINGS_MAX => warnings.push(text(one, problem)),
                false => left_out += 1,
            }
        }
        if left_out > 0 {
            warnings.push(format!(
                "{left_out} more certificates have such problems (`sluice certs` lists them)"
            ));
        }
        warnings
    }
}

fn id(one: &CertificateState) -> String {
    one.file.clone().unwrap_or_else(|| one.names.join(","))
}

fn text(one: &CertificateState, problem: &str) -> String {
    let mut names = one
        .names
        .iter()
        .take(NAMES_MAX)
        .cloned()
        .collect::<Vec<_>>();
    if one.names.len() > NAMES_MAX {
        names.push("…".to_owned());
    }
    let attempt = match (&one.last_error, one.failures) {
        (Some(error), failures) if failures > 0 => {
            format!("; the renewal has failed, the last time with: {error}")
        }
        _ => String::new(),
    };
    format!("{problem} ({}){attempt}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, source: CertificateSource) -> CertificateState {
        CertificateState {
            names: vec![name.to_owned()],
            source,
            in_use: true,
            warning: Some("this certificate expires in 5 days".to_owned()),
            ..CertificateState::default()
        }
    }

    #[test]
    fn each_certificate_is_reported_once_a_day() {
        let mut logged = ExpiryWarnings::default();
        let mut acme = state("a.example", CertificateSource::Acme);
        (acme.failures, acme.last_error) = (2, Some("refused".to_owned()));
        let mut all = Certificates::new(vec![acme, state("b.example", CertificateSource::File)], 0);
        let first = "this certificate expires in 5 days (a.example); the renewal has failed, the last time with: refused";
        assert!(logged.is_due(1000));
        assert_eq!(logged.warnings(&all, 1000), [first]);
        assert!(!logged.is_due(2000) && logged.is_due(1000 + LOOK_EVERY_MS));
        assert!(logged.warnings(&all, 70_000).is_empty());
        all.list.push(state("c.example", CertificateSource::File));
        let new = "this certificate expires in 5 days (c.example)";
        assert_eq!(logged.warnings(&all, 140_000), [new]);
        assert_eq!(logged.warnings(&all, 1000 + REPEAT_EVERY_MS).len(), 2);
        let renewed = Certificates::default();
        assert!(logged.warnings(&renewed, 2000 + REPEAT_EVERY_MS).is_empty());
        assert!(logged.logged.is_empty());
    }

    #[test]
    fn many_warnings_are_counted() {
        let mut logged = ExpiryWarnings::default();
        let list = (0..60).map(|n| state(&format!("{n}.example"), CertificateSource::Acme));
        let all = Certificates::new(list.collect(), 0);
        let warnings = logged.warnings(&all, 0);
        assert_eq!(warnings.len(), WARNINGS_MAX + 1);
        assert!(warnings[WARNINGS_MAX].starts_with("10 more certificates"));
        assert!(logged.warnings(&all, 1).is_empty());
    }
}
