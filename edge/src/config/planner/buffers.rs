//! Plans `[buffers]`, and the keys of routes that buffer bodies.

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::{BuffersFile, RouteFile};
use crate::config::report::Problem;
use crate::spool::{Buffered, Options};

/// Returns the options of buffers.
pub fn plan(file: &BuffersFile, checks: &mut Checks) -> Options {
    let default = Options::default().memory;
    Options {
        memory: checks.within("memory", &file.memory, default, 1 << 20..=1 << 50),
    }
}

/// Returns which bodies of a route are buffered.
pub fn of_route(route: &RouteFile, checks: &mut Checks) -> Buffered {
    let mut idle = |name: &str, key: &Spanned<bool>, label: &str, help: &str| {
        checks.push(
            Problem::warning(format!("`{name}` does nothing here"))
                .at(key.span())
                .label(label)
                .help(help),
        );
    };
    for (name, key) in [
        ("request_buffering", &route.request_buffering),
        ("response_buffering", &route.response_buffering),
    ] {
        if let Some(key) = key
            && route.proxy.is_none()
        {
            idle(name, key, "the route has no `proxy`", "leave it out");
        }
    }
    if let (Some(key), true, true) = (
        &route.response_buffering,
        route.proxy.is_some(),
        route.cache.is_some(),
    ) {
        let help = "leave it out, and write `read_ahead` in [cache.NAME] to have more fetched ahead of a slow client";
        idle(
            "response_buffering",
            key,
            "the route has a cache, which reads responses itself",
            help,
        );
    }
    let is_on = |key: &Option<Spanned<bool>>| key.as_ref().is_some_and(|key| *key.get_ref());
    Buffered {
        requests: is_on(&route.request_buffering),
        responses: is_on(&route.response_buffering) && route.cache.is_none(),
    }
}
