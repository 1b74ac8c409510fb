//! Templates: text with variables of a request, such as `https://{host}{path}{query}`.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use crate::handler::{Head, Peer};
use crate::http::fields::{is_field_value, is_token};
use crate::http::{Fields, Method, Scheme, Status};
use crate::sys::Address;

/// Largest number of variables in a template.
pub const VARIABLES_MAX: usize = 16;
/// Longest template, bytes.
pub const BYTES_MAX: usize = 4096;

/// A text with variables. The expanded text is always a valid field value (RFC 9110 5.5): whatever
/// the request contains, no CR, LF or NUL appears in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    typed: Box<str>,
    pieces: Box<[Piece]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Variable(Variable),
}

/// A variable in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `{host}`: host and port of the request, in lower case; the local address if the request has
    /// none.
    Host,
    /// `{hostname}`: the same without a port.
    Hostname,
    /// `{path}`: the path as the origin receives it.
    Path,
    /// `{query}`: the query with its `?`, or nothing.
    Query,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{client}`: the client's address.
    Client,
    /// `{method}`
    Method,
    /// `{status}`: the response's status.
    Status,
    /// `{header:NAME}`: the first request header of that name, in lower case.
    Header(Box<str>),
}

impl Variable {
    const NAMES: [(&str, Variable); 8] = [
        ("host", Variable::Host),
        ("hostname", Variable::Hostname),
        ("path", Variable::Path),
        ("query", Variable::Query),
        ("scheme", Variable::Scheme),
        ("client", Variable::Client),
        ("method", Variable::Method),
        ("status", Variable::Status),
    ];

    fn of(name: &str) -> Option<Variable> {
        if let Some(field) = name.strip_prefix("header:") {
            let good = is_token(field.as_bytes());
            return good.then(|| Variable::Header(field.to_ascii_lowercase().into()));
        }
        let known = Variable::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, variable)| variable.clone())
    }
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// There is no such variable.
    Unknown(String),
    /// An unmatched brace.
    Brace,
    /// A control character, which no field value may contain.
    Control,
    /// More than `VARIABLES_MAX` variables, or longer than `BYTES_MAX`.
    Large,
}

impl TemplateError {
    /// Advice for the operator.
    pub fn advice(&self) -> String {
        match self {
            TemplateError::Unknown(_) => {
                let names = Variable::NAMES
                    .iter()
                    .map(|(name, _)| format!("{{{name}}}"));
                let names: Vec<String> = names.collect();
                format!("the variables are {} and {{header:NAME}}", names.join(", "))
            }
            TemplateError::Brace => "write {{ and }} for literal braces".to_owned(),
            TemplateError::Control => {
                "remove control characters and line breaks: a header is one line".to_owned()
            }
            TemplateError::Large => {
                format!("use at most {VARIABLES_MAX} variables and {BYTES_MAX} bytes")
            }
        }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Unknown(name) => write!(f, "unknown variable {{{name}}}"),
            TemplateError::Brace => f.write_str("an unmatched brace"),
            TemplateError::Control => f.write_str("a control character"),
            TemplateError::Large => f.write_str("too long"),
        }
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Describes the syntax error.
    pub fn parse(typed: &str) -> Result<Template, TemplateError> {
        if !is_field_value(typed.as_bytes()) {
            return Err(TemplateError::Control);
        }
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), typed);
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
                text.push_str(&rest[..1]);
                rest = after;
                continue;
            }
            let inner = rest.strip_prefix('{').ok_or(TemplateError::Brace)?;
            let (name, after) = inner.split_once('}').ok_or(TemplateError::Brace)?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text).into()));
            }
            let unknown = || TemplateError::Unknown(name.to_owned());
            pieces.push(Piece::Variable(Variable::of(name).ok_or_else(unknown)?));
            rest = after;
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        let template = Template {
            typed: typed.into(),
            pieces: pieces.into(),
        };
        match typed.len() > BYTES_MAX || template.variables().count() > VARIABLES_MAX {
            true => Err(TemplateError::Large),
            false => Ok(template),
        }
    }

    /// The variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    }

    /// The text, if the template has no variables.
    pub fn plain(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text before its first variable.
    pub fn beginning(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// Appends the expanded text. Returns `None` without appending anything if that text is empty
    /// or not a field value.
    pub fn expand(
        &self,
        request: &RequestValues<'_>,
        status: Status,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => request.append(variable, status, out),
            }
        }
        let good = out.len() > start && is_field_value(&out[start..]);
        if !good {
            out.truncate(start);
        }
        good.then_some(())
    }
}

/// Formats the template as it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// The values of a request that templates can use.
#[derive(Clone, Copy)]
pub struct RequestValues<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub target: &'a str,
    /// The authority; may be empty.
    pub authority: &'a str,
    /// The scheme under which the request arrived.
    pub scheme: Scheme,
    /// The client's address.
    pub client: IpAddr,
    /// The local address of the connection.
    pub local: Address,
    /// The header lines.
    pub fields: &'a Fields,
}

impl<'a> RequestValues<'a> {
    /// The values of a request.
    pub fn of(head: &'a Head, peer: &Peer) -> RequestValues<'a> {
        RequestValues {
            method: &head.method,
            target: &head.target,
            authority: &head.authority,
            scheme: peer.scheme,
            client: peer.client,
            local: peer.local,
            fields: &head.fields,
        }
    }

    fn append(&self, variable: &Variable, status: Status, out: &mut Vec<u8>) {
        let (path, query) = match self.target.find('?') {
            Some(at) => self.target.split_at(at),
            None => (self.target, ""),
        };
        // Writing to a `Vec` does not fail.
        let _ = match variable {
            Variable::Host if self.authority.is_empty() => write!(out, "{}", self.local),
            Variable::Hostname if self.authority.is_empty() => match self.local.ip() {
                IpAddr::V4(address) => write!(out, "{address}"),
                IpAddr::V6(address) => write!(out, "[{address}]"),
            },
            Variable::Host => out.write_all(self.authority.as_bytes()),
            Variable::Hostname => out.write_all(without_port(self.authority).as_bytes()),
            // `OPTIONS *` has no path.
            Variable::Path if path == "*" => out.write_all(b"/"),
            Variable::Path => out.write_all(path.as_bytes()),
            Variable::Query => out.write_all(query.as_bytes()),
            Variable::Scheme => out.write_all(self.scheme.as_str().as_bytes()),
            Variable::Client => write!(out, "{}", self.client.to_canonical()),
            Variable::Method => out.write_all(self.method.as_str().as_bytes()),
            Variable::Status => write!(out, "{status}"),
            Variable::Header(name) => out.write_all(self.fields.get(name).unwrap_or_default()),
        };
    }
}

/// A host without its port; an IPv6 address keeps its brackets.
fn without_port(authority: &str) -> &str {
    let after_address = authority.rfind(']').unwrap_or_default();
    match authority[after_address..].find(':') {
        Some(colon) => &authority[..after_address + colon],
        None => authority,
    }
}

/// The values of a request that templates of the response need, copied because the request is
/// forwarded.
pub(super) struct OwnedValues {
    method: Method,
    target: String,
    authority: String,
    scheme: Scheme,
    client: IpAddr,
    local: Address,
    fields: Fields,
}

impl OwnedValues {
    /// Copies the values of a request, including only the headers that these variables name.
    pub(super) fn of<'t>(
        request: &RequestValues<'_>,
        variables: impl Iterator<Item = &'t Variable>,
    ) -> OwnedValues {
        let mut fields = Fields::new();
        for variable in variables {
            if let Variable::Header(name) = variable
                && let Some(value) = request.fields.get(name)
            {
                fields.append(name, value);
            }
        }
        OwnedValues {
            method: request.method.clone(),
            target: request.target.to_owned(),
            authority: request.authority.to_owned(),
            scheme: request.scheme,
            client: request.client,
            local: request.local,
            fields,
        }
    }

    pub(super) fn request(&self) -> RequestValues<'_> {
        RequestValues {
            method: &self.method,
            target: &self.target,
            authority: &self.authority,
            scheme: self.scheme,
            client: self.client,
            local: self.local,
            fields: &self.fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expand(template: &str, authority: &str, target: &str, fields: &Fields) -> Option<String> {
        let request = RequestValues {
            method: &Method::Get,
            target,
            authority,
            scheme: Scheme::Https,
            client: "::ffff:10.0.0.1".parse().expect("an address"),
            local: "[::1]:8080".parse().expect("an address"),
            fields,
        };
        let mut out = b"before".to_vec();
        let template = Template::parse(template).expect("a template");
        let expanded = template.expand(&request, 404, &mut out);
        let text = String::from_utf8(out.split_off(6)).expect("text");
        assert_eq!(expanded.is_none(), text.is_empty());
        expanded.map(|()| text)
    }

    #[test]
    fn variables_expand_to_parts_of_the_request() {
        let fields: Fields = [("X-One", "1"), ("x-one", "2")].into_iter().collect();
        let all = |template: &str| expand(template, "a.example:81", "/p/a?q=1&r", &fields);
        for (template, is) in [
            (
                "https://{host}{path}{query}",
                "https://a.example:81/p/a?q=1&r",
            ),
            ("{hostname}", "a.example"),
            (
                "{scheme} {client} {method} {status}",
                "https 10.0.0.1 GET 404",
            ),
            ("{header:X-ONE}, {{x}}", "1, {x}"),
            ("plain", "plain"),
        ] {
            assert_eq!(all(template).as_deref(), Some(is), "{template}");
        }
        assert_eq!(all("{header:X-Two}"), None);
        let bare = |template: &str| expand(template, "", "*", &fields);
        assert_eq!(
            bare("{host} {hostname} {path}{query}").as_deref(),
            Some("[::1]:8080 [::1] /")
        );
        let six = expand("{hostname}", "[::1]:443", "/", &fields);
        assert_eq!(six.as_deref(), Some("[::1]"));
    }

    #[test]
    fn a_malformed_template_has_an_error() {
        let error = |text: &str| Template::parse(text).expect_err("no template");
        assert_eq!(error("{hots}"), TemplateError::Unknown("hots".to_owned()));
        assert_eq!(
            error("{header:a b}"),
            TemplateError::Unknown("header:a b".to_owned())
        );
        for text in ["{host", "host}", "{", "a}b", "{host}}"] {
            assert_eq!(error(text), TemplateError::Brace, "{text}");
        }
        assert_eq!(error("a\r\nb: c"), TemplateError::Control);
        assert_eq!(error("a\0"), TemplateError::Control);
        assert_eq!(error(&"{host}".repeat(17)), TemplateError::Large);
        assert_eq!(error(&"a".repeat(5000)), TemplateError::Large);
    }

    proptest! {
        /// Requests are validated before; this test checks that the template does not depend on
        /// that.
        #[test]
        fn no_request_puts_a_line_break_into_a_value(
            target in any::<String>(),
            authority in any::<String>(),
            method in any::<String>(),
            name in "[a-z]{1,5}",
        ) {
            let method = Method::Other(method.into());
            let fields = Fields::new();
            let request = RequestValues {
                method: &method,
                target: &target,
                authority: &authority,
                scheme: Scheme::Http,
                client: IpAddr::from([0; 4]),
                local: ([0; 4], 0).into(),
                fields: &fields,
            };
            let text = format!("x{{path}}{{query}}{{host}}{{hostname}}{{method}}{{header:{name}}}");
            let template = Template::parse(&text).expect("a template");
            let mut out = Vec::new();
            let expanded = template.expand(&request, 200, &mut out);
            prop_assert!(is_field_value(&out));
            prop_assert_eq!(expanded.is_some(), !out.is_empty());
        }

        #[test]
        fn parsing_never_panics_and_templates_are_displayed_as_written(text in "[a-z{}:\\PC]{0,40}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
