//! The sections of the file and their keys: reports sections in the wrong form, and finds the section to which a key
//! belongs.

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use crate::config::file::File;
use crate::config::report::Problem;

/// The forms of a section's header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `[server]`
    Single,
    /// `[[listener]]`
    Repeated,
    /// `[cache.NAME]`
    Named,
}

/// The sections at the top level of the file.
const SECTIONS: [(&str, Form); 12] = [
    ("server", Form::Single),
    ("limits", Form::Single),
    ("buffers", Form::Single),
    ("tls", Form::Single),
    ("admin", Form::Single),
    ("log", Form::Single),
    ("listener", Form::Repeated),
    ("site", Form::Repeated),
    ("route", Form::Repeated),
    ("volume", Form::Named),
    ("cache", Form::Named),
    ("upstream", Form::Named),
];

/// The places where keys may be written: the name of each place in messages, and the beginning of a file that ends in
/// that place.
const PLACES: [(&str, &str); 29] = [
    ("at the top of the file, before the first section", ""),
    ("in [server]", "[server]"),
    ("in [limits]", "[limits]"),
    ("in [buffers]", "[buffers]"),
    ("in [[listener]]", "[[listener]]"),
    ("in `tls` of [[listener]]", "[[listener]]\n[listener.tls]"),
    ("in [tls]", "[tls]"),
    ("in [admin]", "[admin]"),
    ("in [log]", "[log]"),
    ("in [cache.NAME]", "[cache.a]"),
    ("in [upstream.NAME]", "[upstream.a]"),
    ("in [volume.NAME]", "[volume.a]"),
    ("in `servers` of [upstream.NAME]", "[[upstream.a.servers]]"),
    ("in `retry` of [upstream.NAME]", "[upstream.a.retry]"),
    ("in `sign` of [upstream.NAME]", "[upstream.a.sign]"),
    ("in [[site]]", "[[site]]"),
    ("in `tls` of [[site]]", "[[site]]\n[site.tls]"),
    ("in [[site.route]]", "[[route]]"),
    ("in [site.route.files]", "[[route]]\n[route.files]"),
    ("in [site.route.compress]", "[[route]]\n[route.compress]"),
    ("in [site.route.limit]", "[[route]]\n[route.limit]"),
    (
        "in [site.route.signed_urls]",
        "[[route]]\n[route.signed_urls]",
    ),
    ("in [site.route.respond]", "[[route]]\n[route.respond]"),
    ("in [site.route.redirect]", "[[route]]\n[route.redirect]"),
    (
        "in [site.route.request_headers]",
        "[[route]]\n[route.request_headers]",
    ),
    ("in [site.route.expires]", "[[route]]\n[route.expires]"),
    (
        "in [site.route.error_pages]",
        "[[route]]\n[route.error_pages.404]",
    ),
    ("in [site.route.bypass]", "[[route]]\n[route.bypass]"),
    ("in [site.route.log]", "[[route]]\n[route.log]"),
];

/// Most places that the advice about a key lists.
const LISTED_MAX: usize = 3;

/// Returns the keys that are permitted in a place.
fn keys_of(before: &str) -> Vec<String> {
    // serde lists the permitted keys in its error about an unknown one. No key is empty.
    let text = format!("{before}\n\"\" = 0\n");
    let read = DeTable::parse(&text).and_then(|tree| File::deserialize(Deserializer::from(tree)));
    let message = read.err().map_or(String::new(), |e| e.message().to_owned());
    let known = message.split('`').skip(3).step_by(2);
    known.map(str::to_owned).collect()
}

/// Returns advice on where a key belongs, if it is permitted in other places than the one where it was written.
pub fn belongs(key: &str) -> Option<String> {
    if let Some((name, form)) = SECTIONS.iter().find(|(name, _)| *name == key) {
        let of_its_own = format!("`{name}` is a section of its own: {}", header(name, *form));
        return Some(format!("{of_its_own}{}", named_by(name)));
    }
    let places = PLACES.iter().filter(|(_, before)| {
        let keys = keys_of(before);
        keys.iter().any(|known| known == key)
    });
    let places: Vec<&str> = places.map(|(place, _)| *place).take(LISTED_MAX).collect();
    let (last, others) = places.split_last()?;
    Some(match others.is_empty() {
        true => format!("`{key}` belongs {last}"),
        false => format!("`{key}` belongs {} or {last}", others.join(", ")),
    })
}

/// Returns advice on a section of a route that was written at the top level, such as `[files]`.
pub fn of_route(key: &str) -> Option<String> {
    let place = format!("in [site.route.{key}]");
    let mut places = PLACES.iter();
    places
        .any(|(known, _)| *known == place)
        .then(|| format!("write [site.route.{key}], below the [[site.route]] that it is for"))
}

/// Changes the advice of problems to the form of the file's routes: `[[route]]` and `[route.files]` in
/// a file without `[[site]]`.
pub fn as_written(text: &str, problems: &mut [Problem]) {
    let has = |header: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with(header))
    };
    if !has("[[route]]") || has("[[site") {
        return;
    }
    for help in problems
        .iter_mut()
        .filter_map(|problem| problem.help.as_mut())
    {
        *help = help.replace("[site.route", "[route");
    }
}

/// Returns advice on the key by which other sections refer to a named section.
fn named_by(section: &str) -> &'static str {
    match section {
        "cache" => "; `cache = \"NAME\"` belongs in [[site.route]]",
        "upstream" => "; a route refers to it with `proxy = \"NAME\"`",
        "volume" => "; a cache refers to it with `volumes = \"NAME\"`",
        _ => "",
    }
}

