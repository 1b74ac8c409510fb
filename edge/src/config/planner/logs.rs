//! Plans `[log]`, and `log` of sites and routes.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::{AdminFile, LogFile, RouteFile, RouteLogFile, SiteFile};
use crate::config::lints::variables;
use crate::config::plan::LogOptions;
use crate::config::report::Problem;
use crate::config::suggestions::did_you_mean;
use crate::config::value::{Key, Level, List, OrFalse, Switch, Word};
use crate::telemetry::messages::MessageTarget;
use crate::telemetry::{
    AccessFormat, AccessOptions, AccessTarget, FIELD_NAMES, LogRule, Template, TemplateError,
    TemplateFault,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Request headers that contain secrets, which should not be logged.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Returns the options of `[log]`.
pub fn plan(file: &LogFile, checks: &mut Checks) -> LogOptions {
    let d = AccessOptions::default();
    let options = AccessOptions {
        format: format(&file.format, checks),
        buffer: checks.count("buffer", &file.buffer, d.buffer, 4 << 10..=1 << 20),
        flush: checks.within("flush", &file.flush, d.flush, 10 * MS..=HOUR),
        target: d.target,
    };
    let access = file.access.as_ref();
    let access = access.and_then(|typed| Some((typed.get_ref().on()?, typed.span())));
    let target = access.map(|(path, at)| {
        let other = "\"-\" for standard output, or false";
        is_path("access", path, at, other, checks);
        match path.as_str() {
            "-" => AccessTarget::Stdout,
            path => AccessTarget::File(path.into()),
        }
    });
    let error = file.error.as_ref().map(|typed| {
        let other = "or \"-\" for standard error";
        is_path("error", typed.get_ref(), typed.span(), other, checks);
        if typed.get_ref() == "off" {
            let problem = Problem::error("`error` can't be switched off").at(typed.span());
            checks.push(problem.help("write `level = false` to log no messages"));
        }
        typed.get_ref().as_str()
    });
    let messages = match error {
        None | Some("-") => MessageTarget::Stderr,
        Some(path) => MessageTarget::File(path.into()),
    };
    LogOptions {
        level: match file.level {
            None => Level::default(),
            Some(OrFalse::False) => Level::Off,
            Some(OrFalse::On(Word(level))) => level,
        },
        messages,
        access: target.map(|target| AccessOptions { target, ..options }),
    }
}

/// Returns the file to which events are written (`events` in `[admin]`).
pub fn events(file: &AdminFile, checks: &mut Checks) -> Option<PathBuf> {
    let typed = file.events.as_ref()?;
    let path = typed.get_ref().on()?;
    is_path("events", path, typed.span(), "or false", checks);
    Some(path.into())
}

/// Checks that the destination of a log is a usable path. `other` describes the values that are
/// permitted instead.
fn is_path(name: &str, path: &str, at: Range<usize>, other: &str, checks: &mut Checks) {
    if path.is_empty() || path.contains('\0') {
        checks.push(
            Problem::error(format!("`{name}` is not a path"))
                .at(at)
                .help(format!("write a path, {other}")),
        );
    }
}

fn format(key: &Key<String>, checks: &mut Checks) -> AccessFormat {
    let Some(typed) = key else {
        return AccessFormat::default();
    };
    let text = typed.get_ref();
    match text.as_str() {
        "combined" => return AccessFormat::Combined,
        "combined_cache" => return AccessFormat::CombinedCache,
        "json" => return AccessFormat::Json,
        _ => {}
    }
    match Template::parse(text) {
        Ok(template) => {
            secrets(&template, typed, checks);
            variables::check(typed, &known_variables(), checks);
            AccessFormat::Template(Arc::new(template))
        }
        Err(error) => {
            checks.push(wrong(typed, &error));
            AccessFormat::default()
        }
    }
}

fn wrong(typed: &Spanned<String>, error: &TemplateError) -> Problem {
    let text = typed.get_ref();
    let span = typed.span();
    // If the string has no escapes, a position in the template is also a position in the file.
    let at = match span.len() == text.len() + 2 && !error.at.is_empty() {
        true => span.start + 1 + error.at.start..span.start + 1 + error.at.end,
        false => span,
    };
    let (title, help) = match &error.fault {
        TemplateFault::NoField => {
            match did_you_mean(text, ["combined", "combined_cache", "json"]) {
                Some(nearest) => (
                    format!("unknown format `{text}`"),
                    format!("did you mean `{nearest}`?"),
                ),
                None => (
                    "a format without a variable".to_owned(),
                    "write \"combined\", \"json\", or text with variables, as in \
                 '{client} {time_iso} \"{method} {target}\" {status}'"
                        .to_owned(),
                ),
            }
        }
        TemplateFault::Unknown(name) => (format!("unknown variable `{name}`"), other_name(name)),
        TemplateFault::NoFieldName(name) => (
            format!("`{name}` is not the name of a request header"),
            "write one as in {request.accept-language}".to_owned(),
        ),
        TemplateFault::Brace => (
            "an unmatched brace".to_owned(),
            "variables are written {status}; a brace in the text is written twice: {{ or }}"
                .to_owned(),
        ),
        TemplateFault::Character => (
            "a log line can't contain this character".to_owned(),
            "write visible ASCII, spaces and tabs".to_owned(),
        ),
        TemplateFault::Adjacent => (
            "two variables without a separator".to_owned(),
            "put a space or another separator between them, to mark the end of the first"
                .to_owned(),
        ),
        TemplateFault::Ending => (
            "the end of the variable before this is ambiguous".to_owned(),
            "put a space, a quote or another separator after it, but no letter, digit, `-` or `\\`"
                .to_owned(),
        ),
        TemplateFault::TooMuch => (
            "this format is too long".to_owned(),
            "it may have 4 KiB, 64 variables, and 16 different request headers".to_owned(),
        ),
    };
    Problem::error(title).at(at).help(help)
}

/// Returns advice on an unknown variable of a format.
fn other_name(name: &str) -> String {
    if let Some(ours) = variables::ours(name, &known_variables()) {
        return format!("write {ours}");
    }
    match did_you_mean(name, FIELD_NAMES.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!(
            "allowed here: {}, `request.NAME`",
            FIELD_NAMES.map_names().join(", ")
        ),
    }
}

/// Returns the names of the variables of a format.
fn known_variables() -> Vec<&'static str> {
    FIELD_NAMES
        .iter()
        .copied()
        .chain(["request.NAME"])
        .collect()
}

