//! Environment variables in the values of a configuration: `${NAME}`, or `${NAME:-DEFAULT}`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::report::{COUNTED_MAX, Problem};

/// Longest value with variables, in bytes.
const EXPANDED_MAX: usize = 64 << 10;

/// Most bytes of all values with variables together.
const TOGETHER_MAX: usize = 4 << 20;

/// A variable that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Error {
    /// The variable is not set, and has no default.
    Unset(String),
    /// The variable's value has control characters, or is not UTF-8.
    NotText(String),
    /// The value with its variables is longer than `EXPANDED_MAX`.
    TooLong,
    /// All values with variables together are longer than `TOGETHER_MAX`.
    TooLongTogether,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unset(name) => write!(f, "the environment variable {name} is not set"),
            Error::NotText(name) => {
                write!(f, "the environment variable {name} is not a line of text")
            }
            Error::TooLongTogether => write!(
                f,
                "all values with variables together are longer than {TOGETHER_MAX} bytes"
            ),
            Error::TooLong => write!(
                f,
                "with its variables, this is longer than {EXPANDED_MAX} bytes"
            ),
        }
    }
}

impl Error {
    fn advice(&self) -> String {
        match self {
            Error::Unset(name) => format!(
                "set it where Sluice is started, or write a default: ${{{name}:-VALUE}}; for a literal `${{` write `$${{`"
            ),
            Error::NotText(_) => {
                "a value has UTF-8 without line breaks and other control characters".to_owned()
            }
            Error::TooLong | Error::TooLongTogether => {
                "name a file in place of a variable".to_owned()
            }
        }
    }
}

/// Replaces the variables in all texts of a document by those of this process. Returns the problems with variables.
pub fn expand_here(table: &mut DeTable<'_>) -> Vec<Problem> {
    expand(table, &|name| std::env::var_os(name))
}

/// Replaces the variables in all texts of a document. `get` returns the value of a variable.
fn expand(table: &mut DeTable<'_>, get: &dyn Fn(&str) -> Option<OsString>) -> Vec<Problem> {
    let mut expansion = Expansion {
        get,
        left: TOGETHER_MAX,
        problems: Vec::new(),
    };
    expansion.table(table);
    expansion.problems
}

/// The replacement of the variables of one document.
struct Expansion<'a> {
    get: &'a dyn Fn(&str) -> Option<OsString>,
    /// Bytes that further values may have.
    left: usize,
    problems: Vec<Problem>,
}

impl Expansion<'_> {
    fn table(&mut self, table: &mut DeTable<'_>) {
        for (_, value) in table.iter_mut() {
            self.value(value);
        }
    }

    fn value(&mut self, value: &mut Spanned<DeValue<'_>>) {
        let at = value.span();
        match value.get_mut() {
            DeValue::String(text) => match self.text(text) {
                Ok(None) => {}
                Ok(Some(new)) => *text = Cow::Owned(new),
                Err(error) if self.problems.len() < COUNTED_MAX => {
                    let problem = Problem::error(error.to_string()).help(error.advice());
                    self.problems.push(problem.at(at));
                }
                Err(_) => {}
            },
            DeValue::Array(list) => list.iter_mut().for_each(|entry| self.value(entry)),
            DeValue::Table(table) => self.table(table),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> Result<Option<String>, Error> {
        let new = expanded(text, self.get)?;
        let bytes = new.as_ref().map_or(0, String::len);
        self.left = self.left.checked_sub(bytes).ok_or(Error::TooLongTogether)?;
        Ok(new)
    }
}

/// Returns a text with its variables replaced; `None` if it has none. `$${NAME}` stands for a literal `${NAME}`.
fn expanded(text: &str, get: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<String>, Error> {
    let mut out = String::new();
    let (mut rest, mut has_variables) = (text, false);
    while let Some(at) = rest.find("${") {
        let (before, begin) = rest.split_at(at);
        let Some((name, default, after)) = variable(&begin[2..]) else {
            out.push_str(&rest[..at + 2]);
            rest = &begin[2..];
            continue;
        };
        has_variables = true;
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str(&begin[..begin.len() - after.len()]);
            rest = after;
            continue;
        }
        out.push_str(before);
        match (get(name), default) {
            (Some(value), _) => out.push_str(&line(name, value)?),
            (None, Some(default)) => out.push_str(default),
            (None, None) => return Err(Error::Unset(name.to_owned())),
        }
        if out.len() > EXPANDED_MAX {
            return Err(Error::TooLong);
        }
        rest = after;
    }
    out.push_str(rest);
    match has_variables {
        false => Ok(None),
        true if out.len() > EXPANDED_MAX => Err(Error::TooLong),
        true => Ok(Some(out)),
    }
}

/// Splits the text after `${` into the variable's name, its default and the rest; `None` if it is no variable. Names are
/// in upper case, so that `${1}` and `${name}` keep their meaning in regular expressions.
fn variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (inner, rest) = text.split_once('}')?;
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let is_part = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let is_name = name.bytes().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !name.is_empty()).then_some((name, default, rest))
}

