//! A switch that can also name a port.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::shape::{PORT, PORT_ADVICE};

/// `true`, `false`, or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOrPort {
    /// `true` or `false` was written.
    Switch(bool),
    /// A port was written.
    Port(u16),
}

impl<'de> Deserialize<'de> for SwitchOrPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SwitchOrPort, D::Error> {
        struct PortVisitor;
        impl Visitor<'_> for PortVisitor {
            type Value = SwitchOrPort;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PORT)
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<SwitchOrPort, E> {
                Ok(SwitchOrPort::Switch(on))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<SwitchOrPort, E> {
                match u16::try_from(number) {
                    Ok(port) if port > 0 => Ok(SwitchOrPort::Port(port)),
                    _ => Err(E::custom(format!("{number} is not a port\n{PORT_ADVICE}"))),
                }
            }
        }
        deserializer.deserialize_any(PortVisitor)
    }
}
