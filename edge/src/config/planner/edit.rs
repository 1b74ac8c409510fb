//! Plans `request_headers`, `response_headers`, `expires`, `cache_control`, `security_headers`,
//! `error_pages` and `intercept_errors` of sites and routes.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;

use super::names::few;
use crate::config::checks::{Checks, MONTH};
use crate::config::file::{ExpiresFile, HeadersFile, PageFile, PagesFile, RouteFile, SiteFile};
use crate::config::lints::variables;
use crate::config::report::Problem;
use crate::config::value::{
    Key, OrFalse, OrTable, StatusRange, Table, YEAR, has_months, show_size, show_time,
};
use crate::edit::{
    ErrorPage, ErrorPages, Expires, FieldEdits, Lifetime, Options, Template, Variable,
};
use crate::http::fields::{is_field_value, is_token};
use crate::http::hop::{self, HOP_BY_HOP, is_in};

/// Reads the file of an error page. Returns `None` if files must not be read.
pub type ReadPage<'a> = &'a dyn Fn(&Path) -> Option<io::Result<String>>;

/// Longest error page, in bytes.
pub const PAGE_BYTES_MAX: u64 = 256 << 10;
/// Longest lifetime in `expires`.
const LIFETIME_MAX: Duration = YEAR.saturating_mul(10);

/// The values of the keys about headers and error pages in one section. A route's value replaces
/// its site's.
#[derive(Clone, Default)]
pub struct Level {
    request: Option<FieldEdits>,
    response: Option<FieldEdits>,
    expires: Option<Expires>,
    cache_control: Option<Option<Box<str>>>,
    security: Option<bool>,
    pages: Option<Vec<ErrorPage>>,
    intercept: Key<bool>,
    /// Whether this is a site with TLS.
    tls: bool,
}

/// Parses these keys of a section, which may be a site or a route.
macro_rules! level_of {
    ($typed:expr, $read:expr, $checks:expr) => {{
        let (typed, read, checks) = ($typed, $read, $checks);
        Level {
            request: fields(&typed.request_headers, Side::Request, checks),
            response: fields(&typed.response_headers, Side::Response, checks),
            expires: expires(&typed.expires, checks),
            cache_control: cache_control(&typed.cache_control, checks),
            security: typed.security_headers,
            pages: pages(&typed.error_pages, read, checks),
            intercept: typed.intercept_errors.clone(),
            tls: false,
        }
    }};
}

impl Level {
    /// Parses the keys of a site.
    pub fn of_site(typed: &SiteFile, read: ReadPage<'_>, checks: &mut Checks) -> Level {
        Level {
            tls: typed.tls.is_some(),
            ..level_of!(typed, read, checks)
        }
    }

    /// Parses the keys of a route.
    pub fn of_route(typed: &RouteFile, read: ReadPage<'_>, checks: &mut Checks) -> Level {
        level_of!(typed, read, checks)
    }

    /// Returns the edits of a route of this site. `keep_own`: see `ErrorPages`.
    pub fn within(self, site: &Level, keep_own: bool, checks: &mut Checks) -> Option<Arc<Options>> {
        let site = site.clone();
        let pages = self.pages.or(site.pages).unwrap_or_default();
        if let Some(typed) = self.intercept.as_ref().filter(|typed| *typed.get_ref())
            && pages.is_empty()
        {
            checks.push(
                Problem::warning("`intercept_errors` does nothing here")
                    .at(typed.span())
                    .label("there are no pages to replace the origin's")
                    .help("add `error_pages = { 404 = \"FILE\" }`, or leave this out"),
            );
        }
        let intercept = self.intercept.or(site.intercept);
        let options = Options {
            request: self.request.or(site.request).unwrap_or_default(),
            response: self.response.or(site.response).unwrap_or_default(),
            expires: self
                .expires
                .or(site.expires)
                .filter(|expires| !is_off(expires)),
            cache_control: self.cache_control.or(site.cache_control).flatten(),
            security: self.security.or(site.security).unwrap_or_default(),
            errors: ErrorPages {
                intercept: !pages.is_empty() && intercept.is_some_and(Spanned::into_inner),
                keep_own: !pages.is_empty() && keep_own,
                pages,
            },
            tls: site.tls,
        };
        (!options.is_empty()).then(|| Arc::new(options))
    }
}

