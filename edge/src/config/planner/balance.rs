//! Plans `balance`: the policy that chooses the server of a request.

use toml::Spanned;

use super::edit;
use crate::balance::{Kind, Options};
use crate::config::checks::Checks;
use crate::config::file::{BalanceFile, BalanceTable};
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, Word};
use crate::edit::{Template, Variable};

/// Bounds of `load`.
const LOAD_MIN: f64 = 1.01;
const LOAD_MAX: f64 = 100.0;

/// Returns the options of the policy, and the template whose text `hash` uses as the key.
pub fn plan(key: &Key<BalanceFile>, checks: &mut Checks) -> (Options, Option<Template>) {
    let Some(typed) = key else {
        return (Options::default(), None);
    };
    match typed.get_ref() {
        BalanceFile::Named(kind) => (Options::of(*kind), None),
        BalanceFile::Table(table) => of_table(table, typed, checks),
    }
}

fn of_table(
    table: &BalanceTable,
    typed: &Spanned<BalanceFile>,
    checks: &mut Checks,
) -> (Options, Option<Template>) {
    match (&table.least_time, &table.hash) {
        (Some(measure), None) => {
            let Word(measure) = *measure.get_ref();
            no_load(&table.load, checks);
            let options = Options {
                measure,
                ..Options::of(Kind::LeastTime)
            };
            (options, None)
        }
        (None, Some(text)) => {
            let defaults = Options::of(Kind::Hash);
            let options = Options {
                load_percent: load_percent(&table.load, defaults.load_percent, checks),
                ..defaults
            };
            (options, hash_key(text, checks))
        }
        _ => {
            let title = match table.hash.is_some() {
                true => "`balance` has two policies",
                false => "`balance` has no policy",
            };
            let help =
                "write a name, { least-time = \"last-byte\" }, or { hash = \"{header:X-User}\" }";
            checks.push(Problem::error(title).at(typed.span()).help(help));
            (Options::default(), None)
        }
    }
}

fn no_load(load: &Key<OrFalse<f64>>, checks: &mut Checks) {
    if let Some(load) = load {
        let problem = Problem::error("`load` is an option of `hash`").at(load.span());
        checks.push(problem.help("leave it out"));
    }
}

fn load_percent(load: &Key<OrFalse<f64>>, default: u32, checks: &mut Checks) -> u32 {
    let Some(typed) = load else { return default };
    match *typed.get_ref() {
        OrFalse::False => 0,
        OrFalse::On(load) if (LOAD_MIN..=LOAD_MAX).contains(&load) => (load * 100.0).round() as u32,
        OrFalse::On(load) => {
            let problem = Problem::error("`load` is out of bounds").at(typed.span());
            let problem = problem.label(format!("this is {load}"));
            checks.push(problem.help(format!(
                "choose a value from {LOAD_MIN} to {LOAD_MAX}, as in 1.25, or false for no limit"
            )));
            default
        }
    }
}

/// Parses the text whose hash selects the server.
fn hash_key(text: &Spanned<String>, checks: &mut Checks) -> Option<Template> {
    let template = edit::template(text, checks)?;
    if template.variables().next().is_none() {
        checks.push(
            Problem::error("`hash` has no variable")
                .at(text.span())
                .label("all requests would go to one server")
                .help("write { hash = \"{header:X-User}\" } or { hash = \"{cookie:session}\" }, or balance = \"hash\" for the URL"),
        );
    }
    if template.variables().any(|v| *v == Variable::Status) {
        let problem = Problem::error("a request has no `{status}`").at(text.span());
        checks.push(problem.help("leave it out"));
    }
    Some(template)
}