/// Formats names in backquotes.
trait Quoted {
    fn map_names(&self) -> Vec<String>;
}

impl Quoted for [&str] {
    fn map_names(&self) -> Vec<String> {
        self.iter().map(|name| format!("`{name}`")).collect()
    }
}

fn secrets(template: &Template, typed: &Spanned<String>, checks: &mut Checks) {
    let fields = template.request_headers();
    let secret = fields.iter().find(|name| SECRETS.contains(&&***name));
    if let Some(secret) = secret {
        checks.push(
            Problem::warning(format!("the access log shows `{secret}`"))
                .at(typed.span())
                .label("every reader of the log can use it")
                .help("leave it out, or protect the log like passwords"),
        );
    }
}

/// Returns the rule that selects the requests of a route that are logged. A route's key replaces
/// its site's key as a whole.
pub fn of_route(site: &SiteFile, route: &RouteFile, checks: &mut Checks) -> Option<LogRule> {
    match (&route.log, &site.log) {
        (Some(typed), _) => Some(rule(typed, checks)),
        // Errors in the site's key are dropped here, since `of_site` reports them.
        (None, Some(typed)) => Some(rule(typed, &mut Checks::default())),
        (None, None) => None,
    }
}

/// Reports errors in the log rule of a site.
pub fn of_site(site: &SiteFile, checks: &mut Checks) {
    if let Some(typed) = &site.log {
        rule(typed, checks);
    }
}

fn rule(typed: &Spanned<Switch<RouteLogFile>>, checks: &mut Checks) -> LogRule {
    let table = match typed.get_ref() {
        Switch::Off => return LogRule::none(),
        Switch::On => return LogRule::all(),
        Switch::Table(table) => table,
    };
    let statuses = table.statuses.iter().flat_map(List::get_ref);
    let statuses: Vec<_> = statuses.map(|range| range.get_ref().0.clone()).collect();
    let slower_than = table
        .slower_than
        .as_ref()
        .map(|_| checks.within("slower_than", &table.slower_than, HOUR, MS..=HOUR));
    let rest = match statuses.is_empty() && slower_than.is_none() {
        true => 1.0,
        false => 0.0,
    };
    LogRule {
        statuses,
        slower_than,
        sample: sample(&table.sample, rest, checks),
    }
}

fn sample(key: &Key<f64>, default: f64, checks: &mut Checks) -> f64 {
    let Some(typed) = key else { return default };
    let share = *typed.get_ref();
    if (0.0..=1.0).contains(&share) {
        return share;
    }
    checks.push(
        Problem::error("`sample` is out of bounds")
            .at(typed.span())
            .help("choose a share from 0 to 1, as in 0.01 for one request of a hundred"),
    );
    default
}
