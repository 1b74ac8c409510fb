//! Checks JSON against the schemas of the description. Keywords that the description does not use are refused, so that
//! none is ignored. A name that a schema does not describe is an error.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Keywords that demand nothing.
const ANNOTATIONS: [&str; 4] = ["description", "default", "examples", "format"];
/// Deepest nesting of schemas. A schema of the description never contains itself.
const DEPTH_MAX: usize = 40;

/// The document to which the references of schemas lead.
pub struct Schemas<'a>(pub &'a Value);

impl<'a> Schemas<'a> {
    /// Returns the value to which a reference leads, or the value itself if it is none.
    pub fn resolved(&self, value: &'a Value) -> &'a Value {
        match value.get("$ref") {
            Some(reference) => self.referenced(reference),
            None => value,
        }
    }

    fn referenced(&self, reference: &Value) -> &'a Value {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.0.pointer(pointer));
        found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
    }

    /// Checks a value against a schema. The error says where they differ.
    pub fn check(&self, schema: &'a Value, value: &Value) -> Result<(), String> {
        self.check_at(schema, value, &Place::root(), true)
    }

    /// Checks a value against a schema. `closed`: whether the schema describes all names of an object.
    fn check_at(
        &self,
        schema: &'a Value,
        value: &Value,
        place: &Place,
        closed: bool,
    ) -> Result<(), String> {
        let rules = schema.as_object().expect("a schema is an object");
        assert!(place.depth < DEPTH_MAX, "{}: too deep", place.path);
        let describes = ["properties", "additionalProperties", "allOf"];
        let describes = describes.iter().any(|name| rules.contains_key(*name));
        for (keyword, rule) in rules {
            let of_parts = closed && !describes;
            match keyword.as_str() {
                "$ref" => self.check_at(self.referenced(rule), value, &place.same(), of_parts)?,
                "allOf" => {
                    for part in list(rule) {
                        self.check_at(part, value, &place.same(), false)?;
                    }
                }
                "anyOf" => self.check_choice(list(rule), value, place, of_parts, false)?,
                "oneOf" => self.check_choice(list(rule), value, place, of_parts, true)?,
                _ => self.check_keyword(rules, (keyword, rule), value, place)?,
            }
        }
        match (closed && describes, value) {
            (true, Value::Object(entries)) => self.check_names(schema, entries, place),
            _ => Ok(()),
        }
    }

    /// Checks a value against schemas of which one suffices, or of which exactly one fits.
    fn check_choice(
        &self,
        parts: &'a [Value],
        value: &Value,
        place: &Place,
        closed: bool,
        exactly_one: bool,
    ) -> Result<(), String> {
        let results = parts
            .iter()
            .map(|part| self.check_at(part, value, &place.same(), closed));
        let (fits, misfits): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
        match fits.len() {
            1 => Ok(()),
            0 => {
                let why = misfits.into_iter().filter_map(Result::err);
                Err(why.collect::<Vec<_>>().join("; or "))
            }
            n if exactly_one => place.fail(format!("{n} schemas fit")),
            _ => Ok(()),
        }
    }

    fn check_keyword(
        &self,
        rules: &'a Map<String, Value>,
        (keyword, rule): (&str, &'a Value),
        value: &Value,
        place: &Place,
    ) -> Result<(), String> {
        let holds = match (keyword, value) {
            ("type", _) => match rule {
                Value::Array(types) => types.iter().any(|one| is_of_type(one, value)),
                one => is_of_type(one, value),
            },
            ("enum", _) => list(rule).contains(value),
            ("const", _) => rule == value,
            ("minimum", Value::Number(_)) => value.as_f64() >= rule.as_f64(),
            ("maximum", Value::Number(_)) => value.as_f64() <= rule.as_f64(),
            ("minItems", Value::Array(items)) => items.len() as u64 >= number(rule),
            ("maxItems", Value::Array(items)) => items.len() as u64 <= number(rule),
            ("required", Value::Object(entries)) => {
                let missing = list(rule).iter().filter_map(Value::as_str);
                let missing: Vec<_> = missing
                    .filter(|name| !entries.contains_key(*name))
                    .collect();
                if !missing.is_empty() {
                    return place.fail(format!("{missing:?} are missing"));
                }
                true
            }
            ("items", Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    self.check_at(rule, item, &place.below(at), true)?;
                }
                true
            }
            ("properties", Value::Object(entries)) => {
                for (name, schema) in object(rule) {
                    if let Some(entry) = entries.get(name) {
                        self.check_at(schema, entry, &place.below(name), true)?;
                    }
                }
                true
            }
            ("additionalProperties", Value::Object(entries)) => {
                let described = rules.get("properties").map(object);
                let is_other = |name: &str| described.is_none_or(|known| !known.contains_key(name));
                for (name, entry) in entries.iter().filter(|(name, _)| is_other(name)) {
                    match rule {
                        Value::Bool(true) => {}
                        Value::Bool(false) => return place.below(name).fail("the name is unknown"),
                        schema => self.check_at(schema, entry, &place.below(name), true)?,
                    }
                }
                true
            }
            (
                "minimum"
                | "maximum"
                | "minItems"
                | "maxItems"
                | "required"
                | "items"
                | "properties"
                | "additionalProperties",
                _,
            ) => true,
            (other, _) if ANNOTATIONS.contains(&other) => true,
            (other, _) => panic!("{}: the keyword {other} is not known", place.path),
        };
        match holds {
            true => Ok(()),
            false => place.fail(format!("{value} does not fit {keyword} {rule}")),
        }
    }

