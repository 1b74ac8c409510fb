//! Templates: text with variables of a request, such as `https://{host}{path}{query}`.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;
use std::rc::Rc;

use super::{ClientCertificate, Head, Peer};
use crate::http::fields::{is_field_value, is_token};
use crate::http::{Fields, Method, Scheme, Status, cookies};
use crate::sys::Address;

/// Largest number of variables in a template.
pub const VARIABLES_MAX: usize = 16;
/// Largest length of a template in bytes.
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

/// A variable of a template, written as a name in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `{host}`: host and port of the request, in lower case; the connection's local address if the
    /// request has no host.
    Host,
    /// `{hostname}`: the host of the request without the port.
    Hostname,
    /// `{path}`: the path of the request as the origin receives it.
    Path,
    /// `{query}`: the query with its `?`, or nothing if there is no query.
    Query,
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{client}`: the client's address.
    Client,
    /// `{method}`: the method of the request.
    Method,
    /// `{status}`: the response's status.
    Status,
    /// `{client_subject}`: the subject of the client's TLS certificate, or nothing.
    ClientSubject,
    /// `{client_fingerprint}`: SHA-256 of the client's TLS certificate, or nothing.
    ClientFingerprint,
    /// `{header:NAME}`: the first request header with this name. The name is in lower case.
    Header(Box<str>),
    /// `{cookie:NAME}`: the first cookie of the request with this name.
    Cookie(Box<str>),
}

impl Variable {
    const NAMES: [(&str, Variable); 10] = [
        ("host", Variable::Host),
        ("hostname", Variable::Hostname),
        ("path", Variable::Path),
        ("query", Variable::Query),
        ("scheme", Variable::Scheme),
        ("client", Variable::Client),
        ("method", Variable::Method),
        ("status", Variable::Status),
        ("client_subject", Variable::ClientSubject),
        ("client_fingerprint", Variable::ClientFingerprint),
    ];

    /// Returns the names of all variables. `header:NAME` means one for each header, `cookie:NAME` one
    /// for each cookie.
    pub fn names() -> Vec<&'static str> {
        let names = Variable::NAMES.iter().map(|(name, _)| *name);
        names.chain(["header:NAME", "cookie:NAME"]).collect()
    }

    fn of(name: &str) -> Option<Variable> {
        if let Some(field) = name.strip_prefix("header:") {
            let good = is_token(field.as_bytes());
            return good.then(|| Variable::Header(field.to_ascii_lowercase().into()));
        }
        if let Some(cookie) = name.strip_prefix("cookie:") {
            let good = is_token(cookie.as_bytes());
            return good.then(|| Variable::Cookie(cookie.into()));
        }
        let known = Variable::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, variable)| variable.clone())
    }
}

/// Reason why a text is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// A variable with this name does not exist.
    Unknown(String),
    /// An opening or closing brace has no counterpart.
    Brace,
    /// The text contains a control character, which no field value may contain.
    Control,
    /// The text has more than `VARIABLES_MAX` variables, or is longer than `BYTES_MAX`.
    Large,
}

impl TemplateError {
    /// Returns a hint for the operator about correcting the template.
    pub fn advice(&self) -> String {
        match self {
            TemplateError::Unknown(_) => {
                let names = Variable::names().into_iter();
                let names: Vec<String> = names.map(|name| format!("{{{name}}}")).collect();
                format!("the variables are {}", names.join(", "))
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
    ///
    /// The error describes the mistake in the text.
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

    /// Returns the variables of the template, in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    }

    /// Returns the text of a template without variables, or `None` if there are variables.
    pub fn plain(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text before the template's first variable.
    pub fn beginning(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// Appends the template's text with all variables replaced by their values. Returns `None`
    /// without appending anything if that text is empty or not a valid field value.
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

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// The values of a request that templates can use.
#[derive(Clone, Copy)]
pub struct RequestValues<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Target of the request.
    pub target: &'a str,
    /// Authority (host and port) of the request; may be empty.
    pub authority: &'a str,
    /// The scheme under which the request arrived.
    pub scheme: Scheme,
    /// Address of the client.
    pub client: IpAddr,
    /// Local address of the connection.
    pub local: Address,
    /// Header lines of the request.
    pub fields: &'a Fields,
    /// The client's TLS certificate.
    pub certificate: Option<&'a Rc<ClientCertificate>>,
}

impl<'a> RequestValues<'a> {
    /// Borrows the values of a request from its head and peer.
    pub fn of(head: &'a Head, peer: &Peer) -> RequestValues<'a> {
        RequestValues {
            method: &head.method,
            target: &head.target,
            authority: &head.authority,
            scheme: peer.scheme,
            client: peer.client,
            local: peer.local,
            fields: &head.fields,
            certificate: head.certificate.as_ref(),
        }
    }

    fn append(&self, variable: &Variable, status: Status, out: &mut Vec<u8>) {
        let (path, query) = match self.target.find('?') {
            Some(at) => self.target.split_at(at),
            None => (self.target, ""),
        };
        let certificate = |part: fn(&ClientCertificate) -> &str| {
            self.certificate.map_or("", |certificate| part(certificate))
        };
        // Writing to a `Vec` does not fail, so the results of `write!` are ignored.
        let _ = match variable {
            Variable::Host if self.authority.is_empty() => write!(out, "{}", self.local),
            Variable::Hostname if self.authority.is_empty() => match self.local.ip() {
                IpAddr::V4(address) => write!(out, "{address}"),
                IpAddr::V6(address) => write!(out, "[{address}]"),
            },
            Variable::Host => out.write_all(self.authority.as_bytes()),
            Variable::Hostname => out.write_all(without_port(self.authority).as_bytes()),
            // The target of `OPTIONS *` has no path. `/` keeps a URL that contains `{path}` valid.
            Variable::Path if path == "*" => out.write_all(b"/"),
            Variable::Path => out.write_all(path.as_bytes()),
            Variable::Query => out.write_all(query.as_bytes()),
            Variable::Scheme => out.write_all(self.scheme.as_str().as_bytes()),
            Variable::Client => write!(out, "{}", self.client.to_canonical()),
            Variable::Method => out.write_all(self.method.as_str().as_bytes()),
            Variable::Status => write!(out, "{status}"),
            Variable::ClientSubject => out.write_all(certificate(|its| &its.subject).as_bytes()),
            Variable::ClientFingerprint => {
                out.write_all(certificate(|its| &its.fingerprint).as_bytes())
            }
            Variable::Header(name) => out.write_all(self.fields.get(name).unwrap_or_default()),
            Variable::Cookie(name) => {
                out.write_all(cookies::value(self.fields, name).unwrap_or_default())
            }
        };
    }
}

/// Returns a host without its port. An IPv6 address keeps its brackets.
fn without_port(authority: &str) -> &str {
    let after_address = authority.rfind(']').unwrap_or_default();
    match authority[after_address..].find(':') {
        Some(colon) => &authority[..after_address + colon],
        None => authority,
    }
}

/// Copies of the request's values that response templates need. The request itself is forwarded and
/// then no longer available.
pub struct OwnedValues {
    method: Method,
    target: String,
    authority: String,
    scheme: Scheme,
    client: IpAddr,
    local: Address,
    fields: Fields,
    certificate: Option<Rc<ClientCertificate>>,
}

impl OwnedValues {
    /// Copies values of a request. Of its headers, only those that `variables` name are copied, and
    /// Cookie if a variable names a cookie.
    pub fn of<'t>(
        request: &RequestValues<'_>,
        variables: impl Iterator<Item = &'t Variable>,
    ) -> OwnedValues {
        let mut fields = Fields::new();
        for variable in variables {
            match variable {
                Variable::Header(name) => {
                    if let Some(value) = request.fields.get(name) {
                        fields.append(name, value);
                    }
                }
                Variable::Cookie(_) if fields.get("cookie").is_none() => {
                    for line in request.fields.get_all("cookie") {
                        fields.append("cookie", line);
                    }
                }
                _ => {}
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
            certificate: request.certificate.cloned(),
        }
    }

    /// Borrows the values.
    pub fn request(&self) -> RequestValues<'_> {
        RequestValues {
            method: &self.method,
            target: &self.target,
            authority: &self.authority,
            scheme: self.scheme,
            client: self.client,
            local: self.local,
            fields: &self.fields,
            certificate: self.certificate.as_ref(),
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
            certificate: None,
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
        let lines = [("X-One", "1"), ("x-one", "2"), ("cookie", "a=b; id=7")];
        let fields: Fields = lines.into_iter().collect();
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
            ("{cookie:id}", "7"),
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
        /// Requests are validated before a template is expanded. Even without that validation, no
        /// value may contain a line break.
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
                certificate: None,
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
