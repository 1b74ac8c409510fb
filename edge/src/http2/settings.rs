//! Settings (RFC 9113 6.5): their values, their limits, and when they apply.

use std::collections::VecDeque;

use super::frame::MAX_FRAME_SIZE_MIN;
use super::hpack::DEFAULT_TABLE_SIZE;
use super::violation::Violation;
use super::window::WINDOW_MAX;

/// Identifiers of settings (RFC 9113 6.5.2, RFC 8441 3, RFC 9218 2.1).
#[allow(missing_docs, reason = "each is the setting of its name")]
pub mod id {
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The side of the connection that sent some settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The side that opened the connection.
    Client,
    /// The other one.
    Server,
}

/// The pairs of identifier and value in a SETTINGS frame, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes<'a>(&'a [u8]);

impl<'a> Changes<'a> {
    /// Creates the changes in a payload, whose length is a multiple of 6.
    pub fn new(payload: &'a [u8]) -> Changes<'a> {
        Changes(payload)
    }

    /// Returns each identifier and value.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u32)> + 'a {
        self.0.as_chunks::<6>().0.iter().map(|&[a, b, c, d, e, f]| {
            (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
        })
    }
}

/// The settings of one side, which limit what the other one sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest size of the dynamic table (RFC 7541 4.2).
    pub header_table_size: u32,
    /// Whether the server may push.
    pub enable_push: bool,
    /// Most streams that may be open at a time. `u32::MAX` if there is no limit.
    pub max_concurrent_streams: u32,
    /// Flow-control window of a new stream.
    pub initial_window_size: u32,
    /// Longest payload of a frame.
    pub max_frame_size: u32,
    /// Largest size of a header list. `u32::MAX` if there is no limit.
    pub max_header_list_size: u32,
    /// Whether extended CONNECT is supported (RFC 8441).
    pub enable_connect_protocol: bool,
    /// Whether the priorities of RFC 7540 are not used (RFC 9218 2.1).
    pub no_rfc7540_priorities: bool,
}

impl Default for Settings {
    /// Returns the values at the start of a connection (RFC 9113 6.5.2).
    fn default() -> Settings {
        Settings {
            header_table_size: DEFAULT_TABLE_SIZE,
            enable_push: true,
            max_concurrent_streams: u32::MAX,
            initial_window_size: 65_535,
            max_frame_size: MAX_FRAME_SIZE_MIN,
            max_header_list_size: u32::MAX,
            enable_connect_protocol: false,
            no_rfc7540_priorities: false,
        }
    }
}

impl Settings {
    /// Applies one change that `sender` has sent. Unknown settings are ignored.
    ///
    /// # Errors
    ///
    /// The value is invalid. The change of `initial_window_size` also changes the windows of all streams, which may
    /// overflow: see `Window::adjust`.
    pub fn apply(&mut self, sender: Sender, id: u16, value: u32) -> Result<(), Violation> {
        match id {
            id::HEADER_TABLE_SIZE => self.header_table_size = value,
            id::ENABLE_PUSH => {
                self.enable_push = flag(value)?;
                if self.enable_push && sender == Sender::Server {
                    return Err(Violation::protocol("SETTINGS_ENABLE_PUSH of a server"));
                }
            }
            id::MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            id::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => {
                return Err(Violation::flow_control(
                    "SETTINGS_INITIAL_WINDOW_SIZE too large",
                ));
            }
            id::INITIAL_WINDOW_SIZE => self.initial_window_size = value,
            id::MAX_FRAME_SIZE => {
                if !(MAX_FRAME_SIZE_MIN..1 << 24).contains(&value) {
                    return Err(Violation::protocol("SETTINGS_MAX_FRAME_SIZE out of bounds"));
                }
                self.max_frame_size = value;
            }
            id::MAX_HEADER_LIST_SIZE => self.max_header_list_size = value,
            id::ENABLE_CONNECT_PROTOCOL => {
                let enabled = flag(value)?;
                // A client may already use it (RFC 8441 3).
                if self.enable_connect_protocol && !enabled {
                    return Err(Violation::protocol(
                        "SETTINGS_ENABLE_CONNECT_PROTOCOL revoked",
                    ));
                }
                self.enable_connect_protocol = enabled;
            }
            id::NO_RFC7540_PRIORITIES => self.no_rfc7540_priorities = flag(value)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the settings that differ from those at the start of a connection, as they are sent.
    pub fn changes(&self) -> impl Iterator<Item = (u16, u32)> {
        let initial = Settings::default();
        let all = [
            (
                id::HEADER_TABLE_SIZE,
                self.header_table_size,
                initial.header_table_size,
            ),
            (id::ENABLE_PUSH, self.enable_push.into(), 1),
            (
                id::MAX_CONCURRENT_STREAMS,
                self.max_concurrent_streams,
                initial.max_concurrent_streams,
            ),
            (
                id::INITIAL_WINDOW_SIZE,
                self.initial_window_size,
                initial.initial_window_size,
            ),
            (
                id::MAX_FRAME_SIZE,
                self.max_frame_size,
                initial.max_frame_size,
            ),
            (
                id::MAX_HEADER_LIST_SIZE,
                self.max_header_list_size,
                initial.max_header_list_size,
            ),
            (
                id::ENABLE_CONNECT_PROTOCOL,
                self.enable_connect_protocol.into(),
                0,
            ),
            (
                id::NO_RFC7540_PRIORITIES,
                self.no_rfc7540_priorities.into(),
                0,
            ),
        ];
        all.into_iter()
            .filter_map(|(id, value, initial)| (value != initial).then_some((id, value)))
    }
}

/// Parses a setting that is 0 or 1.
fn flag(value: u32) -> Result<bool, Violation> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Violation::protocol("setting neither 0 nor 1")),
    }
}

