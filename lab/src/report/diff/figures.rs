//! The figures of a report: all numbers that were measured, with their names and rounds.

use std::collections::HashMap;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::super::values::{digits, printable};
use crate::spread::Spread;

/// The name of a figure: its place in the report, from the outside to the inside.
pub(super) type Path = Vec<String>;

/// Longest part of a name in characters.
const NAME_MAX: usize = 120;

/// Fields that describe an experiment's setup, or that are no figures: settings, goals, numbers of statuses.
const NOT_COMPARED: [&str; 14] = [
    "seconds",
    "seed",
    "rounds",
    "goal",
    "met",
    "wanted",
    "tolerance",
    "samples",
    "statuses",
    "article",
    "profile",
    "begin",
    // The time that a simulation took for each request says nothing about its result.
    "ns",
    // The ratios are computed here from the figures themselves.
    "comparisons",
];
/// Fields with lists that are not compared: values over time have no counterpart in another run, and the spreads of the
/// `runs` of static files are beside them.
const SERIES: [&str; 6] = ["windows", "near", "far", "connections", "rates", "runs"];

/// The list of totals over time, of which the last ones are compared.
const TOTALS: &str = "marks";

/// Lists at the top of a report whose name says nothing more than the names of their elements.
const LISTS: [&str; 7] = [
    "figures",
    "rows",
    "layouts",
    "real",
    "sieges",
    "measurements",
    "ramps",
];

/// Fields whose text names an element of a list, in the order of preference. Several of them name it together.
const NAMES: [&str; 10] = [
    "what", "name", "server", "proxy", "case", "load", "mix", "exponent", "kind", "key",
];
/// Further fields with a number that is part of the name.
const SIZES: [&str; 2] = ["places", "times"];

/// Fields of a load's result (`sluice bench --json`) that are settings, or that another figure contains: rates contain
/// counts.
const LOAD_SETTINGS: [&str; 15] = [
    "connections",
    "streams",
    "threads",
    "lines_left_out",
    "seconds",
    "requests",
    "bytes",
    "connects",
    "cpu_seconds",
    "per_connection",
    "pid",
    "windows",
    "late",
    "late_bytes",
    "first_connect_error",
];

/// All figures of a report, in their order.
#[derive(Debug, PartialEq)]
pub(super) struct Figures {
    pub(super) all: Vec<(Path, Spread)>,
    places: HashMap<Path, usize>,
}

impl Figures {
    /// Finds all figures of a report. Elements of lists with the same name are rounds of one figure.
    pub(super) fn of(data: &Value) -> Figures {
        let mut values = Vec::new();
        match is_load(data) {
            true => load(&mut Vec::new(), data, &mut values),
            false => walk(&mut Vec::new(), data, &mut values),
        }
        let mut figures = Figures {
            all: Vec::new(),
            places: HashMap::new(),
        };
        let mut rounds: Vec<Vec<Spread>> = Vec::new();
        for (path, spread) in values {
            match figures.places.get(&path) {
                Some(place) => rounds[*place].push(spread),
                None => {
                    figures.places.insert(path.clone(), rounds.len());
                    figures.all.push((path, spread.clone()));
                    rounds.push(vec![spread]);
                }
            }
        }
        for ((_, spread), rounds) in figures.all.iter_mut().zip(rounds) {
            if rounds.len() > 1 {
                let medians = rounds.iter().map(|round| round.median).collect();
                *spread = Spread::of(medians).unwrap_or_else(|| spread.clone());
            }
        }
        figures
    }

    /// Returns the figure with this name.
    pub(super) fn get(&self, path: &Path) -> Option<&Spread> {
        let place = self.places.get(path)?;
        self.all.get(*place).map(|(_, spread)| spread)
    }
}

/// Whether this is the result of a load, as `sluice bench --json` prints it.
pub(super) fn is_load(data: &Value) -> bool {
    ["url", "requests_per_s", "latency"]
        .iter()
        .all(|field| data.get(field).is_some())
}

