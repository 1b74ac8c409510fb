//! Plans `follow_redirects` of a route.

use toml::Spanned;

use super::names::named;
use super::redirect_hosts::{HOSTS_MAX, is_url, of_key};
use super::{server_url, upstreams};
use crate::config::checks::Checks;
use crate::config::file::{FollowForm, RouteFile, UpstreamFile};
use crate::config::plan::FollowRedirects;
use crate::config::report::Problem;
use crate::config::value::Named;

/// Redirects that are followed for one request if `times` is missing, and the largest number.
const TIMES: u64 = 5;
const TIMES_MAX: u64 = 20;
const EXAMPLE: &str = "write a URL without a path, as in \"https://bucket.example.com\", or the NAME of an [upstream.NAME]";

/// Returns the redirects that a route follows; `None` if clients get all redirects.
pub fn plan(
    typed: &RouteFile,
    known: &Named<UpstreamFile>,
    checks: &mut Checks,
) -> Option<FollowRedirects> {
    let key = typed.follow_redirects.as_ref()?;
    let FollowForm::On(file) = key.get_ref() else {
        return None;
    };
    if typed.proxy.is_none() {
        checks.push(
            Problem::warning("`follow_redirects` does nothing here")
                .at(key.span())
                .label("the route has no `proxy`")
                .help("leave it out"),
        );
    }
    let times = checks.within("times", &file.times, TIMES, 1..=TIMES_MAX);
    if key.get_ref().to().len() > HOSTS_MAX {
        let problem = Problem::error(format!("more than {HOSTS_MAX} hosts")).at(key.span());
        checks.push(problem.help("write fewer, or several routes"));
    }
    let to = of_key(key).filter_map(|host| upstream(&host, known, checks));
    Some(FollowRedirects {
        times: u8::try_from(times).unwrap_or(u8::MAX),
        to: to.collect(),
    })
}

/// Returns the name of the upstream to which an entry refers by name or URL.
fn upstream(
    host: &Spanned<String>,
    known: &Named<UpstreamFile>,
    checks: &mut Checks,
) -> Option<String> {
    let text = host.get_ref();
    if known.keys().any(|name| name.get_ref() == text) {
        return Some(text.clone());
    }
    if is_url(text) {
        // `upstreams::of_routes` reports a URL that is invalid.
        return upstreams::name_of(text);
    }
    if server_url::is_url(text) || text.contains(['.', ':', '/', '*']) {
        checks.push(
            Problem::error("this is not a host to which redirects may lead")
                .at(host.span())
                .help(EXAMPLE),
        );
        return None;
    }
    named("upstream", Some(host), known, checks)
}