/// The settings of this side. The peer may rely on a change only from its acknowledgement on (RFC 9113 6.5.3).
#[derive(Debug, Default)]
pub struct OwnSettings {
    acknowledged: Settings,
    /// The settings that were sent and are not acknowledged, the oldest first.
    sent: VecDeque<Settings>,
}

impl OwnSettings {
    /// Returns the settings that the peer has acknowledged.
    pub fn acknowledged(&self) -> &Settings {
        &self.acknowledged
    }

    /// Returns the largest payload of a frame that the peer may send now.
    pub fn max_frame_size(&self) -> u32 {
        let sent = self.sent.iter().map(|settings| settings.max_frame_size);
        sent.fold(self.acknowledged.max_frame_size, u32::max)
    }

    /// Whether the peer has not acknowledged all settings yet.
    pub fn awaits_acknowledgement(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Notes that these settings were sent.
    pub fn sent(&mut self, settings: Settings) {
        self.sent.push_back(settings);
    }

    /// Handles an acknowledgement. Returns the settings before and after it.
    ///
    /// # Errors
    ///
    /// No settings wait for an acknowledgement. RFC 9113 names no error for this, so it counts as PROTOCOL_ERROR.
    pub fn acknowledge(&mut self) -> Result<(Settings, Settings), Violation> {
        let unexpected = Violation::protocol("acknowledgement of no settings");
        let after = self.sent.pop_front().ok_or(unexpected)?;
        let before = std::mem::replace(&mut self.acknowledged, after);
        Ok((before, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::violation::ErrorCode;

    #[test]
    fn invalid_values_are_refused() {
        for (sender, id, value, code) in [
            (
                Sender::Client,
                id::ENABLE_PUSH,
                2,
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                Sender::Server,
                id::ENABLE_PUSH,
                1,
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                Sender::Client,
                id::INITIAL_WINDOW_SIZE,
                1 << 31,
                ErrorCode::FLOW_CONTROL_ERROR,
            ),
            (
                Sender::Client,
                id::MAX_FRAME_SIZE,
                (1 << 14) - 1,
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                Sender::Client,
                id::MAX_FRAME_SIZE,
                1 << 24,
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                Sender::Server,
                id::ENABLE_CONNECT_PROTOCOL,
                2,
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                Sender::Client,
                id::NO_RFC7540_PRIORITIES,
                2,
                ErrorCode::PROTOCOL_ERROR,
            ),
        ] {
            let applied = Settings::default().apply(sender, id, value);
            assert!(
                matches!(applied, Err(Violation::Connection(found, _)) if found == code),
                "{id}"
            );
        }
        let mut settings = Settings::default();
        assert_eq!(
            settings.apply(Sender::Server, id::ENABLE_CONNECT_PROTOCOL, 1),
            Ok(())
        );
        assert!(
            settings
                .apply(Sender::Server, id::ENABLE_CONNECT_PROTOCOL, 0)
                .is_err()
        );
        assert_eq!(settings.apply(Sender::Client, 0x0a0a, u32::MAX), Ok(()));
    }

    #[test]
    fn sent_settings_are_read_and_apply_from_their_acknowledgement_on() {
        let settings = Settings {
            enable_push: false,
            max_concurrent_streams: 100,
            max_frame_size: 1 << 20,
            initial_window_size: 1 << 20,
            ..Settings::default()
        };
        let mut payload = Vec::new();
        for (id, value) in settings.changes() {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut read = Settings::default();
        for (id, value) in Changes::new(&payload).iter() {
            assert_eq!(read.apply(Sender::Client, id, value), Ok(()));
        }
        assert_eq!(read, settings);
        let mut own = OwnSettings::default();
        assert!(own.acknowledge().is_err());
        own.sent(settings);
        assert_eq!(own.acknowledged(), &Settings::default());
        assert_eq!(
            (own.max_frame_size(), own.awaits_acknowledgement()),
            (1 << 20, true)
        );
        assert_eq!(own.acknowledge(), Ok((Settings::default(), settings)));
        assert!(!own.awaits_acknowledgement());
    }
}
