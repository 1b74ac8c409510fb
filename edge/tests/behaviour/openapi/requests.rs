//! Makes random requests from the description: with valid values, with the bounds of their schemas, and with hostile ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_lab::noise::Dice;

use super::description::{Description, Operation, Parameter};
use super::site::encoded;

/// Length of a value that is too long for its place, in bytes.
const LONG: usize = 10_000;
/// Longest permitted body, in bytes.
const BODY_MAX: usize = 64 << 10;

/// Values of parameters, percent-encoded where they have to be.
const HOSTILE: [&str; 42] = [
    "",
    "-1",
    "0",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "NaN",
    "-inf",
    "0x10",
    "1.5",
    "%2B5",
    "+",
    "%00",
    "%0d%0aX-Injected:%201",
    "%1b%5b2J%07",
    "%ff",
    "%c3%28",
    "%f0%9f%92%a9%e2%80%ae",
    "..",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "%zz",
    "%",
    "é",
    "<script>alert(1)</script>",
    "'%22;--",
    "javascript:alert(1)",
    "http:///",
    "http://[::1",
    "http://[::1]:80/%25zz",
    "http://a:99999999/",
    "http://user:pw@host/..%2f..?a#b",
    "http://a/%2500%250d%250a",
    "https://xn--a-ecp.example/",
    "file:///etc/passwd",
    "//",
    "*",
    ",,,,",
    "null",
    "%7b%22a%22:[[[1]]]%7d",
];
/// Methods, with those that no page has.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PURGE", "BREW",
];
/// Ends of paths that lead elsewhere, or nowhere.
const ENDS: [&str; 9] = [
    "/",
    "/..",
    "/../status",
    "//",
    "%2f",
    "/%2e%2e",
    "%00",
    "%ff",
    ";x",
];
/// Names and values of headers.
const HEADERS: [(&str, &str); 22] = [
    ("accept", "text/html"),
    ("accept", "application/openmetrics-text;q=0.9,*/*;q=0.1"),
    ("accept", "application/jsonl"),
    ("accept", ";;;,,=q"),
    ("accept", "\u{e9}"),
    ("if-none-match", "*"),
    ("if-none-match", "W/\"a\", \"b"),
    ("host", "localhost"),
    ("host", "[::1]:9901"),
    ("host", "evil.example"),
    ("host", "a b"),
    ("host", "127.0.0.1:99999999"),
    ("host", ""),
    ("authorization", "Bearer \u{e9}"),
    ("authorization", "Basic YTpi"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-encoding", "gzip"),
    ("range", "bytes=5-"),
    ("origin", "https://evil.example"),
    ("connection", "close"),
    ("x-sluice", "0"),
    ("traceparent", "00-00000000000000000000000000000000-0-ff"),
];

/// A request to send.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// Names and values of headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Makes requests, always the same ones from the same dice.
pub struct Maker<'a> {
    description: &'a Description,
    operations: Vec<Operation<'a>>,
    /// Values that name existing things, for parameters and names in JSON.
    known: &'a BTreeMap<&'static str, Vec<String>>,
    dice: Dice,
}