fn is_off(expires: &Expires) -> bool {
    let mut types = expires.types.iter();
    expires.default == Lifetime::Off && types.all(|(_, lifetime)| *lifetime == Lifetime::Off)
}

/// The message whose headers are edited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// Value of `set` or `add`, as it was written.
type Lines = Option<BTreeMap<Spanned<String>, Spanned<String>>>;

fn fields(
    key: &Key<OrFalse<Table<HeadersFile>>>,
    side: Side,
    checks: &mut Checks,
) -> Option<FieldEdits> {
    let OrFalse::On(Table(typed)) = key.as_ref()?.get_ref() else {
        return Some(FieldEdits::default());
    };
    let mut edits = FieldEdits::default();
    for (name, line) in lines("set", &typed.set, side, checks) {
        edits.remove.push(name.clone());
        edits.put.push((name, line));
    }
    edits.put.extend(lines("add", &typed.add, side, checks));
    if let Some(removed) = &typed.remove {
        few("remove", removed.get_ref().len(), removed.span(), checks);
        let names = removed.get_ref().iter();
        let names = names.filter_map(|name| field_name(name, side, checks));
        edits.remove.extend(names);
    }
    Some(edits)
}

fn lines(key: &str, typed: &Lines, side: Side, checks: &mut Checks) -> Vec<(Box<str>, Template)> {
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    for (name, value) in typed.iter().flatten() {
        few(key, lines.len() + 1, name.span(), checks);
        let (Some(field), Some(template)) = (
            field_name(name, side, checks),
            field_value(value, side, checks),
        ) else {
            continue;
        };
        if !seen.insert(field.clone()) {
            checks.push(
                Problem::error(format!("`{key}` has `{field}` twice"))
                    .at(name.span())
                    .help("keep one; names of headers are case-insensitive"),
            );
        }
        lines.push((field, template));
    }
    lines
}

/// Returns a header name in lower case, if the header may be set, added and removed.
fn field_name(name: &Spanned<String>, side: Side, checks: &mut Checks) -> Option<Box<str>> {
    let text = name.get_ref();
    if !is_token(text.as_bytes()) || text.len() > 128 {
        checks.push(
            Problem::error(format!("`{text}` is not the name of a header"))
                .at(name.span())
                .help("write the name alone: letters, digits and !#$%&'+-.^_`|~"),
        );
        return None;
    }
    if let Some((why, help)) = not_ours_to_edit(text.as_bytes(), side) {
        checks.push(
            Problem::error(format!("`{text}` can't be edited"))
                .at(name.span())
                .label(why)
                .help(help),
        );
        return None;
    }
    Some(text.to_ascii_lowercase().into())
}

/// Returns the reason why a header of this name can't be edited, and the advice.
fn not_ours_to_edit(name: &[u8], side: Side) -> Option<(&'static str, &'static str)> {
    let out = "leave it out";
    if is_in(&["content-length", "transfer-encoding", "trailer"], name) {
        return Some((
            "it frames the message (RFC 9112 6), and Sluice sets it itself",
            out,
        ));
    }
    if is_in(HOP_BY_HOP, name) {
        return Some(("it is a hop-by-hop header (RFC 9110 7.6.1)", out));
    }
    match side {
        Side::Request if is_in(&["host"], name) => Some((
            "it selects the site and is part of cache keys",
            "for another one towards the origin, set `host` of the [upstream.NAME]",
        )),
        Side::Request if is_in(&["expect"], name) => {
            Some(("Sluice answers it before edits apply", out))
        }
        Side::Request if is_in(&["via"], name) => Some((
            "Sluice adds its own entry to it (RFC 9110 7.6.3)",
            "to send requests without it, set `via = false` in the [upstream.NAME]",
        )),
        Side::Request if hop::reads_as(name, b"cdn-loop") => {
            Some(("it detects request loops (RFC 8586)", out))
        }
        Side::Request if hop::reads_as(name, b"x-real-ip") => Some((
            "Sluice replaces or removes it in requests to the origin",
            "to send the client's address in it, set `x_real_ip = true` in the [upstream.NAME]",
        )),
        Side::Request if hop::is_reported(name) => Some((
            "Sluice replaces or removes it in requests to the origin",
            "choose another name, as in X-Client = \"{client}\"",
        )),
        Side::Response if is_in(&["content-encoding", "content-range"], name) => {
            Some(("it describes the encoding or range of the content", out))
        }
        Side::Response if is_in(&["age", "cache-status"], name) => {
            Some(("Sluice sets it to describe the cache's work", out))
        }
        _ => None,
    }
}

