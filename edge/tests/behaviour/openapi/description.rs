//! The description of the admin API, and the check of answers against it.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_lab::client::{Client, Head, ReadError};

use super::schema::Schemas;
use crate::harness::Edge;

/// Header of every answer of the API. The HTTP library answers malformed requests without it.
const MARK: &str = "sluice-admin";
/// An operation without parameters, whose refusals all pages have.
const PLAIN: &str = "/settings";
/// The response to other methods of a path.
const OTHER_METHOD: &str = "/components/responses/OtherMethod";
/// The response to paths without a page.
const OTHER_PATH: &str = "/components/responses/OtherPath";

/// The description.
pub struct Description(Value);

/// An operation: one method of one path.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path, as the description writes it.
    pub path: &'a str,
    value: &'a Value,
}

/// A parameter of an operation.
#[derive(Clone, Copy)]
pub struct Parameter<'a> {
    /// The name.
    pub name: &'a str,
    /// The place: `query`, `header` or `path`.
    pub place: &'a str,
    /// Whether the parameter may not be left out.
    pub is_required: bool,
    /// The schema of the value.
    pub schema: &'a Value,
}

/// The answer to a request.
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    /// The content; empty for a stream of events, which has no end.
    pub body: Vec<u8>,
}

/// Returns the media type of a Content-Type.
fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

impl Answer {
    /// Sends a request and receives its answer. An answer whose end never comes is left unread.
    pub fn of(
        client: &mut Client,
        (method, target): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ReadError> {
        client.send(method, target, headers, body)?;
        let head = client.read_head()?;
        let length = head.header("content-length").map(|length| {
            let length = length.parse::<usize>();
            length.map_err(|_| ReadError::Malformed("a length".to_owned()))
        });
        let body = match length.transpose()? {
            Some(length) if method != "HEAD" => client.read_some(length)?,
            _ => Vec::new(),
        };
        Ok(Answer { head, body })
    }

    /// Returns the media type; empty if there is none.
    pub fn media_type(&self) -> &str {
        essence(self.head.header("content-type").unwrap_or_default())
    }

    /// Whether this is a stream of events, so that its connection can't be used any more.
    pub fn is_stream(&self) -> bool {
        self.media_type() == "text/event-stream"
    }

    /// Returns status and beginning of the content, for messages.
    pub fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.chars().take(300).collect();
        format!("{} {} {text:?}", self.head.status, self.media_type())
    }
}

impl Description {
    /// Fetches the description.
    pub fn of(edge: &Edge) -> Description {
        let reply = edge.get_admin("/openapi.json");
        assert_eq!(reply.status, 200, "{}", reply.text());
        Description(serde_json::from_slice(&reply.body).expect("JSON"))
    }

