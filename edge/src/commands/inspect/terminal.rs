//! The style of text on standard output: width, colours and characters of the terminal.

use std::env;
use std::io::{self, IsTerminal};

use super::layout::Style;
use crate::commands::output::colours;

/// Returns the style of the text on standard output.
pub fn style(ascii: bool) -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let terminal = io::stdout().is_terminal();
    let reported = || rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    let columns = set("COLUMNS").and_then(|columns| columns.parse().ok());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style {
        width: Style::width(columns.unwrap_or_else(|| if terminal { reported() } else { 0 })),
        ascii: ascii || !locale.is_some_and(|name| is_utf8(&name)),
        colour: colours(terminal),
    }
}

/// Whether a locale of this name uses UTF-8, as `en_GB.UTF-8` and `C.utf8` do.
pub fn is_utf8(locale: &str) -> bool {
    let name = locale.to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}
