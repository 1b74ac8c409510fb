//! Extensible priorities (RFC 9218 4): the value of a Priority field or of PRIORITY_UPDATE, a dictionary of structured
//! fields (RFC 9651 3.2).

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether parts of the response are useful, so that responses of the same urgency share the connection.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// Parses a value. A value that is no dictionary is ignored, as are parameters that are unknown, have another type
    /// or are out of range (RFC 9218 4).
    pub fn parse(value: &[u8]) -> Priority {
        Reader(value).priority().unwrap_or_default()
    }
}

/// The values of dictionary members that matter here.
#[derive(Clone, Copy)]
enum Value {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// The rest of a structured field.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Parses a dictionary (RFC 9651 4.2.2). If a key is repeated, its last value counts.
    fn priority(&mut self) -> Option<Priority> {
        let mut priority = Priority::default();
        self.skip(b" ");
        while let [b, ..] = self.0 {
            if *b == b' ' {
                // Only spaces may be left.
                self.skip(b" ");
                return self.0.is_empty().then_some(priority);
            }
            let key = self.key()?;
            let value = match self.take(b'=') {
                true => self.member()?,
                false => Value::Boolean(true),
            };
            self.parameters()?;
            let default = Priority::default();
            match (key, value) {
                (b"u", Value::Integer(urgency @ 0..=7)) => priority.urgency = urgency as u8,
                (b"u", _) => priority.urgency = default.urgency,
                (b"i", Value::Boolean(incremental)) => priority.incremental = incremental,
                (b"i", _) => priority.incremental = default.incremental,
                _ => {}
            }
            self.skip(b" \t");
            if self.0.is_empty() {
                return Some(priority);
            }
            if !self.take(b',') {
                return None;
            }
            self.skip(b" \t");
            if self.0.is_empty() {
                return None;
            }
        }
        Some(priority)
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|b| bytes.contains(&b));
    }

    fn take_while(&mut self, is: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&b| !is(b));
        let (taken, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let starts = matches!(self.0.first(), Some(b'a'..=b'z' | b'*'));
        let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.*".contains(&b);
        starts.then(|| self.take_while(is_part))
    }

    /// Parses an item or an inner list, without its parameters.
    fn member(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(|()| Value::Other),
            b'?' => self.boolean(),
            b':' => self.bytes().map(|()| Value::Other),
            b'@' => {
                self.take(b'@');
                match self.number()? {
                    Value::Integer(_) => Some(Value::Other),
                    _ => None,
                }
            }
            b'%' => self.display_string().map(|()| Value::Other),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let more = |b: u8| crate::http::fields::is_token_byte(b) || b == b':' || b == b'/';
                self.take_while(more);
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// Parses an integer of up to 15 digits, or a decimal of up to 12 digits, a dot and up to 3 digits.
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let digits = self.take_while(|b| b.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.take_while(|b| b.is_ascii_digit());
            let fits = digits.len() <= 12 && (1..=3).contains(&fraction.len());
            return fits.then_some(Value::Other);
        }
        let number = digits.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        Some(Value::Integer(if negative { -number } else { number }))
    }

    fn boolean(&mut self) -> Option<Value> {
        let (value, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        match value {
            b"?0" => Some(Value::Boolean(false)),
            b"?1" => Some(Value::Boolean(true)),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"');
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            match first {
                b'"' => return Some(()),
                b'\\' if self.take(b'"') || self.take(b'\\') => {}
                b'\\' => return None,
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    fn bytes(&mut self) -> Option<()> {
        self.take(b':');
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
        self.take_while(is_base64);
        self.take(b':').then_some(())
    }

    /// Skips a display string (RFC 9651 3.3.8) without checking that its escapes are UTF-8.
    fn display_string(&mut self) -> Option<()> {
        self.0 = self.0.strip_prefix(b"%\"")?;
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            match first {
                b'"' => return Some(()),
                b'%' => {
                    let (escape, rest) = self.0.split_first_chunk::<2>()?;
                    let is_hex = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
                    self.0 = escape.iter().all(is_hex).then_some(rest)?;
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{BareItem, Dictionary, ListEntry, Parser};

    use super::*;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    /// Parses a value with a library for structured fields.
    fn by_library(value: &[u8]) -> Priority {
        let Ok(dictionary) = Parser::new(value).parse::<Dictionary>() else {
            return Priority::default();
        };
        let item = |key: &str| match dictionary.get(key) {
            Some(ListEntry::Item(item)) => Some(item.bare_item.clone()),
            _ => None,
        };
        let mut priority = Priority::default();
        if let Some(BareItem::Integer(urgency)) = item("u")
            && let Ok(urgency @ 0..=7) = i64::from(urgency).try_into()
        {
            priority.urgency = urgency;
        }
        if let Some(BareItem::Boolean(incremental)) = item("i") {
            priority.incremental = incremental;
        }
        priority
    }

    #[test]
    fn values_are_parsed() {
        for (value, expected) in [
            (&b""[..], priority(3, false)),
            (b"u=0", priority(0, false)),
            (b"u=7, i", priority(7, true)),
            (b"i,u=1", priority(1, true)),
            (b"i=?0, u=5;a=b", priority(5, false)),
            (b"  u=2 ", priority(2, false)),
            (b"u=2, u=9", priority(3, false)),
            (b"u=8, i", priority(3, true)),
            (b"u=1.0, i=1", priority(3, false)),
            (
                b"x=(1 \"a\\\"\" ?1);y, u=6, z=:YQ==:, w=@1, v=%\"a%c3%a4\"",
                priority(6, false),
            ),
            (b"u=1,", priority(3, false)),
            (b"u=1 i", priority(3, false)),
            (b"U=1", priority(3, false)),
            (b"u=1, x=\"", priority(3, false)),
        ] {
            assert_eq!(Priority::parse(value), expected, "{}", value.escape_ascii());
            assert_eq!(by_library(value), expected, "{}", value.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_value_is_parsed_as_by_a_library(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "u", "i", "=", "?1", "?0", "1", "9", "-", ".", ",", " ", "\t", ";", "a", "(", ")", "\"", "\\", "@",
                    "A/", "u=5", "*", ", ",
                ]),
                0..12,
            )
        ) {
            let value = parts.concat();
            prop_assert_eq!(Priority::parse(value.as_bytes()), by_library(value.as_bytes()), "{}", value);
        }

        #[test]
        fn any_bytes_are_accepted(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Priority::parse(&value);
        }
    }
}
