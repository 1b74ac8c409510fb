//! Text with variables of a request in it, as `https://{host}{path}{query}`.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use crate::handler::{Head, Peer};
use crate::http::fields::{is_field_value, is_token};
use crate::http::{Fields, Method, Scheme, Status};
use crate::sys::Address;

/// Variables that one template may have.
pub const VARIABLES_MAX: usize = 16;
/// Longest template, bytes.
pub const BYTES_MAX: usize = 4096;

/// Text with variables. What comes out of it is always a field value (RFC 9110 5.5): no CR, LF or NUL
/// gets in, whatever was asked.
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

/// What may stand in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `{host}`: host and port as asked for, in lower case; our own address where the request named none.
    Host,
    /// `{hostname}`: the same without a port.
    Hostname,
    /// `{path}`: as the origin gets it.
    Path,
    /// `{query}`: the query with its `?`; nothing where there is none.
    Query,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{client}`: the address of who asks.
    Client,
    /// `{method}`
    Method,
    /// `{status}`, of the response.
    Status,
    /// `{header:NAME}`: the request's first field of that name, in lower case.
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

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// No such variable.
    Unknown(String),
    /// A brace without its other one.
    Brace,
    /// A control character, which no field may hold.
    Control,
    /// More than `VARIABLES_MAX` variables, or longer than `BYTES_MAX`.
    Large,
}

impl TemplateError {
    /// What to do about it, for people.
    pub fn advice(&self) -> String {
        match self {
            TemplateError::Unknown(_) => {
                let names = Variable::NAMES
                    .iter()
                    .map(|(name, _)| format!("{{{name}}}"));
                let names: Vec<String> = names.collect();
                format!("known are {} and {{header:NAME}}", names.join(", "))
            }
            TemplateError::Brace => "write {{ and }} for braces that are meant".to_owned(),
            TemplateError::Control => {
                "leave control characters and line breaks out: a field is one line".to_owned()
            }
            TemplateError::Large => {
                format!("keep to {VARIABLES_MAX} variables and {BYTES_MAX} bytes")
            }
        }
    }
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Unknown(name) => write!(f, "unknown variable {{{name}}}"),
            TemplateError::Brace => f.write_str("a brace without its other one"),
            TemplateError::Control => f.write_str("a control character"),
            TemplateError::Large => f.write_str("too long"),
        }
    }
}

impl Template {
    /// From what was typed.
    ///
    /// # Errors
    /// Why it is none.
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

    /// Its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    }

    /// The text, where it has no variables: what comes out whatever is asked.
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

    /// Appends what it comes to. `None`, and nothing appended, where that is empty or no field value.
    pub fn expand(&self, asked: &Asked<'_>, status: Status, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => asked.append(variable, status, out),
            }
        }
        let good = out.len() > start && is_field_value(&out[start..]);
        if !good {
            out.truncate(start);
        }
        good.then_some(())
    }
}

/// As it was typed.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// What a template can know of a request.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// As in `Head`.
    pub method: &'a Method,
    /// As in `Head`.
    pub target: &'a str,
    /// As in `Head`; may be empty.
    pub authority: &'a str,
    /// How it came.
    pub scheme: Scheme,
    /// Who asks.
    pub client: IpAddr,
    /// Our address.
    pub local: Address,
    /// Its field lines.
    pub fields: &'a Fields,
}

impl<'a> Asked<'a> {
    /// Of a request.
    pub fn of(head: &'a Head, peer: &Peer) -> Asked<'a> {
        Asked {
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
            // `OPTIONS *` asks for no path.
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

/// What a template will want to know once the response is there, kept from the request, which goes on.
pub(super) struct Kept {
    method: Method,
    target: String,
    authority: String,
    scheme: Scheme,
    client: IpAddr,
    local: Address,
    fields: Fields,
}

impl Kept {
    /// Of a request: of its fields those that these variables name.
    pub(super) fn of<'t>(asked: &Asked<'_>, variables: impl Iterator<Item = &'t Variable>) -> Kept {
        let mut fields = Fields::new();
        for variable in variables {
            if let Variable::Header(name) = variable
                && let Some(value) = asked.fields.get(name)
            {
                fields.append(name, value);
            }
        }
        Kept {
            method: asked.method.clone(),
            target: asked.target.to_owned(),
            authority: asked.authority.to_owned(),
            scheme: asked.scheme,
            client: asked.client,
            local: asked.local,
            fields,
        }
    }

    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
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
        let asked = Asked {
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
        let expanded = template.expand(&asked, 404, &mut out);
        let text = String::from_utf8(out.split_off(6)).expect("text");
        assert_eq!(expanded.is_none(), text.is_empty());
        expanded.map(|()| text)
    }

    #[test]
    fn variables_stand_for_parts_of_the_request() {
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
    fn what_is_no_template_says_why() {
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
        /// Downstream checks all of these; should it ever not, nothing comes of it here.
        #[test]
        fn no_request_gets_a_line_break_into_a_value(
            target in any::<String>(),
            authority in any::<String>(),
            method in any::<String>(),
            name in "[a-z]{1,5}",
        ) {
            let method = Method::Other(method.into());
            let fields = Fields::new();
            let asked = Asked {
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
            let expanded = template.expand(&asked, 200, &mut out);
            prop_assert!(is_field_value(&out));
            prop_assert_eq!(expanded.is_some(), !out.is_empty());
        }

        #[test]
        fn no_text_panics_and_what_parses_is_shown_as_typed(text in "[a-z{}:\\PC]{0,40}") {
            if let Ok(template) = Template::parse(&text) {
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }
}
