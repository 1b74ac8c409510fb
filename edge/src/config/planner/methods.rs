//! Plans lists of methods: `allow_methods` and `invalidate_on`.

use toml::Spanned;

use super::names;
use crate::config::checks::Checks;
use crate::config::report::Problem;
use crate::config::value::Names;
use crate::http::fields::is_token;
use crate::http::{Method, Methods};

/// Returns the methods in `allow_methods`. The outer `None` means that the key is missing, the inner
/// `None` that all methods are allowed. GET includes HEAD.
pub fn allowed(key: Option<&Names>, checks: &mut Checks) -> Option<Option<Methods>> {
    let typed = key?;
    if typed.is_false() {
        return Some(None);
    }
    let mut all = Vec::new();
    for (method, _) in listed("allow_methods", typed, checks) {
        let is_get = method == Method::Get;
        for method in [method].into_iter().chain(is_get.then_some(Method::Head)) {
            if !all.contains(&method) {
                all.push(method);
            }
        }
    }
    Some(Some(all.into_iter().collect()))
}

/// Returns the methods in `invalidate_on`, or `base` if the key is missing.
pub fn invalidating(
    key: Option<&Names>,
    base: Option<&Methods>,
    checks: &mut Checks,
) -> Option<Methods> {
    let Some(typed) = key else {
        return base.cloned();
    };
    let listed = listed("invalidate_on", typed, checks);
    for (method, entry) in &listed {
        if method.is_safe() {
            checks.push(
                Problem::error(format!("{} never invalidates", method.as_str()))
                    .at(entry.span())
                    .label("this method is safe: it changes nothing on the origin (RFC 9110 9.2.1)")
                    .help("list methods such as POST, PUT, PATCH and DELETE, or write `false`"),
            );
        }
    }
    Some(listed.into_iter().map(|(method, _)| method).collect())
}

/// Warns about methods in `invalidate_on` that `allow_methods` refuses.
pub fn refused(listed: &Names, allowed: &Methods, checks: &mut Checks) {
    for entry in listed.get_ref() {
        let name = entry.get_ref();
        if !allowed.contains(&Method::from_token(name)) {
            checks.push(
                Problem::warning(format!("{name} in `invalidate_on` does nothing here"))
                    .at(entry.span())
                    .label("`allow_methods` refuses this method (405)")
                    .help("add the method to `allow_methods`, or leave it out here"),
            );
        }
    }
}

/// Returns the methods of a list, each with its entry in the file.
fn listed<'a>(
    name: &str,
    typed: &'a Names,
    checks: &mut Checks,
) -> Vec<(Method, &'a Spanned<String>)> {
    names::few(name, typed.get_ref().len(), typed.span(), checks);
    let entries = typed.get_ref().iter();
    let methods = entries.filter_map(|entry| Some((method(entry, checks)?, entry)));
    methods.collect()
}

/// Returns a method. Names of methods are case-sensitive (RFC 9110 9.1).
fn method(entry: &Spanned<String>, checks: &mut Checks) -> Option<Method> {
    let text = entry.get_ref();
    let capitals = text.to_ascii_uppercase();
    let is_known = !matches!(Method::from_token(&capitals), Method::Other(_));
    let problem = match Method::from_token(text) {
        _ if !is_token(text.as_bytes()) || text.len() > names::NAME_BYTES_MAX => {
            Problem::error(format!("`{text}` is not a method"))
                .help("write a name such as \"GET\", \"POST\" or \"PROPFIND\"")
        }
        Method::Other(_) if is_known => Problem::error(format!("`{text}` is not `{capitals}`"))
            .label("names of methods are case-sensitive")
            .help(format!("write `{capitals}`")),
        Method::Connect => Problem::error("CONNECT can't be listed")
            .label("Sluice answers every CONNECT with 501")
            .help("leave it out"),
        method => return Some(method),
    };
    checks.push(problem.at(entry.span()));
    None
}
