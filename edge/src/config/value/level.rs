//! The lowest level of messages that are logged.

use serde::Deserialize;

/// Value of `level` in `[log]`. `false` is read as `Off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each variant is the level of its name")]
pub enum Level {
    #[serde(skip_deserializing)]
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl Level {
    /// Returns the level's name in the syntax of tracing's filters.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }
}