    /// Returns all operations.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        let paths = self.0["paths"].as_object().expect("paths");
        let operations = paths.iter().flat_map(|(path, item)| {
            let item = item.as_object().expect("methods");
            item.iter().map(move |(method, value)| Operation {
                method: upper_case(method),
                path,
                value,
            })
        });
        operations.collect()
    }

    /// Returns the operation of a request, if it is described.
    pub fn operation_of(&self, method: &str, target: &str) -> Option<Operation<'_>> {
        let method = if method == "HEAD" { "GET" } else { method };
        let mut operations = self.of_target(target).into_iter();
        operations.find(|operation| operation.method == method)
    }

    /// Returns the operations of the path that a target has.
    fn of_target(&self, target: &str) -> Vec<Operation<'_>> {
        let path = path(target);
        let operations = self.operations().into_iter();
        operations
            .filter(|operation| operation.is_at(path))
            .collect()
    }

    /// Returns the parameters of an operation.
    pub fn parameters<'a>(&'a self, operation: &Operation<'a>) -> Vec<Parameter<'a>> {
        let schemas = Schemas(&self.0);
        let all = operation.value["parameters"].as_array();
        let all = all.into_iter().flatten().map(|one| {
            let one = schemas.resolved(one);
            Parameter {
                name: one["name"].as_str().expect("a name"),
                place: one["in"].as_str().expect("a place"),
                is_required: one["required"] == true,
                schema: &one["schema"],
            }
        });
        all.collect()
    }

    /// Returns the schema of the JSON in the body of an operation's requests.
    pub fn body<'a>(&'a self, operation: &Operation<'a>) -> Option<&'a Value> {
        let content = operation.value.get("requestBody")?;
        let schema = &content["content"]["application/json"]["schema"];
        Some(Schemas(&self.0).resolved(schema))
    }

    /// Whether an operation reads a query or a body.
    pub fn has_input(&self, operation: &Operation<'_>) -> bool {
        let parameters = operation.value.get("parameters");
        let all = parameters.and_then(Value::as_array).into_iter().flatten();
        let mut places = all.map(|one| &Schemas(&self.0).resolved(one)["in"]);
        places.any(|place| place == "query") || operation.value.get("requestBody").is_some()
    }

    /// Returns the schema with this name.
    pub fn schema(&self, name: &str) -> &Value {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "there is no schema {name}");
        schema
    }

    /// Checks a value against a schema.
    pub fn check_value(&self, schema: &Value, value: &Value) -> Result<(), String> {
        Schemas(&self.0).check(schema, value)
    }

    /// Returns a line for each answer that operations describe and that is no error: method, path, status and media type.
    pub fn successes(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for operation in self.operations() {
            let name = operation.name();
            let responses = operation.value["responses"].as_object().expect("responses");
            let successes = responses
                .iter()
                .filter(|(status, _)| status.as_str() < "400");
            for (status, response) in successes {
                match response["content"].as_object() {
                    Some(content) => {
                        all.extend(content.keys().map(|of| format!("{name} {status} {of}")))
                    }
                    None => _ = all.insert(format!("{name} {status} ")),
                }
            }
        }
        all
    }

    /// Checks the answer to a request. The error says how it differs from the description.
    pub fn check(&self, method: &str, target: &str, answer: &Answer) -> Result<(), String> {
        let status = answer.head.status;
        if answer.head.header(MARK).is_none() {
            return match (status, answer.body.len()) {
                (400 | 414 | 431, 0) => Ok(()),
                _ => Err("the answer is not one of the API".to_owned()),
            };
        }
        let operations = self.of_target(target);
        let found = self.operation_of(method, target);
        if status == 405 && !operations.is_empty() && found.is_none() {
            let response = self.0.pointer(OTHER_METHOD).expect("a response");
            return self.check_response(response, method, answer);
        }
        if status == 404 && operations.is_empty() {
            let response = self.0.pointer(OTHER_PATH).expect("a response");
            return self.check_response(response, method, answer);
        }
        let responses = match found {
            Some(operation) => &operation.value["responses"],
            // Requests are refused for the same reasons, whatever their path and method are.
            None if status >= 400 => &self.0["paths"][PLAIN]["get"]["responses"],
            None => return Err("the page is not described".to_owned()),
        };
        match responses.get(status.to_string()) {
            Some(response) => {
                self.check_response(Schemas(&self.0).resolved(response), method, answer)
            }
            None => Err(format!("the status {status} is not described")),
        }
    }

    fn check_response(
        &self,
        response: &Value,
        method: &str,
        answer: &Answer,
    ) -> Result<(), String> {
        let headers = response["headers"].as_object().into_iter().flatten();
        for (name, header) in headers {
            if header["required"] == true && answer.head.header(name).is_none() {
                return Err(format!("the header {name} is missing"));
            }
        }
        let Some(content) = response.get("content") else {
            return match answer.body.len() {
                0 => Ok(()),
                _ => Err("there is content".to_owned()),
            };
        };
        let media_type = answer.media_type();
        let Some(described) = content.get(media_type) else {
            return Err(format!("the type {media_type:?} is not described"));
        };
        match media_type {
            _ if method == "HEAD" => Ok(()),
            "application/json" => self.check_json(&described["schema"], &answer.body),
            "application/jsonl" => {
                let mut lines = answer.body.split(|byte| *byte == b'\n');
                let rest = lines.next_back().unwrap_or_default();
                if !rest.is_empty() {
                    return Err("the last line has no end".to_owned());
                }
                lines.try_for_each(|line| self.check_json(&described["schema"], line))
            }
            _ => match std::str::from_utf8(&answer.body) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("the text is not UTF-8: {error}")),
            },
        }
    }

    fn check_json(&self, schema: &Value, text: &[u8]) -> Result<(), String> {
        let value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        self.check_value(schema, &value)
    }
}

impl Operation<'_> {
    /// Returns method and path.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether a path is one of this operation.
    fn is_at(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            Some((before, _)) => path
                .strip_prefix(before)
                .is_some_and(|name| !name.is_empty()),
            None => path == self.path,
        }
    }
}

/// Returns the path of a target, which may be a complete URL.
fn path(target: &str) -> &str {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => path,
    }
}

fn upper_case(method: &str) -> &'static str {
    match method {
        "get" => "GET",
        "post" => "POST",
        other => panic!("the method {other} is not known"),
    }
}
