//! The type of `sandbox`: `"auto"`, `true` or `false`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

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
        struct SandboxVisitor;
        impl Visitor<'_> for SandboxVisitor {
            type Value = Sandbox;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", true or false")
            }

            fn visit_bool<E: Error>(self, yes: bool) -> Result<Sandbox, E> {
                Ok(if yes { Sandbox::Yes } else { Sandbox::No })
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Sandbox, E> {
                match word {
                    "auto" => Ok(Sandbox::Auto),
                    _ => Err(E::custom(format!(
                        "{word:?} is not a value of `sandbox`\nwrite \"auto\", or true or false without quotes"
                    ))),
                }
            }
        }
        deserializer.deserialize_any(SandboxVisitor)
    }
}
