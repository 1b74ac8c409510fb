//! A switch that can also name a port.

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};
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
        scalar::read(deserializer, PORT, |written| match written {
            Scalar::Switch(on) => Ok(SwitchOrPort::Switch(on)),
            Scalar::Number(number) => match u16::try_from(number) {
                Ok(port) if port > 0 => Ok(SwitchOrPort::Port(port)),
                _ => Err(Misfit::Value(format!(
                    "{number} is not a port\n{PORT_ADVICE}"
                ))),
            },
            Scalar::Text(_) => Err(Misfit::Type),
        })
    }
}
