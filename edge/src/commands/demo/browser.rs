//! Opens the dashboard in the user's browser.

use std::env;
use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

use crate::sys::user;

/// Variables that a desktop session sets.
const SESSION: [&str; 2] = ["WAYLAND_DISPLAY", "DISPLAY"];

/// Opens a URL in the browser if the demo was started in a terminal of a desktop session. Root has no browser. A failure is
/// not reported, since the URL is printed, too.
pub(super) fn open(url: &str) {
    let has_session = SESSION.iter().any(|name| env::var_os(name).is_some());
    if !has_session || user::is_root() || !io::stdout().is_terminal() {
        return;
    }
    let mut command = Command::new("xdg-open");
    let quiet = command.arg(url).stdin(Stdio::null());
    let quiet = quiet.stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut opened) = quiet.spawn() {
        // The program may end only with the browser. The demo does not wait for its end.
        std::thread::spawn(move || opened.wait());
    }
}