fn header(name: &str, form: Form) -> String {
    match form {
        Form::Single => format!("[{name}]"),
        Form::Repeated => format!("[[{name}]]"),
        Form::Named => format!("[{name}.NAME]"),
    }
}

/// Removes sections that are not written in their form, and reports them. Routes below `[[site.route]]`
/// without a `[[site]]` become those of a site for any host.
pub fn misplaced(file: &mut DeTable<'_>) -> Vec<Problem> {
    implied_site(file);
    let mut problems = Vec::new();
    for (name, form) in SECTIONS {
        let Some((key, value)) = file.get_key_value(name) else {
            continue;
        };
        let at = key.span();
        if let Some(problem) = other_route(name, file) {
            problems.push(problem);
            file.remove(name);
            continue;
        }
        let found = match form {
            Form::Single => single(name, value.get_ref()),
            Form::Repeated => repeated(name, value.get_ref()),
            Form::Named => named(name, value.get_ref()),
        };
        if let Some(problem) = found {
            problems.push(problem.at(at));
            file.remove(name);
        }
    }
    problems.extend(single_routes(file));
    problems
}

/// Reports a section of a route, such as `[site.route.files]`, in a file whose routes have the other
/// form.
fn other_route(name: &str, file: &DeTable<'_>) -> Option<Problem> {
    let table = |of: &str| file.get(of).and_then(|value| value.get_ref().as_table());
    let is_list = |of: &str| file.get(of).is_some_and(|value| value.get_ref().is_array());
    let (route, wrong, right, form) = match name {
        "site" if is_list("route") => {
            let route = table("site")?.get("route")?.get_ref().as_table()?;
            (route, "site.route", "route", "[[route]]")
        }
        "route" if is_list("site") => (table("route")?, "route", "site.route", "[[site.route]]"),
        _ => return None,
    };
    let mut sections = route.iter().filter(|(_, value)| value.get_ref().is_table());
    let (key, _) = sections.next()?;
    let section = key.get_ref();
    Some(
        Problem::error(format!("[{wrong}.{section}] belongs to no route"))
            .at(key.span())
            .help(format!(
                "write [{right}.{section}]: the routes of this file are {form}"
            )),
    )
}

/// Makes a list with one site of a `site` that has nothing but routes.
fn implied_site(file: &mut DeTable<'_>) {
    let Some(site) = file.get_mut("site") else {
        return;
    };
    let only_routes = |table: &DeTable<'_>| {
        let mut keys = table.iter();
        keys.all(|(key, value)| key.get_ref() == "route" && value.get_ref().is_array())
    };
    if site.get_ref().as_table().is_some_and(only_routes) {
        let one = std::mem::replace(site.get_mut(), DeValue::Boolean(false));
        let mut list = DeArray::new();
        list.push(Spanned::new(site.span(), one));
        *site.get_mut() = DeValue::Array(list);
    }
}

fn is_list_of_tables(value: &DeValue<'_>) -> bool {
    let list = value.as_array();
    list.is_some_and(|list| !list.is_empty() && list.iter().all(|entry| entry.get_ref().is_table()))
}

fn single(name: &str, value: &DeValue<'_>) -> Option<Problem> {
    if value.is_table() {
        return None;
    }
    let problem = Problem::error(format!("`{name}` is a section"));
    Some(match (is_list_of_tables(value), name) {
        (true, "server") => problem.help(
            "write [server], with one bracket, for settings of the program; hosts and their routes are in [[site]]",
        ),
        (true, _) => problem.help(format!("write [{name}], with one bracket")),
        (false, _) => problem.help(format!("write [{name}], and its keys in the lines below")),
    })
}

fn repeated(name: &str, value: &DeValue<'_>) -> Option<Problem> {
    if is_list_of_tables(value) {
        return None;
    }
    let problem = Problem::error(format!("`{name}` is a list of sections"));
    Some(match value.is_table() {
        true => problem.help(format!(
            "write [[{name}]], with two brackets, since there may be several"
        )),
        false => problem.help(format!("write [[{name}]], and its keys in the lines below")),
    })
}

fn named(name: &str, value: &DeValue<'_>) -> Option<Problem> {
    let example = match name {
        "volume" => "disk1",
        "cache" => "main",
        _ => "origin",
    };
    let problem = Problem::error(format!("a section [{name}.NAME] without its name"));
    let problem = problem.help(format!("write [{name}.{example}], with any name"));
    let Some(table) = value.as_table() else {
        return Some(match value.is_array() {
            true => problem,
            false => Problem::error(format!("`{name}` is a section")).help(format!(
                "write [{name}.{example}], and its keys in the lines below{}",
                named_by(name)
            )),
        });
    };
    let unnamed = table.values().any(|value| !value.get_ref().is_table());
    unnamed.then_some(problem)
}

/// Reports routes of sites that are written `[site.route]`, and removes them.
fn single_routes(file: &mut DeTable<'_>) -> Vec<Problem> {
    let Some(DeValue::Array(sites)) = file.get_mut("site").map(Spanned::get_mut) else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for site in sites.iter_mut() {
        let DeValue::Table(site) = site.get_mut() else {
            continue;
        };
        let Some((key, value)) = site.get_key_value("route") else {
            continue;
        };
        if let Some(problem) = repeated("site.route", value.get_ref()) {
            problems.push(problem.at(key.span()));
            site.remove("route");
        }
    }
    problems
}
