//! Plans `respond` and `redirect` of a route.

use toml::Spanned;

use super::edit::{media_type, template};
use crate::config::checks::Checks;
use crate::config::file::{RedirectFile, RespondFile};
use crate::config::report::Problem;
use crate::config::value::{Key, OrTable};
use crate::edit::{RedirectOptions, RespondOptions, Template, Variable};
use crate::http::Status;

/// Returns the options of a fixed response.
pub fn respond(typed: &Spanned<OrTable<RespondFile>>, checks: &mut Checks) -> RespondOptions {
    let OrTable(file) = typed.get_ref();
    let status = status(
        &file.status,
        200,
        &|status| (200..=599).contains(&status),
        checks,
    );
    let content = file.body.as_ref().map(|body| body.get_ref().clone());
    let wrong = match status {
        206 | 304 => Some("this status answers a range or conditional request"),
        204 | 205 if content.is_some() => {
            Some("this status has no content (RFC 9110 6.4.1, 15.3.6)")
        }
        _ => None,
    };
    if let Some(why) = wrong {
        checks.push(
            Problem::error(format!("{status} can't be the status here"))
                .at(file.status.as_ref().map_or(typed.span(), Spanned::span))
                .label(why)
                .help("choose another status, as 200, or leave `body` out"),
        );
    }
    RespondOptions {
        status,
        content: content.map(Into::into),
        media_type: media_type(&file.r#type, "text/plain; charset=utf-8".into(), checks),
    }
}

/// Returns the options of a redirect.
pub fn redirect(
    typed: &Spanned<OrTable<RedirectFile>>,
    checks: &mut Checks,
) -> Option<RedirectOptions> {
    let OrTable(file) = typed.get_ref();
    let redirects = |status| matches!(status, 301 | 302 | 303 | 307 | 308);
    let status = status(&file.status, 301, &redirects, checks);
    let Some(to) = &file.to else {
        checks.push(
            Problem::error("`redirect` without a target")
                .at(typed.span())
                .help("add `to = \"https://{hostname}{path}{query}\"`"),
        );
        return None;
    };
    let at = match to.span() {
        span if span.is_empty() => typed.span(),
        span => span,
    };
    let to = Spanned::new(at.clone(), to.get_ref().clone());
    let template = template(&to, checks)?;
    if let Some(why) = not_an_address(&template) {
        checks.push(
            Problem::error("this is not a target for a redirect").at(at).label(why).help(
                "write a URL or a path, as in \"https://{hostname}{path}{query}\" or \"/new{path}\"",
            ),
        );
        return None;
    }
    if SELF_REDIRECTS.contains(&to.get_ref().as_str()) {
        checks.push(
            Problem::warning("this redirects to the same URL")
                .at(at)
                .label("the redirected request matches this route again")
                .help("redirect to another scheme, host or path"),
        );
    }
    Some(RedirectOptions {
        to: template,
        status,
    })
}

/// Targets that redirect to the requested URL itself.
const SELF_REDIRECTS: [&str; 4] = [
    "{path}",
    "{path}{query}",
    "{scheme}://{host}{path}",
    "{scheme}://{host}{path}{query}",
];

/// Returns the reason why a template isn't a URI reference with a scheme or an absolute path (RFC
/// 3986 4.1).
fn not_an_address(to: &Template) -> Option<&'static str> {
    let unfit = |variable: &Variable| {
        matches!(
            variable,
            Variable::Status | Variable::Header(_) | Variable::Cookie(_)
        )
    };
    if to.variables().any(unfit) {
        return Some("{status}, {header:NAME} and {cookie:NAME} can't be used here");
    }
    let typed = to.to_string();
    if typed
        .bytes()
        .any(|b| !b.is_ascii_graphic() || b"\"<>\\^`|".contains(&b))
    {
        return Some("spaces, quotes, and bytes beyond ASCII must be escaped with %");
    }
    let scheme = typed.split_once("://").map(|(scheme, _)| scheme);
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    let begins = typed.starts_with('/')
        || typed.starts_with("{path}")
        || scheme.is_some_and(|scheme| scheme == "{scheme}" || is_name(scheme));
    (!begins).then_some("the target begins neither with a scheme nor with a slash")
}

/// Returns the status if `fits` accepts it, else the default.
fn status(
    key: &Key<u64>,
    default: Status,
    fits: &dyn Fn(Status) -> bool,
    checks: &mut Checks,
) -> Status {
    let Some(typed) = key else { return default };
    let status = Status::try_from(*typed.get_ref()).ok();
    let fitting = status.filter(|status| fits(*status));
    fitting.unwrap_or_else(|| {
        let help = match default {
            301 => "choose 301, 302, 303, 307 or 308",
            _ => "choose a status from 200 to 599",
        };
        checks.push(
            Problem::error(format!("{} can't be the status here", typed.get_ref()))
                .at(typed.span())
                .help(help),
        );
        default
    })
}
