//! Plans `health`: the health checks of an upstream's servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;

use super::eject::number;
use crate::config::checks::Checks;
use crate::config::file::HealthFile;
use crate::config::report::Problem;
use crate::config::value::{Key, List, OrFalse, StatusRange, Table};
use crate::http::Method;
use crate::http::fields::{is_field_value, is_token};
use crate::upstream::Health;

const INTERVAL_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);
/// Most headers of a check, and largest length of a text, in bytes.
const HEADERS_MAX: usize = 16;
const TEXT_MAX: usize = 4096;
/// Statuses of final responses.
const FINAL: RangeInclusive<u16> = 200..=599;
/// Headers that Sluice itself writes.
const OWN: [&str; 6] = [
    "connection",
    "content-length",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Returns the options of health checks; `None` if there are none.
pub fn plan(key: &Key<OrFalse<Table<HealthFile>>>, checks: &mut Checks) -> Option<Health> {
    let Table(file) = key.as_ref()?.get_ref().on()?;
    let d = Health::default();
    let method = method(&file.method, checks).unwrap_or(d.method);
    let body = file
        .body
        .as_ref()
        .and_then(|text| body(text, &method, checks));
    Some(Health {
        port: port(&file.port, checks),
        path: path(&file.path, checks).unwrap_or(d.path),
        headers: headers(file, checks),
        statuses: statuses(file.status.as_ref(), checks).unwrap_or(d.statuses),
        method,
        body,
        interval: checks.within("interval", &file.interval, d.interval, INTERVAL_MIN..=HOUR),
        jitter: number("jitter", &file.jitter, Some(d.jitter), 0.0..=1.0, checks),
        timeout: checks.within("timeout", &file.timeout, d.timeout, TIMEOUT_MIN..=HOUR),
        up: checks.within("up", &file.up, u64::from(d.up), 1..=1000) as u32,
        down: checks.within("down", &file.down, u64::from(d.down), 1..=1000) as u32,
    })
}

fn statuses(
    key: Option<&List<StatusRange>>,
    checks: &mut Checks,
) -> Option<Vec<RangeInclusive<u16>>> {
    let typed = key.filter(|list| !list.get_ref().is_empty())?;
    for range in typed.get_ref() {
        if !range.get_ref().is_within(&FINAL) {
            let problem = Problem::error("this can't be the status of a healthy server");
            checks.push(
                problem
                    .at(range.span())
                    .help("choose statuses from 200 to 599"),
            );
        }
    }
    let ranges = typed.get_ref().iter();
    Some(ranges.map(|range| range.get_ref().0.clone()).collect())
}

fn port(key: &Key<u64>, checks: &mut Checks) -> Option<u16> {
    key.as_ref()?;
    u16::try_from(checks.within("port", key, 1, 1..=65_535)).ok()
}

fn path(key: &Key<String>, checks: &mut Checks) -> Option<String> {
    let typed = key.as_ref()?;
    let path = typed.get_ref();
    let is_target = path.starts_with('/')
        && path.len() <= TEXT_MAX
        && path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if !is_target {
        let problem = Problem::error("this is not a path").at(typed.span());
        checks.push(problem.help("write a path that begins with a slash, as in \"/healthz\""));
    }
    Some(path.clone())
}

fn method(key: &Key<String>, checks: &mut Checks) -> Option<Method> {
    let typed = key.as_ref()?;
    let text = typed.get_ref();
    if !is_token(text.as_bytes()) || text.len() > 32 || text == "CONNECT" {
        let problem = Problem::error("this is not a method for a check").at(typed.span());
        checks.push(problem.help("write \"GET\", \"HEAD\" or \"OPTIONS\""));
    }
    Some(Method::from_token(text))
}

fn body(text: &Spanned<String>, method: &Method, checks: &mut Checks) -> Option<String> {
    let (what, help) = match text.get_ref().len() {
        0 => (
            "`body` is empty",
            "write the text that healthy servers send",
        ),
        1..=TEXT_MAX if *method == Method::Head => (
            "a response to HEAD has no content",
            "leave `body` out, or write method = \"GET\"",
        ),
        1..=TEXT_MAX => return Some(text.get_ref().clone()),
        _ => ("`body` is too long", "write at most 4096 bytes"),
    };
    checks.push(Problem::error(what).at(text.span()).help(help));
    None
}

fn headers(file: &HealthFile, checks: &mut Checks) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in file.headers.iter().flatten() {
        let lower = name.get_ref().to_ascii_lowercase();
        let (what, at, help) = if headers.len() == HEADERS_MAX {
            ("too many headers", name.span(), "write at most 16")
        } else if !is_token(lower.as_bytes()) {
            (
                "this is not the name of a header",
                name.span(),
                "write a name as in Authorization",
            )
        } else if OWN.contains(&lower.as_str()) {
            (
                "Sluice writes this header itself",
                name.span(),
                "leave it out; `host` of the upstream sets Host",
            )
        } else if !is_field_value(value.get_ref().as_bytes()) || value.get_ref().len() > TEXT_MAX {
            (
                "this is not the value of a header",
                value.span(),
                "remove control characters, and write at most 4096 bytes",
            )
        } else {
            headers.push((lower, value.get_ref().clone()));
            continue;
        };
        checks.push(Problem::error(what).at(at).help(help));
    }
    headers
}
