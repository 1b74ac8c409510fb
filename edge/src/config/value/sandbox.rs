//! The type of `sandbox`: `"auto"`, `true` or `false`.

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};

const SHAPE: &str = "\"auto\", true or false";

/// Value of `sandbox`: whether the process restricts its own access to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Restricted if the kernel supports it.
    Auto,
    /// Always restricted. The program does not start if the kernel does not support it.
    Yes,
    /// Never restricted.
    No,
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sandbox, D::Error> {
        scalar::read(deserializer, SHAPE, |written| match written {
            Scalar::Switch(true) => Ok(Sandbox::Yes),
            Scalar::Switch(false) => Ok(Sandbox::No),
            Scalar::Text("auto") => Ok(Sandbox::Auto),
            Scalar::Text(word) => Err(Misfit::Value(format!(
                "{word:?} is not a value of `sandbox`\nwrite \"auto\", or true or false without quotes"
            ))),
            Scalar::Number(_) => Err(Misfit::Type),
        })
    }
}
