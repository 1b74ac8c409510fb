//! Compares the description of the admin API with its routes, its queries and the table of numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde_json::{Value, json};

use super::super::certificate_state::CertificateOrder;
use super::super::explain::FetchQuery;
use super::super::explanation::Question;
use super::super::history::HistoryQuery;
use super::super::live::StreamQuery;
use super::super::observed::{EventsQuery, TopQuery};
use super::super::purge;
use super::super::server::{GUARDED, INDEX_TEXT, StatusQuery, UNGUARDED};
use super::super::server_connections::ConnectionsQuery;
use super::super::server_order::ServerOrder;
use super::super::tokens::Role;
use super::DESCRIPTION;
use crate::telemetry::history::{POINTS_MAX, POINTS_MIN, Scope};
use crate::telemetry::{
    BufferNumbers, CacheNumbers, CertificateTotals, CompressNumbers, EffectiveState, FilesNumbers,
    MINUTES_MAX, Measure, Measures, Metric, Numbers, ProcessNumbers, RouteNumbers, ServerMeasures,
    ServerNumbers, Unit, VolumeNumbers, WorkerMeasures, WorkerNumbers,
};

/// Pages that the list of pages leaves out: the list itself, and the parts of the dashboard.
const UNLISTED: [(&str, &str); 3] = [
    ("get", "/"),
    ("get", "/dashboard"),
    ("get", "/dashboard/{name}"),
];

/// The prefix of references to schemas.
const SCHEMAS: &str = "#/components/schemas/";

fn description() -> Value {
    serde_json::from_str(DESCRIPTION).expect("JSON")
}

type Operations = BTreeMap<(String, String), Value>;

/// Returns the operations by method and path.
fn operations() -> Operations {
    let mut all = Operations::new();
    let description = description();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            all.insert((method.clone(), path.clone()), operation.clone());
        }
    }
    all
}

/// Returns the value to which a reference leads, or the value itself if it is none.
fn resolved<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        None => value,
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect(reference);
            root.pointer(pointer).expect(reference)
        }
    }
}

/// Returns the names of the parameters in the query of an operation.
fn parameters(operation: &Value) -> BTreeSet<String> {
    let root = description();
    let all = operation["parameters"].as_array();
    let all = all.into_iter().flatten().map(|one| resolved(&root, one));
    let names = all.filter(|one| one["in"] == "query");
    names
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Returns each entry of the list of pages: method, path and the names of parameters.
fn listed() -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut all: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let mut entry = None;
    for line in INDEX_TEXT.lines() {
        let mut words = line.split_ascii_whitespace();
        if let Some(method @ ("GET" | "POST")) = words.next() {
            let target = words.next().expect("a path");
            let path = target.split('?').next().expect("a path");
            entry = Some((method.to_ascii_lowercase(), path.to_owned()));
        }
        let Some(entry) = &entry else { continue };
        let names = all.entry(entry.clone()).or_default();
        let is_name = |c: char| c.is_ascii_lowercase();
        for (at, _) in line.match_indices('=') {
            let before = line[..at].trim_end_matches(is_name);
            if before.ends_with(['?', '&', '[']) {
                names.insert(line[before.len()..at].to_owned());
            }
        }
    }
    all
}

/// Tells the names of a struct's fields, and deserializes nothing.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("the names are known"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields_of<T: DeserializeOwned>() -> BTreeSet<String> {
    let mut names: &[&str] = &[];
    assert!(T::deserialize(FieldNames(&mut names)).is_err());
    assert!(!names.is_empty());
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_described_pages_are_those_of_the_router_and_of_the_list() {
    let described: BTreeSet<_> = operations().into_keys().collect();
    let routed = GUARDED.iter().chain(UNGUARDED);
    let routed = routed.map(|(method, path)| ((*method).to_owned(), path.replace("{*", "{")));
    assert_eq!(routed.collect::<BTreeSet<_>>(), described);
    let unlisted = UNLISTED.map(|(method, path)| (method.to_owned(), path.to_owned()));
    let mut listed: BTreeSet<_> = listed().into_keys().collect();
    listed.extend(unlisted);
    assert_eq!(listed, described);
    // Routes are added by the macro only, which also lists them.
    let source = include_str!("../server.rs");
    assert_eq!(source.matches(".route(").count(), 1);
}