    /// Checks that a schema describes all names of an object.
    fn check_names(
        &self,
        schema: &'a Value,
        entries: &Map<String, Value>,
        place: &Place,
    ) -> Result<(), String> {
        let mut names = BTreeSet::new();
        if !self.add_names(schema, &mut names) {
            return Ok(());
        }
        match entries.keys().find(|name| !names.contains(name.as_str())) {
            Some(name) => place.below(name).fail("the name is not described"),
            None => Ok(()),
        }
    }

    /// Adds the names that a schema describes. Returns whether it permits no others.
    fn add_names(&self, schema: &'a Value, names: &mut BTreeSet<&'a str>) -> bool {
        if schema.get("additionalProperties").is_some() {
            return false;
        }
        if let Some(properties) = schema.get("properties") {
            names.extend(object(properties).keys().map(String::as_str));
        }
        let parts = schema.get("allOf").map(list).into_iter().flatten();
        let referenced = schema
            .get("$ref")
            .map(|reference| self.referenced(reference));
        let mut is_closed = true;
        for part in parts.chain(referenced) {
            is_closed &= self.add_names(part, names);
        }
        is_closed
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("an object")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        other => panic!("the type {other:?} is not known"),
    }
}

/// The place of a value in the checked JSON, for errors.
struct Place {
    path: String,
    depth: usize,
}

impl Place {
    fn root() -> Place {
        Place {
            path: "$".to_owned(),
            depth: 0,
        }
    }

    fn same(&self) -> Place {
        Place {
            path: self.path.clone(),
            depth: self.depth + 1,
        }
    }

    fn below(&self, name: impl std::fmt::Display) -> Place {
        Place {
            path: format!("{}.{name}", self.path),
            depth: self.depth + 1,
        }
    }

    fn fail(&self, why: impl std::fmt::Display) -> Result<(), String> {
        Err(format!("{}: {why}", self.path))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, value: Value) -> Result<(), String> {
        let document = json!({
            "text": {"type": "string"},
            "named": {"type": "object", "required": ["name"], "properties": {"name": {"$ref": "#/text"}}},
        });
        Schemas(&document).check(&schema, &value)
    }

    #[test]
    fn each_keyword_is_checked() {
        let sum = json!({"allOf": [{"$ref": "#/named"}, {"properties": {"size": {"type": "integer", "minimum": 1}}}]});
        let choice = json!({"anyOf": [{"$ref": "#/named"}, {"type": "null"}]});
        let map = json!({"type": "object", "additionalProperties": {"enum": [1, 2]}});
        let items =
            json!({"type": "array", "items": {"$ref": "#/named"}, "minItems": 1, "maxItems": 2});
        let order = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"const": true}, "b": {}},
            "additionalProperties": false});
        let name = json!({"name": "n"});
        for (schema, fits, others) in [
            (
                &sum,
                vec![json!({"name": "n", "size": 1}), name.clone()],
                vec![
                    json!({"size": 1}),
                    json!({"name": "n", "size": 0}),
                    json!({"name": "n", "more": 1}),
                    json!({"name": 1}),
                ],
            ),
            (
                &choice,
                vec![name.clone(), json!(null)],
                vec![json!({"name": "n", "more": 1}), json!(1)],
            ),
            (
                &map,
                vec![json!({}), json!({"x": 1, "y": 2})],
                vec![json!({"x": 3}), json!([])],
            ),
            (
                &items,
                vec![json!([name.clone()])],
                vec![
                    json!([]),
                    json!([name.clone(), name.clone(), name.clone()]),
                    json!([{}]),
                    json!([{"name": "n", "x": 1}]),
                ],
            ),
            (
                &order,
                vec![json!({"a": true}), json!({"b": 1})],
                vec![
                    json!({}),
                    json!({"a": true, "b": 1}),
                    json!({"a": false}),
                    json!({"a": true, "c": 1}),
                ],
            ),
            (
                &json!({"type": ["number", "null"], "maximum": 1}),
                vec![json!(0.5), json!(null)],
                vec![json!(1.5), json!("1")],
            ),
            (
                &json!({"type": "integer"}),
                vec![json!(-1), json!(u64::MAX)],
                vec![json!(1.0)],
            ),
        ] {
            for value in fits {
                assert_eq!(check(schema.clone(), value.clone()), Ok(()), "{value}");
            }
            for value in others {
                assert!(
                    check(schema.clone(), value.clone()).is_err(),
                    "{schema} {value}"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "the keyword pattern is not known")]
    fn an_unknown_keyword_is_refused() {
        let _ = check(json!({"type": "string", "pattern": "a"}), json!("b"));
    }
}