impl<'a> Maker<'a> {
    /// Makes requests for the pages of a description.
    pub fn new(
        description: &'a Description,
        known: &'a BTreeMap<&'static str, Vec<String>>,
        dice: Dice,
    ) -> Maker<'a> {
        Maker {
            description,
            operations: description.operations(),
            known,
            dice,
        }
    }

    /// Makes the next request.
    pub fn request(&mut self) -> Request {
        let operation = self.operation();
        let method = match self.one_in(30) {
            true => METHODS[self.below(METHODS.len())],
            false => METHODS[if operation.method == "GET" { 0 } else { 2 }],
        };
        let target = self.target(&operation);
        let headers = self.headers(method);
        let body = self.body(&operation);
        let mut request = Request {
            method,
            target,
            headers,
            body,
        };
        if !request.body.is_empty() && self.one_in(10) {
            request.divide_body();
        }
        request
    }

    fn operation(&mut self) -> Operation<'a> {
        loop {
            let at = self.below(self.operations.len());
            let operation = self.operations[at];
            // All requests for a page that reads nothing are alike, and a reload takes longer than all others.
            let is_useful = self.description.has_input(&operation) || self.one_in(4);
            if is_useful && (operation.path != "/reload" || self.one_in(4)) {
                return operation;
            }
        }
    }

    fn target(&mut self, operation: &Operation<'a>) -> String {
        let parameters = self.description.parameters(operation);
        let mut target = operation.path.to_owned();
        for parameter in parameters.iter().filter(|one| one.place == "path") {
            let value = self.value(parameter);
            target = target.replace(&format!("{{{}}}", parameter.name), &value);
        }
        match self.below(60) {
            0 => target += ENDS[self.below(ENDS.len())],
            1 => target = format!("http://localhost{target}"),
            2 => target = format!("/{}{target}", self.hostile()),
            _ => {}
        }
        let mut query = Vec::new();
        for parameter in parameters.iter().filter(|one| one.place == "query") {
            for value in self.values(parameter) {
                query.push(format!("{}={value}", parameter.name));
            }
        }
        if self.one_in(30) {
            let junk = [
                "&",
                "=",
                "a",
                "=a",
                "a=b=c",
                "%ff=%ff",
                "url",
                "scope[]=edge",
            ];
            query.push(junk[self.below(junk.len())].to_owned());
        }
        match query.is_empty() {
            true => target,
            false => format!("{target}?{}", query.join("&")),
        }
    }

    /// Returns the values of a parameter: usually one, or none.
    fn values(&mut self, parameter: &Parameter<'_>) -> Vec<String> {
        match self.below(40) {
            0..4 if parameter.is_required => vec![],
            4..20 if !parameter.is_required => vec![],
            20 => vec![self.value(parameter), self.value(parameter)],
            _ => vec![self.value(parameter)],
        }
    }

    /// Returns a value of a parameter, percent-encoded.
    fn value(&mut self, parameter: &Parameter<'_>) -> String {
        match self.below(12) {
            0 | 1 => self.hostile(),
            2 => self.boundary(parameter.schema),
            _ => encoded(&self.valid(parameter.name, parameter.schema)),
        }
    }

    fn hostile(&mut self) -> String {
        match self.below(HOSTILE.len() + 5) {
            n if n < HOSTILE.len() => HOSTILE[n].to_owned(),
            n => {
                ["a", "%41", ",requests", "http://a/", "%0aX:y"][n - HOSTILE.len()].repeat(LONG / 3)
            }
        }
    }

    /// Returns a value at the bounds of a schema, or just beyond them.
    fn boundary(&mut self, schema: &Value) -> String {
        let bounds = [&schema["minimum"], &schema["maximum"], &schema["default"]];
        let bounds: Vec<i64> = bounds.into_iter().filter_map(Value::as_i64).collect();
        if bounds.is_empty() {
            return "x".repeat(self.below(3));
        }
        let bound = bounds[self.below(bounds.len())];
        (bound - 1 + self.dice.below(3) as i64).to_string()
    }

    /// Returns a value that fits a schema.
    fn valid(&mut self, name: &str, schema: &Value) -> String {
        if let Some(known) = self.known.get(name) {
            return known[self.below(known.len())].clone();
        }
        if let Some(names) = schema["enum"].as_array() {
            let name = &names[self.below(names.len())];
            return name.as_str().expect("a text").to_owned();
        }
        match schema["type"].as_str() {
            Some("integer") => {
                let least = schema["minimum"].as_i64().unwrap_or(-4000);
                let most = schema["maximum"].as_i64().unwrap_or(least.max(0) + 1000);
                (least + self.dice.below((most - least) as u64) as i64).to_string()
            }
            _ => schema["default"].as_str().unwrap_or("a").to_owned(),
        }
    }

    fn headers(&mut self, method: &str) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if (method == "POST" && !self.one_in(10)) || self.one_in(30) {
            headers.push(("x-sluice", "1".to_owned()));
        }
        while self.one_in(8) {
            let (name, value) = HEADERS[self.below(HEADERS.len())];
            let value = if self.one_in(20) {
                "x".repeat(LONG)
            } else {
                value.to_owned()
            };
            headers.push((name, value));
        }
        headers
    }

    fn body(&mut self, operation: &Operation<'a>) -> Vec<u8> {
        match self.description.body(operation) {
            Some(schema) => self.json_body(schema),
            None if self.one_in(20) => b"a=b".repeat(self.below(LONG)),
            None => Vec::new(),
        }
    }

    /// Makes JSON that fits a schema, or almost.
    fn json_body(&mut self, schema: &Value) -> Vec<u8> {
        let value = self.object(schema);
        let mut text = value.to_string().into_bytes();
        match self.below(24) {
            0 => text.truncate(self.below(text.len())),
            1 => text.insert(
                self.below(text.len()),
                [0xff, 0, b'\\', b'{'][self.below(4)],
            ),
            2 => text.extend_from_slice(b" {}"),
            3 => text = Vec::new(),
            4 => text = b"[".repeat(LONG),
            5 => text = nested("{\"tags\":", "}").into_bytes(),
            6 => text = nested("[", "]").into_bytes(),
            7 => text = vec![b' '; BODY_MAX - 1 + self.below(3)],
            8 => text = json!({"tags": vec!["a"; LONG]}).to_string().into_bytes(),
            9 => text = br#"{"all": true, "all": true}"#.to_vec(),
            10 => {
                text = json!({ "url": "\u{0}\r\n".repeat(LONG / 10) })
                    .to_string()
                    .into_bytes()
            }
            _ => {}
        }
        text
    }

    /// Makes an object with some of the names of a schema, and sometimes with values of other types.
    fn object(&mut self, schema: &Value) -> Value {
        let properties = schema["properties"].as_object().expect("properties");
        let choices = schema["oneOf"].as_array().expect("choices");
        let chosen = choices[self.below(choices.len())]["required"][0].clone();
        let mut object = serde_json::Map::new();
        for (name, schema) in properties {
            let is_choice = choices.iter().any(|one| one["required"][0] == **name);
            let is_wanted = match is_choice {
                true => chosen == **name || self.one_in(40),
                false => self.one_in(3),
            };
            if is_wanted {
                object.insert(name.clone(), self.json(name, schema));
            }
        }
        if self.one_in(20) {
            object.insert("more".to_owned(), Value::Null);
        }
        object.into()
    }

    fn json(&mut self, name: &str, schema: &Value) -> Value {
        if self.one_in(10) {
            let others =
                json!([null, true, false, 0, -1, 1e300, u64::MAX, "", [], {}, [1], {"a": 1}]);
            return others[self.below(12)].clone();
        }
        if self.one_in(10) {
            return self.hostile().into();
        }
        match schema["type"].as_str() {
            Some("boolean") => match schema.get("const") {
                Some(value) => value.clone(),
                None => self.one_in(2).into(),
            },
            Some("array") => {
                let items: Vec<Value> = (0..self.below(5) + 1)
                    .map(|_| self.json("tag", &schema["items"]))
                    .collect();
                items.into()
            }
            _ => self.valid(name, schema).into(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice.below(bound as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.dice.below(n) == 0
    }
}

/// Returns JSON that is nested a thousand times.
fn nested(open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(1000), close.repeat(1000))
}

impl Request {
    /// Sends the body in two chunks.
    fn divide_body(&mut self) {
        let (first, second) = self.body.split_at(self.body.len() / 2);
        let mut chunks = Vec::new();
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            chunks.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            chunks.extend_from_slice(part);
            chunks.extend_from_slice(b"\r\n");
        }
        chunks.extend_from_slice(b"0\r\n\r\n");
        self.body = chunks;
        self.headers
            .push(("transfer-encoding", "chunked".to_owned()));
    }

    /// Returns the headers as the client takes them.
    pub fn lines(&self) -> Vec<(&str, &str)> {
        let lines = self.headers.iter();
        lines.map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Returns the request in short, for messages.
    pub fn shown(&self) -> String {
        let short = |text: &str| text.chars().take(2000).collect::<String>();
        let body = String::from_utf8_lossy(&self.body);
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", short(value)))
            .collect();
        let (target, body) = (short(&self.target), short(&body));
        format!("{} {target}\n{headers:?}\n{body:?}", self.method)
    }
}
