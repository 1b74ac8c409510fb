//! Header edits: set, add and remove.

use crate::handler::template::{RequestValues, Template, Variable};
use crate::handler::{Request, Response};
use crate::http::{Fields, Status, hop};

/// The options `request_headers` and `response_headers`: header lines to remove and to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldEdits {
    /// Lower-case names of the headers to remove: those of `remove`, and those of `set`, which
    /// replaces them.
    pub remove: Vec<Box<str>>,
    /// Header lines to add, in order, after the removal. A line with an empty value is omitted.
    pub put: Vec<(Box<str>, Template)>,
}

impl FieldEdits {
    /// Whether no header is removed or added.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.put.is_empty()
    }

    /// Returns all variables in the values of the added headers.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.put.iter().flat_map(|(_, value)| value.variables())
    }

    /// Returns the names of headers that have the same value in every edited request: each is set
    /// to a text without variables. A value with variables could carry data of one client to
    /// others.
    pub fn constant(&self) -> impl Iterator<Item = &str> {
        let varies = |name: &str| {
            let mut lines = self.put.iter();
            // Some origins read `_` in a header's name as `-`. An added header whose name reads
            // like this one would then give it another value.
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

    /// Applies the edits to a request.
    pub(super) fn edit_request(&self, request: &mut Request) {
        if self.is_empty() {
            return;
        }
        let put = self.lines(&RequestValues::of(&request.head, &request.peer), 0);
        let fields = &mut request.head.fields;
        self.take_out(fields);
        self.keep_from_connection(fields);
        for (name, value) in put.iter() {
            fields.append_bytes(name, value);
        }
    }

    /// Removes the headers named in `remove`. A name also matches with `_` in place of `-`, because
    /// origins that turn header names into variables, as CGI does, can't distinguish them.
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

    /// Removes the names of added headers from the client's Connection. Otherwise a client could
    /// have those headers removed before the origin sees them (RFC 9110 7.6.1).
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

    fn lines(&self, request: &RequestValues<'_>, status: Status) -> Fields {
        let mut lines = Fields::new();
        self.put_into(&mut lines, Some(request), status, None);
        lines
    }

    /// Adds the configured header lines, except those with the name `omitted`. Without `request`,
    /// adds only lines whose values use no variables of the request.
    pub(super) fn put_into(
        &self,
        fields: &mut Fields,
        request: Option<&RequestValues<'_>>,
        status: Status,
        omitted: Option<&str>,
    ) {
        let mut scratch = Vec::new();
        for (name, value) in &self.put {
            if omitted.is_some_and(|omitted| name.eq_ignore_ascii_case(omitted)) {
                continue;
            }
            if let Some(text) = value.plain() {
                if !text.is_empty() {
                    fields.append(name, text);
                }
                continue;
            }
            scratch.clear();
            let expanded = request.and_then(|request| value.expand(request, status, &mut scratch));
            if expanded.is_some() {
                fields.append(name, &scratch);
            }
        }
    }

    /// Whether the edits add a header of this name.
    pub(super) fn puts(&self, name: &str) -> bool {
        self.put.iter().any(|(field, _)| **field == *name)
    }

    /// Whether the edits remove response headers of this name.
    pub(super) fn removes(&self, name: &[u8]) -> bool {
        let mut removed = self.remove.iter();
        removed.any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
    }
}

/// Removes the headers for whose names `goes` holds from a response, both stored headers and those
/// added by Sluice. If nothing is removed, the stored head stays shared with other responses.
pub(super) fn take_out(response: &mut Response, goes: impl Fn(&[u8]) -> bool) {
    if response.stored.iter().any(|(name, _)| goes(name)) {
        response.stored = response.stored.filtered(|line| !goes(line.name));
    }
    response.fields.retain(|name, _| !goes(name));
}

/// Returns the first value of a response header, stored or added by Sluice. `name` is in lower
/// case.
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
    fn all_spellings_of_a_name_are_removed_and_connection_keeps_added_lines() {
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
        edits.put_into(&mut fields, None, 0, None);
        let expected = "X-Other: o\r\nconnection: close, x-other\r\nx-secret: ours\r\n";
        assert_eq!(fields.text(), expected.as_bytes());
    }

    #[test]
    fn a_stored_head_stays_shared_if_nothing_is_removed() {
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
    fn constant_headers_are_those_set_to_a_text() {
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