fn field_value(value: &Spanned<String>, side: Side, checks: &mut Checks) -> Option<Template> {
    let template = template(value, checks)?;
    let is_status = |variable: &Variable| *variable == Variable::Status;
    if side == Side::Request && template.variables().any(is_status) {
        checks.push(
            Problem::error("a request has no `{status}`")
                .at(value.span())
                .help("use it in `response_headers`"),
        );
    }
    Some(template)
}

/// Parses text with variables.
pub fn template(value: &Spanned<String>, checks: &mut Checks) -> Option<Template> {
    match Template::parse(value.get_ref()) {
        Ok(template) => {
            variables::check(value, &Variable::names(), checks);
            Some(template)
        }
        Err(error) => {
            checks.push(
                Problem::error(format!("this can't be sent: {error}"))
                    .at(value.span())
                    .help(error.advice()),
            );
            None
        }
    }
}

fn cache_control(key: &Key<OrFalse<String>>, checks: &mut Checks) -> Option<Option<Box<str>>> {
    let typed = key.as_ref()?;
    let OrFalse::On(text) = typed.get_ref() else {
        return Some(None);
    };
    let text = text.trim();
    if text.is_empty() || !is_field_value(text.as_bytes()) {
        checks.push(
            Problem::error("this is not a Cache-Control")
                .at(typed.span())
                .help("write directives as in \"public, max-age=31536000, immutable\", or false"),
        );
    }
    Some(Some(text.into()))
}

fn expires(key: &Key<OrFalse<OrTable<ExpiresFile>>>, checks: &mut Checks) -> Option<Expires> {
    let typed = key.as_ref()?;
    let OrFalse::On(OrTable(file)) = typed.get_ref() else {
        return Some(Expires {
            default: Lifetime::Off,
            types: Vec::new(),
        });
    };
    if file.default.is_none() && file.types.is_none() {
        checks.push(
            Problem::error("`expires` without a lifetime")
                .at(typed.span())
                .help("write a time as in \"1h\", or `false` to turn it off"),
        );
    }
    let default = file.default.as_ref().map(|default| {
        let at = if default.span().is_empty() {
            typed.span()
        } else {
            default.span()
        };
        lifetime(default.get_ref(), at, checks)
    });
    let mut types = Vec::new();
    for (media_type, typed) in file.types.iter().flatten() {
        few("types", types.len() + 1, media_type.span(), checks);
        let text = media_type.get_ref().trim().to_ascii_lowercase();
        if !is_media_type_or_range(&text) {
            checks.push(
                Problem::error("this is not a media type")
                    .at(media_type.span())
                    .help("write one as in \"text/html\", or \"image/*\" for all images"),
            );
        }
        types.push((text.into(), lifetime(typed.get_ref(), typed.span(), checks)));
    }
    Some(Expires {
        default: default.unwrap_or(Lifetime::Off),
        types,
    })
}

fn is_media_type_or_range(text: &str) -> bool {
    let is_name = |name: &str| is_token(name.as_bytes()) && !name.contains('*');
    text.split_once('/')
        .is_some_and(|(kind, own)| is_name(kind) && (own == "*" || is_name(own)))
}

