//! The error of a command that found nothing.

use std::fmt;

use crate::config::Report;

/// Error: the running Sluice has nothing of the given name. This error has a separate exit status,
/// so that a script can distinguish it from an edge that does not respond.
#[derive(Debug)]
pub struct Nothing {
    /// The message, without control characters.
    pub text: String,
    /// Advice, without control characters.
    pub help: Option<String>,
}

impl Nothing {
    /// Returns the report of this error, with advice.
    pub fn report(&self) -> Report {
        Report::without_file(self.text.clone(), self.help.clone())
    }
}

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Nothing {}
