//! Checks of the folders that routes serve: whether the paths of a route can lead to files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::checks::Checks;
use super::file::{FilesFile, RouteFile};
use super::lints::paths::only_this_path;
use super::report::Problem;
use crate::sys::disk::access;

/// Returns the prefix that a route removes from paths, without a slash at its end.
fn stripped(files: &FilesFile) -> &str {
    let stripped = files.strip_prefix.as_ref();
    stripped.map_or("", |typed| typed.get_ref().trim_end_matches('/'))
}

/// Returns the file or folder of a request's path in a route's root.
fn place(path: &str, stripped: &str, root: &Path) -> PathBuf {
    let rest = path.strip_prefix(stripped).unwrap_or(path);
    root.join(rest.trim_start_matches('/'))
}

/// Warns if a path without a glob leads to a folder, or to nothing with the name of a folder. Returns
/// whether this is so.
fn single_path(
    path: &Spanned<String>,
    files: &FilesFile,
    root: &Path,
    checks: &mut Checks,
) -> bool {
    let text = path.get_ref();
    // The lints warn about a path that ends in a slash.
    let is_other = text.contains(['*', '%']) || text.ends_with('/') || !text.starts_with('/');
    if is_other || files.try_files.is_some() || text.split('/').any(|part| part == "..") {
        return false;
    }
    let is_named_as_file = text
        .rsplit('/')
        .next()
        .is_some_and(|name| name.contains('.'));
    let is_folder = match access::folder(&place(text, stripped(files), root)) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound && !is_named_as_file,
    };
    if is_folder {
        checks.push(only_this_path(path));
    }
    is_folder
}

/// Returns the folder in which all paths lie that a route's `path` matches.
fn folder_of_paths(path: &str) -> &str {
    let literal = path.split('*').next().unwrap_or_default();
    literal.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the folder in which all paths lie that a route's `path_regex` matches; empty if that is
/// unknown.
fn folder_of_regex(regex: &str) -> &str {
    let Some(anchored) = regex.strip_prefix('^').filter(|rest| !rest.contains('|')) else {
        return "";
    };
    let end = anchored.find(|c| r"\.+*?()[]{}$".contains(c));
    let literal = match end.map(|end| (&anchored[..end], &anchored[end..])) {
        // The last character may be missing from the path.
        Some((literal, rest)) if rest.starts_with(['*', '?', '{']) => {
            let mut chars = literal.chars();
            chars.next_back();
            chars.as_str()
        }
        Some((literal, _)) => literal,
        None => anchored,
    };
    folder_of_paths(literal)
}

/// Warns if a route's paths lie in a folder that the route's root does not have: `strip_prefix` is
/// probably missing.
pub fn check(route: &RouteFile, files: &FilesFile, root: &Path, checks: &mut Checks) {
    let (at, prefix) = match (&route.path, &route.path_regex) {
        (Some(path), _) => {
            if single_path(path, files, root, checks) {
                return;
            }
            (path.span(), folder_of_paths(path.get_ref()))
        }
        (None, Some(regex)) => (regex.span(), folder_of_regex(regex.get_ref())),
        (None, None) => return,
    };
    let is_plain = !prefix.contains('%') && !prefix.split('/').any(|part| part == "..");
    if !is_plain || prefix.len() < 2 || !prefix.starts_with('/') {
        return;
    }
    let stripped = stripped(files);
    let folder = place(prefix, stripped, root);
    let missing = access::folder(&folder).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !missing || files.try_files.is_some() {
        return;
    }
    let help = match stripped.is_empty() {
        true => format!(
            "write `files = {{ root = {:?}, strip_prefix = {prefix:?} }}` to look for {prefix}/NAME at {}",
            root.display().to_string(),
            root.join("NAME").display()
        ),
        false => "correct `strip_prefix` or `path`, or create the folder".to_owned(),
    };
    checks.push(
        Problem::warning("this route finds no file")
            .at(at)
            .label(format!("there is no folder {}", folder.display()))
            .help(help),
    );
}
