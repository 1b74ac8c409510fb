//! Values in the JSON of the admin API.

use serde_json::Value;

use crate::commands::output::harmless;

pub(in crate::commands) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Returns a string with everything escaped that could control a terminal, or `-` if the value is
/// no string.
pub(in crate::commands) fn text(value: &Value) -> String {
    harmless(value.as_str().unwrap_or("-"))
}

pub(in crate::commands) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
