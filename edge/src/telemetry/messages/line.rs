//! Formats the line of a message. The text may come from an origin or a file, so it is escaped and
//! can neither begin a new line nor control a terminal.

use std::fmt::{Debug, Write};
use std::time::{Duration, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Longest text of a message in bytes. A longer text is cut and ends in `...`.
const TEXT_MAX: usize = 16 << 10;
/// Most lines of one message.
const LINES_MAX: usize = 200;
/// Beginning of the second and each further line of a message.
const CONTINUATION: &str = "\n    | ";

/// Formats a message with its fields, escaped: `text name=value`.
pub(super) fn text(event: &Event<'_>) -> String {
    let mut parts = Parts::default();
    event.record(&mut parts);
    let mut out = String::new();
    // A report has several lines. All but the first are marked, so that none looks like a message
    // of its own.
    for (i, line) in parts.message.lines().take(LINES_MAX).enumerate() {
        if i > 0 {
            out += CONTINUATION;
        }
        escape(&mut out, line);
    }
    out += &parts.fields;
    out
}

/// Formats a line: `2000-10-10T13:55:36.042Z WARN text`.
pub(super) fn line(unix_ms: u64, level: Level, text: &str, colours: bool) -> String {
    let mut out = String::with_capacity(text.len() + 40);
    // Writing to a String can't fail, here and in the rest of this function.
    let since = Duration::from_millis(unix_ms.min(SECOND_MAX * 1000));
    let _ = write!(
        out,
        "{} ",
        humantime::format_rfc3339_millis(UNIX_EPOCH + since)
    );
    let _ = match colours {
        true => write!(out, "\x1b[{}m{level:>5}\x1b[0m ", colour(level)),
        false => write!(out, "{level:>5} "),
    };
    out += text;
    out.push('\n');
    out
}

/// The last second that httpdate can format (in the year 9999).
const SECOND_MAX: u64 = 253_402_300_799;

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    }
}

/// The text of a message, and its other fields.
#[derive(Default)]
struct Parts {
    message: String,
    fields: String,
}

impl Parts {
    fn add(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
            return;
        }
        let _ = write!(self.fields, " {}=", field.name());
        let bare = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        if !value.is_empty() && value.chars().all(bare) {
            self.fields += value;
            return;
        }
        self.fields.push('"');
        let mut escaped = String::new();
        escape(&mut escaped, value);
        self.fields += &escaped.replace('"', "\\\"");
        self.fields.push('"');
    }
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = Bounded(String::new());
        let _ = write!(text, "{value:?}");
        self.add(field, &text.0);
    }
}

/// A text that is cut at `TEXT_MAX` bytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = TEXT_MAX.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(std::fmt::Error)
    }
}

/// Writes letters, digits and visible ASCII as they are, and escapes backslashes, control characters
/// and characters that change the direction of text.
fn escape(out: &mut String, text: &str) {
    let end = text.floor_char_boundary(TEXT_MAX);
    for c in text[..end].chars() {
        match c {
            '\\' => *out += "\\\\",
            ' '..='~' => out.push(c),
            '…' | '–' | '—' | '“' | '”' | '‘' | '’' => out.push(c),
            // Reports contain box drawing characters, which are harmless.
            '\u{2500}'..='\u{257f}' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            '\n' => *out += "\\n",
            c => out.extend(c.escape_unicode()),
        }
    }
    if end < text.len() {
        *out += "...";
    }
}
