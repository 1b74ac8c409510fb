//! Reads the text of a configuration file, and reports all of its unknown keys and values of the
//! wrong type at once, each with its position and advice.

mod environment;
mod foreign;
mod renamed;
mod sections;
mod toml_errors;
mod tree;

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::file::File;
use super::report::{COUNTED_MAX, Problem};
use super::suggestions::did_you_mean;
use super::value;
pub use environment::expand_here;
pub use foreign::advice as foreign_advice;
pub use sections::as_written;
use tree::{Kind, Taken};

/// Keys and words that are planned but not supported in this version.
const PLANNED: &[&str] = &["tls", "protocols"];

/// Advice for a key or section that is written twice.
const ONCE: &str =
    "write each key and each [section] once; a [[site]] comes before its [[site.route]]";

/// Parses the text of a configuration file.
///
/// # Errors
///
/// All syntax errors; if there are none, all unknown keys and values of the wrong type.
pub fn read(text: &str) -> Result<File, Vec<Problem>> {
    let (mut tree, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(syntax_errors(text, &errors));
    }
    let mut problems = expand_here(tree.get_mut());
    problems.append(&mut sections::misplaced(tree.get_mut()));
    // serde stops at the first error. The entry that causes it is therefore removed, and the rest
    // is read again.
    while problems.len() < COUNTED_MAX {
        let error = match File::deserialize(Deserializer::from(tree.clone())) {
            Ok(file) if problems.is_empty() => return Ok(file),
            Ok(_) => break,
            Err(error) => error,
        };
        let taken = error.span().and_then(|at| tree::take(tree.get_mut(), &at));
        problems.push(problem(&error, taken.as_ref()));
        if taken.is_none() {
            break;
        }
    }
    problems.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
    Err(problems)
}

/// Returns the syntax errors, one for each line: a further error in a line is mostly a consequence
/// of the first one.
fn syntax_errors(text: &str, errors: &[toml::de::Error]) -> Vec<Problem> {
    let line = |error: &toml::de::Error| {
        let before = error.span().and_then(|at| text.get(..at.start));
        before.map(|before| before.matches('\n').count())
    };
    let mut last = None;
    let mut problems = Vec::new();
    for error in errors {
        if problems.is_empty() || last != Some(line(error)) {
            let advice = error.span();
            let advice = advice.and_then(|at| toml_errors::advice(error.message(), text, &at));
            let problem = problem(error, None);
            problems.push(match advice {
                Some(advice) => problem.help(advice),
                None => problem,
            });
        }
        last = Some(line(error));
    }
    if let Some(other) = toml_errors::other_language(text, &problems) {
        return vec![other];
    }
    problems.truncate(COUNTED_MAX);
    problems
}

/// Turns an error of the TOML parser into a problem with Sluice's own message. `taken` is the entry
/// that causes the error.
fn problem(error: &toml::de::Error, taken: Option<&Taken>) -> Problem {
    let (title, advice) = match error.message().split_once('\n') {
        Some((title, advice)) => (title, Some(advice.to_owned())),
        None => (error.message(), None),
    };
    let problem = match unknown_word(title) {
        Some(("key", word, known)) => unknown_key(word, &known, taken),
        Some((kind, word, known)) => unknown(kind, word, &known),
        None => {
            let (title, how) = value::advice(title);
            let once = (title == "duplicate key").then(|| ONCE.to_owned());
            Problem {
                help: advice.or_else(|| taken.and_then(meant)).or(how).or(once),
                ..Problem::error(title)
            }
        }
    };
    match error.span() {
        Some(span) => problem.at(span),
        None => problem,
    }
}

