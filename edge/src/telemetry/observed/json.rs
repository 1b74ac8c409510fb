//! JSON that is safe within HTML and on a terminal.

use std::fmt::Write;

use serde::Serialize;

/// Returns a value as JSON of one line in printable ASCII. Angle brackets and `&` are escaped, too, so that the text is
/// no markup wherever it is shown.
pub fn json_text(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Outside of strings, JSON has none of these (RFC 8259 2).
            '<' | '>' | '&' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            ' '..='~' => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String can't fail.
                    _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_neither_markup_nor_control() {
        let hostile = "<script>&\u{1b}[2J\u{202e}\u{1f600}\u{7f}\n\"\\é";
        let text = json_text(&hostile);
        assert!(text.bytes().all(|b| matches!(b, b' '..=b'~')));
        assert!(!text.contains(['<', '>', '&']));
        assert_eq!(
            serde_json::from_str::<String>(&text).ok().as_deref(),
            Some(hostile)
        );
    }
}
