//! Field lines that are set, added and removed.

use super::template::{Asked, Template, Variable};
use crate::handler::{Request, Response};
use crate::http::{Fields, Status, hop};

/// `request_fields` and `response_fields`: what is done to a head's field lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Lower-case names of which every line goes: those that are removed, and those that are set.
    pub remove: Vec<Box<str>>,
    /// Lines that come then, in order; one whose value comes to nothing does not.
    pub put: Vec<(Box<str>, Template)>,
}

impl FieldEdits {
    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.put.is_empty()
    }

    /// All variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.put.iter().flat_map(|(_, value)| value.variables())
    }

    /// Names of fields that are the same in every request after this: set, and each of their lines to a text
    /// without variables. One with variables would carry what one client sent to others.
    pub fn constant(&self) -> impl Iterator<Item = &str> {
        let varies = |name: &str| {
            let mut lines = self.put.iter();
            // An origin may take `_` for `-`, and so one of these names for the other.
            lines.any(|(other, value)| {
                hop::reads_as(other.as_bytes(), &name.replace('_', "-").into_bytes())
                    && value.plain().is_none()
            })
        };
        self.put.iter().filter_map(move |(name, _)| {
            let set = self.remove.contains(name);
            (set && !varies(name)).then_some(&**name)
        })
    }

    /// Does it to a request.
    pub(super) fn edit_request(&self, request: &mut Request) {
        if self.is_empty() {
            return;
        }
        let put = self.lines(&Asked::of(&request.head, &request.peer), 0);
        let fields = &mut request.head.fields;
        self.take_out(fields);
        self.keep_from_connection(fields);
        for (name, value) in put.iter() {
            fields.append_bytes(name, value);
        }
    }

    /// A name goes with `_` for `-` too, since an origin that maps names to variables, as CGI does,
    /// cannot tell those apart.
    fn take_out(&self, fields: &mut Fields) {
        if self.remove.is_empty() {
            return;
        }
        let goes = |name: &[u8]| {
            let mut removed = self.remove.iter();
            removed.any(|field| hop::reads_as(name, field.as_bytes()))
        };
        fields.retain(|name, _| !goes(name));
    }

    /// What is put here, the client's Connection can't have taken out again before the origin sees it
    /// (RFC 9110 7.6.1).
    fn keep_from_connection(&self, fields: &mut Fields) {
        let put = |name: &&[u8]| {
            let mut lines = self.put.iter();
            lines.any(|(field, _)| name.eq_ignore_ascii_case(field.as_bytes()))
        };
        if !fields.members("connection").any(|name| put(&name)) {
            return;
        }
        let left: Vec<&[u8]> = fields.members("connection").filter(|n| !put(n)).collect();
        let left = left.join(&b", "[..]);
        fields.remove("connection");
        if !left.is_empty() {
            fields.append("connection", left);
        }
    }

    fn lines(&self, asked: &Asked<'_>, status: Status) -> Fields {
        let mut lines = Fields::new();
        self.put_into(&mut lines, Some(asked), status);
        lines
    }

    /// Adds what is put. Without `asked` only what asks for nothing of a request.
    pub(super) fn put_into(&self, fields: &mut Fields, asked: Option<&Asked<'_>>, status: Status) {
        let mut scratch = Vec::new();
        for (name, value) in &self.put {
            if let Some(text) = value.plain() {
                if !text.is_empty() {
                    fields.append(name, text);
                }
                continue;
            }
            scratch.clear();
            let expanded = asked.and_then(|asked| value.expand(asked, status, &mut scratch));
            if expanded.is_some() {
                fields.append(name, &scratch);
            }
        }
    }

    /// Whether lines of this name come.
    pub(super) fn puts(&self, name: &str) -> bool {
        self.put.iter().any(|(field, _)| **field == *name)
    }

    /// Whether a response's field of this name goes.
    pub(super) fn removes(&self, name: &[u8]) -> bool {
        let mut removed = self.remove.iter();
        removed.any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
    }
}

/// Takes lines out of a response's head, stored ones and others. Where none goes, what is stored stays
/// shared with all who get it.
pub(super) fn take_out(response: &mut Response, goes: impl Fn(&[u8]) -> bool) {
    if response.stored.iter().any(|(name, _)| goes(name)) {
        response.stored = response.stored.filtered(|line| !goes(line.name));
    }
    response.fields.retain(|name, _| !goes(name));
}

/// The first value of a response's field, wherever it stands. `name` in lower case.
pub(super) fn value_of<'r>(response: &'r Response, name: &str) -> Option<&'r [u8]> {
    let stored = response.stored.get(name);
    stored.or_else(|| response.fields.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(remove: &[&str], put: &[(&str, &str)]) -> FieldEdits {
        let line = |(name, value): &(&str, &str)| {
            let value = Template::parse(value).expect("a template");
            ((*name).into(), value)
        };
        FieldEdits {
            remove: remove.iter().map(|name| (*name).into()).collect(),
            put: put.iter().map(line).collect(),
        }
    }

    #[test]
    fn a_name_goes_however_it_is_spelled_and_connection_does_not_take_the_new_line() {
        let lines = [
            ("X_Secret", "mine"),
            ("Connection", "x-secret, close, x-other"),
            ("X-SECRET", "mine too"),
            ("X-Other", "o"),
        ];
        let mut fields: Fields = lines.into_iter().collect();
        let edits = edits(&["x-secret"], &[("x-secret", "ours")]);
        edits.take_out(&mut fields);
        edits.keep_from_connection(&mut fields);
        edits.put_into(&mut fields, None, 0);
        let expected = "X-Other: o\r\nconnection: close, x-other\r\nx-secret: ours\r\n";
        assert_eq!(fields.text(), expected.as_bytes());
    }

    #[test]
    fn stored_lines_stay_shared_where_none_goes() {
        let mut response = Response::new(200);
        response.stored = [("Server", "x"), ("etag", "\"a\"")].into_iter().collect();
        response.fields.append("vary", "accept");
        let before = response.stored.text().as_ptr();
        take_out(&mut response, |name| name == b"expires");
        assert_eq!(response.stored.text().as_ptr(), before);
        take_out(&mut response, |name| {
            name.eq_ignore_ascii_case(b"server") || name == b"vary"
        });
        assert_eq!(response.stored.text(), b"etag: \"a\"\r\n");
        assert!(response.fields.is_empty());
    }

    #[test]
    fn constant_are_fields_that_are_set_to_a_text() {
        let edits = edits(
            &["a", "b", "d", "e", "f"],
            &[
                ("a", "1"),
                ("b", "{client}"),
                ("c", "1"),
                ("e", "1"),
                ("f", "1"),
                ("f", "2"),
                ("e", "{header:X-Who}"),
            ],
        );
        let constant: std::collections::BTreeSet<_> = edits.constant().collect();
        assert_eq!(constant, ["a", "f"].into());
    }
}