fn lifetime(typed: &OrFalse<String>, at: std::ops::Range<usize>, checks: &mut Checks) -> Lifetime {
    let OrFalse::On(text) = typed else {
        return Lifetime::Off;
    };
    let parsed = Lifetime::parse(text);
    let long = match parsed {
        Some(Lifetime::For(time) | Lifetime::Past(time)) => time > LIFETIME_MAX,
        _ => false,
    };
    let problem = match parsed {
        Some(lifetime) if !long => {
            if let (Lifetime::For(time) | Lifetime::Past(time), true) = (lifetime, has_months(text)) {
                checks.push(
                    Problem::warning("the unit of `expires` may be misread")
                        .at(at)
                        .label(format!("this is {}", show_time(time)))
                        .help(MONTH),
                );
            }
            return lifetime;
        }
        Some(_) => Problem::error("this is too long")
            .help(format!("keep to {}, or write \"max\"", show_time(LIFETIME_MAX))),
        None => Problem::error(format!("{text:?} is not a lifetime"))
            .help("write a time as in \"1h\" or \"30days\", \"-1\" for one in the past, \"epoch\", \"max\" or false"),
    };
    checks.push(problem.at(at));
    Lifetime::Off
}

fn pages(
    key: &Key<OrFalse<Table<PagesFile>>>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Option<Vec<ErrorPage>> {
    let typed = key.as_ref()?;
    let OrFalse::On(Table(PagesFile(file))) = typed.get_ref() else {
        return Some(Vec::new());
    };
    few("error_pages", file.len(), typed.span(), checks);
    let mut pages = Vec::new();
    for (which, page) in file {
        let range = StatusRange::parse(which.get_ref());
        match range.filter(|range| range.is_within(&(400..=599))) {
            Some(StatusRange(statuses)) => pages.extend(one_page(statuses, page, read, checks)),
            None => checks.push(
                Problem::error(format!(
                    "`{}` is not the status of an error",
                    which.get_ref()
                ))
                .at(which.span())
                .help(
                    "write a status from 400 to 599, a class, as in 5xx, or a range, as in 500-503",
                ),
            ),
        }
    }
    Some(pages)
}

fn one_page(
    statuses: RangeInclusive<u16>,
    typed: &Spanned<OrTable<PageFile>>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Option<ErrorPage> {
    let OrTable(page) = typed.get_ref();
    let (content, guess) = match (&page.file, &page.text) {
        (Some(file), None) => {
            let at = if file.span().is_empty() {
                typed.span()
            } else {
                file.span()
            };
            (
                page_file(file.get_ref(), at, read, checks)?,
                type_of(file.get_ref()),
            )
        }
        (None, Some(text)) => (text.get_ref().clone(), "text/plain; charset=utf-8".into()),
        (file, _) => {
            let (what, help) = match file {
                None => (
                    "a page without content",
                    "write the path of a file, or { text = \"…\" }",
                ),
                Some(_) => ("a page with both `file` and `text`", "keep one"),
            };
            checks.push(Problem::error(what).at(typed.span()).help(help));
            return None;
        }
    };
    Some(ErrorPage {
        statuses,
        file: page
            .file
            .as_ref()
            .map(|file| Path::new(file.get_ref()).into()),
        content: content.into(),
        media_type: media_type(&page.r#type, guess, checks),
    })
}

fn page_file(
    path: &str,
    at: std::ops::Range<usize>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Option<String> {
    match read(Path::new(path)) {
        None => Some(String::new()),
        Some(Ok(content)) => Some(content),
        Some(Err(error)) => {
            checks.push(
                Problem::error(format!("can't read an error page: {error}"))
                    .at(at)
                    .help(format!(
                        "name a file in UTF-8 of at most {} that can be read, or write {{ text = \"…\" }}",
                        show_size(PAGE_BYTES_MAX)
                    )),
            );
            None
        }
    }
}

/// Returns the media type for a file's extension, or HTML if the extension is unknown.
fn type_of(path: &str) -> Box<str> {
    let guess = mime_guess::from_path(path);
    match guess.first_raw() {
        Some(other) if !other.starts_with("text/") => other.into(),
        text => format!("{}; charset=utf-8", text.unwrap_or("text/html")).into(),
    }
}

/// Returns the value of `type`, or the default.
pub fn media_type(key: &Key<String>, default: Box<str>, checks: &mut Checks) -> Box<str> {
    let Some(typed) = key else { return default };
    let text = typed.get_ref().trim();
    if !text.contains('/') || !is_field_value(text.as_bytes()) {
        checks.push(
            Problem::error("this is not a media type")
                .at(typed.span())
                .help("write one as in \"text/html; charset=utf-8\""),
        );
    }
    text.into()
}