/// Returns the settings of a report that are numbers or texts, or not set: name and value.
pub(super) fn settings(data: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let is_load = is_load(data);
    let all = data.as_object().into_iter().flatten();
    all.filter(move |(name, value)| match is_load {
        true => ["url", "connections", "streams", "threads"].contains(&name.as_str()),
        false => value.is_number() || value.is_null(),
    })
    .map(|(name, value)| (name.as_str(), value))
}

/// Adds all numbers of a load's result, except its settings and those over time.
fn load(path: &mut Path, value: &Value, found: &mut Vec<(Path, Spread)>) {
    let object = value.as_object().into_iter().flatten();
    let is_figure = |name: &str| !LOAD_SETTINGS.contains(&name) && !NOT_COMPARED.contains(&name);
    for (name, value) in object.filter(|(name, _)| is_figure(name)) {
        path.push(words(name));
        found.extend(single(value).map(|value| (path.clone(), value)));
        load(path, value, found);
        path.pop();
    }
}

fn single(value: &Value) -> Option<Spread> {
    Spread::of(vec![value.as_f64()?])
}

/// Reads a spread, and computes it again from its rounds.
fn spread(object: &Map<String, Value>) -> Option<Spread> {
    let read = Spread::deserialize(object).ok()?;
    Spread::of(read.rounds)
}

fn walk(path: &mut Path, value: &Value, found: &mut Vec<(Path, Spread)>) {
    match value {
        Value::Number(_) => found.extend(single(value).map(|value| (path.clone(), value))),
        Value::Object(object) => match spread(object) {
            Some(spread) => found.push((path.clone(), spread)),
            None => fields(path, object, found),
        },
        Value::Array(list) => {
            for (number, element) in list.iter().enumerate() {
                path.push(element_name(element).unwrap_or_else(|| (number + 1).to_string()));
                walk(path, element, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn fields(path: &mut Path, object: &Map<String, Value>, found: &mut Vec<(Path, Spread)>) {
    // A list of rounds says more than the median beside it.
    let spread = object.get("spread").and_then(Value::as_object);
    for (name, value) in object {
        if spread.is_some() && name == "spread" {
            continue;
        }
        let value = spread.and_then(|spread| spread.get(name)).unwrap_or(value);
        let last = value.as_array().and_then(|list| list.last());
        if let Some(last) = last.filter(|_| name == TOTALS) {
            path.push("at the end".to_owned());
            walk(path, last, found);
            path.pop();
            continue;
        }
        let is_top = path.is_empty();
        // Numbers at the top of a report are the settings of the experiment.
        let is_setting = is_top && value.is_number();
        let is_name = SIZES.contains(&name.as_str()) || NAMES.contains(&name.as_str());
        let is_series = value.is_array() && SERIES.contains(&name.as_str());
        if is_setting || is_name || is_series || NOT_COMPARED.contains(&name.as_str()) {
            continue;
        }
        let hidden = is_top && LISTS.contains(&name.as_str());
        if !hidden {
            path.push(words(name));
        }
        walk(path, value, found);
        if !hidden {
            path.pop();
        }
    }
}

fn words(name: &str) -> String {
    match name {
        "sluice" => "Sluice".to_owned(),
        name => printable(&name.replace('_', " "), NAME_MAX),
    }
}

/// Returns the name of an element of a list: the texts that name it, and its unit in brackets.
fn element_name(element: &Value) -> Option<String> {
    let text = |field: &&str| {
        element
            .get(*field)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let number = |field: &&str| {
        let value = element.get(*field)?.as_f64()?;
        Some(format!("{} {}", field.replace('_', " "), digits(value)))
    };
    let what = text(&"what").map(|what| vec![what]);
    let parts = what.unwrap_or_else(|| {
        let texts = NAMES.iter().filter_map(text);
        let numbers = ["exponent"].iter().chain(&SIZES).filter_map(number);
        texts.chain(numbers).collect()
    });
    let unit = text(&"unit").filter(|unit| !unit.is_empty());
    let unit = unit.map_or_else(String::new, |unit| format!(" ({unit})"));
    let name = format!("{}{unit}", parts.join(", "));
    (!parts.is_empty()).then(|| printable(&name, NAME_MAX))
}