#[test]
fn the_described_parameters_are_those_of_the_queries_and_of_the_list() {
    let queries = [
        ("get", "/status", fields_of::<StatusQuery>()),
        ("get", "/explain", fields_of::<Question>()),
        ("post", "/fetch", fields_of::<FetchQuery>()),
        ("get", "/history", fields_of::<HistoryQuery>()),
        ("get", "/stream", fields_of::<StreamQuery>()),
        (
            "get",
            "/servers/connections",
            fields_of::<ConnectionsQuery>(),
        ),
        ("get", "/top", fields_of::<TopQuery>()),
        ("get", "/events", fields_of::<EventsQuery>()),
        ("post", "/servers", fields_of::<ServerOrder>()),
        ("post", "/certificates", fields_of::<CertificateOrder>()),
    ];
    let queries: BTreeMap<_, _> = queries
        .into_iter()
        .map(|(method, path, names)| ((method.to_owned(), path.to_owned()), names))
        .collect();
    let listed = listed();
    for (page, operation) in operations() {
        let described = parameters(&operation);
        let read = queries.get(&page).cloned().unwrap_or_default();
        assert_eq!(described, read, "{page:?}");
        if let Some(listed) = listed.get(&page) {
            assert_eq!(*listed, described, "{page:?}");
        }
    }
    let order = &description()["components"]["schemas"]["PurgeOrder"]["properties"];
    let described: BTreeSet<String> = order.as_object().expect("keys").keys().cloned().collect();
    assert_eq!(described, fields_of::<purge::Body>());
}

/// Returns the schema to which a metric's value belongs.
fn schema_of(metric: &Metric, is_histogram: bool) -> Value {
    let name = match (metric.unit, is_histogram) {
        (Unit::Bytes, true) => "Sizes",
        (_, true) => "Durations",
        (Unit::Count, _) => "Count",
        (Unit::Bytes, _) => "Bytes",
        (Unit::Seconds, _) => "Seconds",
        (Unit::Milliseconds, _) => "Milliseconds",
        (Unit::Flag, _) => "Flag",
    };
    json!({ "$ref": format!("{SCHEMAS}{name}") })
}

#[test]
fn the_described_numbers_are_those_of_the_table() {
    let reasons = |name: &str| (name.to_owned(), Value::Null);
    let numbers = [
        ("ProcessNumbers", ProcessNumbers::METRICS, None),
        ("WorkerNumbers", WorkerNumbers::METRICS, None),
        (
            "WorkerMeasures",
            WorkerMeasures::METRICS,
            Some("requests_by_reason"),
        ),
        ("RouteNumbers", RouteNumbers::METRICS, None),
        ("CacheNumbers", CacheNumbers::METRICS, None),
        ("BufferNumbers", BufferNumbers::METRICS, None),
        ("CompressNumbers", CompressNumbers::METRICS, None),
        ("VolumeNumbers", VolumeNumbers::METRICS, None),
        ("FilesNumbers", FilesNumbers::METRICS, None),
        ("ServerNumbers", ServerNumbers::METRICS, None),
        (
            "ServerMeasures",
            ServerMeasures::METRICS,
            Some("failures_by_reason"),
        ),
        ("CertificateTotals", CertificateTotals::METRICS, None),
    ];
    let description = description();
    for (name, metrics, other) in numbers {
        let schema = &description["components"]["schemas"][name];
        let mut described = schema["properties"].as_object().expect(name).clone();
        if let Some(other) = other {
            described.insert(other.to_owned(), Value::Null);
        }
        let is_histogram = other.is_some();
        let expected: serde_json::Map<String, Value> = metrics
            .iter()
            .map(|metric| (metric.name.to_owned(), schema_of(metric, is_histogram)))
            .chain(other.map(reasons))
            .collect();
        let lines = || {
            let lines = expected
                .iter()
                .map(|(name, schema)| format!("{name:?}: {schema}"));
            lines.collect::<Vec<_>>().join(",\n")
        };
        assert!(described == expected, "properties of {name}:\n{}", lines());
        let mut required: Vec<&str> = schema["required"]
            .as_array()
            .expect(name)
            .iter()
            .filter_map(Value::as_str)
            .collect();
        required.sort_unstable();
        let mut all: Vec<&str> = expected.keys().map(String::as_str).collect();
        all.sort_unstable();
        assert_eq!(required, all, "required of {name}");
    }
}

