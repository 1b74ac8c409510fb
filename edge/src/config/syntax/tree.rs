//! Finds and removes entries of a parsed TOML document by their position in the file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An entry that was removed from the document.
pub struct Taken {
    /// The entry's key.
    pub key: String,
    /// The kind of the entry's value.
    pub kind: Kind,
    /// The entry's value, if it is a number.
    pub number: Option<i64>,
}

/// The kinds of values that messages distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Number,
    /// `true`.
    True,
    /// Text in quotes.
    Text,
    /// A list of values.
    List,
    /// A table, written with one bracket or with braces.
    Table,
    /// A list of tables, written with two brackets.
    Tables,
    /// Any other value.
    Other,
}

fn kind(value: &DeValue<'_>) -> Kind {
    match value {
        DeValue::Integer(_) => Kind::Number,
        DeValue::Boolean(true) => Kind::True,
        DeValue::String(_) => Kind::Text,
        DeValue::Table(_) => Kind::Table,
        DeValue::Array(list) if list.iter().any(|entry| entry.get_ref().is_table()) => Kind::Tables,
        DeValue::Array(_) => Kind::List,
        _ => Kind::Other,
    }
}

/// Removes the entry whose key is at the position `at`, or else the innermost entry whose value
/// contains that position. Returns `None` if there is no such entry.
pub fn take(table: &mut DeTable<'_>, at: &Range<usize>) -> Option<Taken> {
    let key = find(table, at)?.1;
    remove(table, &key)
}

/// Returns the entry at a position: the number of bytes that it spans, and the position of its key.
/// Of several entries, the one with the smallest span is returned.
fn find(table: &DeTable<'_>, at: &Range<usize>) -> Option<(usize, Range<usize>)> {
    let own = table.iter().filter_map(|(key, value)| {
        if key.span() == *at {
            return Some((0, key.span()));
        }
        let span = value.span();
        let contains = span.start <= at.start && at.end <= span.end;
        contains.then(|| (span.len().max(1), key.span()))
    });
    // A table with a header of its own spans only the header, so entries of all tables are
    // examined.
    let inner = table.values().flat_map(tables);
    let inner = inner.filter_map(|table| find(table, at));
    own.chain(inner).min_by_key(|(bytes, _)| *bytes)
}

fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> Option<Taken> {
    let key = table.keys().find(|key| key.span() == *at).cloned();
    if let Some(key) = key {
        let value = table.remove(&**key.get_ref())?;
        let digits = value.get_ref().as_integer();
        return Some(Taken {
            number: digits.and_then(|digits| digits.as_str().parse().ok()),
            kind: kind(value.get_ref()),
            key: key.into_inner().into_owned(),
        });
    }
    let mut emptied = None;
    let taken = table.iter_mut().find_map(|(key, value)| {
        let taken = tables_mut(value).into_iter().find_map(|t| remove(t, at))?;
        let empty = value.get_ref().as_table().is_some_and(DeTable::is_empty);
        emptied = empty.then(|| key.clone());
        Some(taken)
    });
    // A table that the removal has emptied is removed too. Otherwise a table that must not be empty
    // would be reported as a second mistake.
    if let Some(key) = emptied {
        table.remove(&**key.get_ref());
    }
    taken
}

/// Returns a value that is a table, or the tables in a list.
fn tables<'a, 'i>(value: &'a Spanned<DeValue<'i>>) -> Vec<&'a DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => vec![table],
        DeValue::Array(list) => list.iter().flat_map(tables).collect(),
        _ => Vec::new(),
    }
}

/// Returns a value that is a table, or the tables in a list.
fn tables_mut<'a, 'i>(value: &'a mut Spanned<DeValue<'i>>) -> Vec<&'a mut DeTable<'i>> {
    match value.get_mut() {
        DeValue::Table(table) => vec![table],
        DeValue::Array(list) => list.iter_mut().flat_map(tables_mut).collect(),
        _ => Vec::new(),
    }
}