/// Returns the value of a variable, if it is a line of text.
fn line(name: &str, value: OsString) -> Result<String, Error> {
    let text = value.into_string().ok();
    let text = text.filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| Error::NotText(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;

    use super::*;

    fn get(name: &str) -> Option<OsString> {
        match name {
            "HOST" => Some("cdn.example.com".into()),
            "EMPTY" => Some("".into()),
            "LINES" => Some("a\nb".into()),
            "BYTES" => Some(OsString::from_vec(vec![0xff])),
            "LONG" => Some("x".repeat(EXPANDED_MAX).into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced() {
        for (text, expected) in [
            ("http://${HOST}:80", Some("http://cdn.example.com:80")),
            (
                "${HOST}${EMPTY}${HOST}",
                Some("cdn.example.comcdn.example.com"),
            ),
            ("${NONE:-a}${HOST:-b}", Some("acdn.example.com")),
            ("${NONE:-}", Some("")),
            ("$${HOST} ${EMPTY}", Some("${HOST} ")),
            // Parts of regular expressions and their replacements.
            ("/a/${1}$2${name}", None),
            ("^/a$", None),
            ("${", None),
            ("${}", None),
            ("${1A}", None),
        ] {
            assert_eq!(
                expanded(text, &get),
                Ok(expected.map(str::to_owned)),
                "{text}"
            );
        }
    }

    #[test]
    fn unusable_variables_are_named() {
        for (text, error) in [
            ("a${NONE}", Error::Unset("NONE".to_owned())),
            ("${LINES}", Error::NotText("LINES".to_owned())),
            ("${BYTES}", Error::NotText("BYTES".to_owned())),
            ("x${LONG}", Error::TooLong),
        ] {
            assert_eq!(expanded(text, &get), Err(error), "{text}");
        }
        assert!(
            Error::Unset("A".to_owned())
                .advice()
                .contains("${A:-VALUE}")
        );
    }

    #[test]
    fn all_texts_of_a_document_are_expanded_and_problems_have_their_position() {
        let text = "a = \"${HOST}\"\nb = [1, { c = \"${NONE}\" }]\n[d.e]\nf = '${EMPTY}'\n\"${HOST}\" = 1\n";
        let mut tree = DeTable::parse(text).expect("TOML");
        let problems = expand(tree.get_mut(), &get);
        let [problem] = &problems[..] else {
            panic!("{problems:?}");
        };
        let at = problem.span.clone().expect("a position");
        assert_eq!(&text[at], "\"${NONE}\"");
        assert_eq!(problem.title, "the environment variable NONE is not set");
        let table = tree.get_ref();
        assert_eq!(
            table.get("a").and_then(|a| a.get_ref().as_str()),
            Some("cdn.example.com")
        );
        // Keys are as they were written.
        assert!(table.contains_key("d"));
    }

    #[test]
    fn all_values_together_have_a_limit() {
        let long = |name: &str| (name == "A").then(|| "x".repeat(EXPANDED_MAX).into());
        let most = TOGETHER_MAX / EXPANDED_MAX;
        for (count, problems) in [(most, 0), (most + 2, 2)] {
            let text = format!("a = [{}]", "\"${A}\", ".repeat(count));
            let mut tree = DeTable::parse(&text).expect("TOML");
            assert_eq!(expand(tree.get_mut(), &long).len(), problems);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_expanded_or_refused(text in "([$]{0,2}[{}A-Z:a-z0-9-]{0,4}){0,6}") {
            if let Ok(Some(out)) = expanded(&text, &get) {
                prop_assert_ne!(out, text);
            }
        }
    }
}