#[test]
fn the_described_names_and_bounds_are_those_of_the_code() {
    let root = description();
    let parameter = |path: &str, name: &str| {
        let all = root["paths"][path]["get"]["parameters"].as_array();
        let mut all = all.expect(path).iter();
        let found = all.find(|one| one["name"] == name).expect(name);
        found["schema"].clone()
    };
    let scopes = json!(Scope::ALL.map(Scope::name));
    assert_eq!(parameter("/history", "scope")["enum"], scopes);
    assert_eq!(parameter("/stream", "scope")["enum"], scopes);
    let points = parameter("/history", "points");
    assert_eq!(
        (&points["minimum"], &points["maximum"]),
        (&json!(POINTS_MIN), &json!(POINTS_MAX))
    );
    assert_eq!(parameter("/top", "minutes")["maximum"], MINUTES_MAX);
    let measures = json!(Measure::ALL.map(Measure::name));
    assert_eq!(parameter("/top", "by")["enum"], measures);
    let schemas = &root["components"]["schemas"];
    let states = json!(EffectiveState::ALL.map(EffectiveState::name));
    let server = &schemas["Server"]["allOf"][2]["properties"];
    assert_eq!(server["state"]["enum"], states);
    let roles = json!([Role::Reader, Role::Operator].map(Role::as_str));
    assert_eq!(schemas["Settings"]["properties"]["role"]["enum"], roles);
    let members = schemas["Members"]["properties"].as_object();
    let members = members.expect("names");
    assert!(
        Scope::ALL
            .iter()
            .all(|scope| members.contains_key(scope.name()))
    );
}

/// Collects the references in a value.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            if let Some(Value::String(reference)) = entries.get("$ref") {
                found.insert(reference.clone());
            }
            entries.values().for_each(|one| references(one, found));
        }
        Value::Array(values) => values.iter().for_each(|one| references(one, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_complete_in_itself() {
    let root = description();
    assert_eq!(root["openapi"], "3.1.0");
    assert_eq!(root["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut used = BTreeSet::new();
    references(&root, &mut used);
    for reference in &used {
        let pointer = reference.strip_prefix('#').expect(reference);
        assert!(root.pointer(pointer).is_some(), "{reference}");
    }
    for kind in ["schemas", "parameters", "responses"] {
        for name in root["components"][kind].as_object().expect(kind).keys() {
            let reference = format!("#/components/{kind}/{name}");
            // No operation answers another method of its path, or another path.
            let is_used =
                used.contains(&reference) || ["OtherMethod", "OtherPath"].contains(&&**name);
            assert!(is_used, "{reference} is not used");
        }
    }
    let mut ids = BTreeSet::new();
    for (page, operation) in operations() {
        let id = operation["operationId"].as_str().expect("an id").to_owned();
        assert!(ids.insert(id), "{page:?}");
        assert!(operation["summary"].is_string(), "{page:?}");
        let is_change = page.0 == "post";
        let needs = &operation["security"];
        let operator = json!([{"bearer": ["operator"]}, {}]);
        assert_eq!(*needs == operator, is_change, "{page:?}");
        let header = json!({"$ref": "#/components/parameters/Sluice"});
        let parameters = operation["parameters"].as_array();
        let has_header = parameters.is_some_and(|all| all.contains(&header));
        assert_eq!(has_header, is_change, "{page:?}");
        for (status, response) in operation["responses"].as_object().expect("responses") {
            let response = resolved(&root, response);
            assert!(response["description"].is_string(), "{page:?} {status}");
        }
    }
}