/// Advice on values of another type: the key, the kind of the value, and the advice. In the advice,
/// `{n}` is the value's number.
const MEANT: &[(&str, Kind, &str)] = &[
    ("hedge", Kind::True, "write `hedge = {}` for the defaults"),
    (
        "health",
        Kind::True,
        "write `health = {}` for the defaults, or a table as in { path = \"/healthz\" }",
    ),
    ("eject", Kind::True, "leave it out: this is the default"),
    ("retry", Kind::True, "leave it out: this is the default"),
    ("listen", Kind::Number, "write \":{n}\""),
    ("address", Kind::Number, "write \":{n}\""),
    (
        "respond",
        Kind::Number,
        "write `respond = { status = {n} }`",
    ),
    ("expires", Kind::Number, "write \"{n}s\", in quotes"),
    (
        "files",
        Kind::Tables,
        "write [site.route.files], with one bracket: a route has one folder",
    ),
    (
        "cache",
        Kind::True,
        "write `cache = \"main\"`, and a section [cache.main] with `memory`",
    ),
    (
        "access",
        Kind::True,
        "write the path of a file in quotes, as in \"/var/log/sluice/access.log\", or \"-\" for standard output",
    ),
    (
        "events",
        Kind::True,
        "write the path of a file in quotes, as in \"/var/log/sluice/events.jsonl\"; the dashboard has the recent events without this key",
    ),
    (
        "tickets",
        Kind::True,
        "leave it out: tickets are on without this key, which names files with secrets that several edges share",
    ),
    (
        "client_ca",
        Kind::List,
        "put all authorities into one file: `cat a.pem b.pem > clients.pem`",
    ),
    (
        "client_certificate",
        Kind::Text,
        "write true or false; \"request\" and \"require\" belong in `tls` of the site, beside `client_ca`",
    ),
    (
        "client_certificate",
        Kind::True,
        "write \"require\" or \"request\" in `tls`; true and false belong in [[site]] and [[site.route]]",
    ),
    (
        "path",
        Kind::List,
        "a route has one path: write a [[site.route]] for each, or one with `path_regex = '^/(a|b)/'`",
    ),
    (
        "proxy",
        Kind::List,
        "name an upstream, as in `proxy = \"origin\"`, and write the list as `servers` in [upstream.origin]",
    ),
];

/// Returns the advice for a value of another type that has one obvious meaning.
fn meant(taken: &Taken) -> Option<String> {
    let mut entries = MEANT.iter();
    let entry = entries.find(|(key, kind, _)| *key == taken.key && *kind == taken.kind);
    let (_, _, advice) = entry?;
    Some(advice.replace("{n}", &taken.number.unwrap_or_default().to_string()))
}

/// Parses serde's message "unknown field `a`, expected one of `b`, `c`".
fn unknown_word(message: &str) -> Option<(&'static str, &str, Vec<&str>)> {
    let (kind, rest) = match message.strip_prefix("unknown field `") {
        Some(rest) => ("key", rest),
        None => ("value", message.strip_prefix("unknown variant `")?),
    };
    let (word, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((kind, word, known))
}

/// Describes an unknown key in a section with the keys `known`.
fn unknown_key(word: &str, known: &[&str], taken: Option<&Taken>) -> Problem {
    let problem = Problem::error(format!("unknown key `{word}`"));
    if let Some(new) = renamed::replacement(word, known) {
        return problem
            .label("this key was renamed")
            .help(format!("write {new}"));
    }
    if let Some(advice) = foreign::advice(word, known) {
        return problem.help(advice);
    }
    let is_section = taken.is_some_and(|taken| matches!(taken.kind, Kind::Table | Kind::Tables));
    if let Some(place) = sections::of_route(word).filter(|_| is_section) {
        return problem.help(place);
    }
    match (
        sections::belongs(word),
        did_you_mean(word, known.iter().copied()),
    ) {
        (Some(place), Some(near)) => problem.help(format!("{place}; or did you mean `{near}`?")),
        (Some(place), None) => problem.help(place),
        (None, _) => unknown("key", word, known),
    }
}

/// Most keys that are listed in the advice on an unknown key.
const LISTED_MAX: usize = 16;

/// Describes an unknown key or value where the words `known` are permitted.
fn unknown(kind: &str, word: &str, known: &[&str]) -> Problem {
    let problem = Problem::error(format!("unknown {kind} `{word}`"));
    if let Some(advice) = foreign::value_advice(word, known) {
        return problem.help(advice);
    }
    let listed = known
        .iter()
        .map(|k| format!("`{k}`"))
        .collect::<Vec<_>>()
        .join(", ");
    if PLANNED.contains(&word) {
        return problem.label("this version does not support it").help(
            match known.len() > LISTED_MAX {
                true => "a later version will have it".to_owned(),
                false => format!("a later version will have it; this one has {listed}"),
            },
        );
    }
    if let Some(nearest) = did_you_mean(word, known.iter().copied()) {
        return problem.help(format!("did you mean `{nearest}`?"));
    }
    match kind == "key" && known.len() > LISTED_MAX {
        true => problem.help("docs/configuration.md describes all keys of this section"),
        false => problem.help(format!("allowed here: {listed}")),
    }
}
