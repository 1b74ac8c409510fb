//! Warnings about paths of routes that match fewer requests than probably intended.

use std::collections::HashSet;

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::RouteFile;
use crate::config::report::Problem;

/// Warns about paths such as `/api/`, which nginx's `location` would compare as a prefix. `routes` are
/// the routes of one site.
pub fn check(routes: &[Spanned<RouteFile>], checks: &mut Checks) {
    // With another route for the paths below it, the exact path is intended.
    let globs: HashSet<&str> = routes
        .iter()
        .filter_map(|route| route.get_ref().path.as_ref())
        .filter(|path| path.get_ref().ends_with('*'))
        .map(|path| path.get_ref().trim_end_matches('*'))
        .collect();
    for route in routes.iter().map(Spanned::get_ref) {
        let Some(path) = &route.path else { continue };
        let text = path.get_ref().as_str();
        let is_folder = text.len() > 1 && text.ends_with('/') && !text.contains('*');
        let has_handler = route.proxy.is_some() || route.files.is_some();
        if is_folder && has_handler && !globs.contains(text) {
            checks.push(only_this_path(path));
        }
    }
}

/// Returns the warning that a route without a glob in its path matches nothing below the path.
pub fn only_this_path(path: &Spanned<String>) -> Problem {
    let folder = path.get_ref().trim_end_matches('/');
    Problem::warning("this route matches only this path")
        .at(path.span())
        .label("paths below it are not matched")
        .help(format!(
            "write \"{folder}/*\" for all paths below it, or `path_regex = '^{}$'` for this path alone",
            regex::escape(path.get_ref())
        ))
}
