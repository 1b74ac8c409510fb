//! The ways in which a peer can violate the protocol, with the error codes of RFC 9113 7.

/// An error code of GOAWAY and RST_STREAM. A peer may send codes that have no name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

#[allow(missing_docs, reason = "each is the code of its name in RFC 9113 7")]
impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0x0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(0x1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(0x3);
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(0x4);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(0x5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(0x6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(0x7);
    pub const CANCEL: ErrorCode = ErrorCode(0x8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(0x9);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(0xb);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(0xd);
}

/// A violation of the protocol by the peer, with the reaction that RFC 9113 5.4 names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The connection ends with GOAWAY (RFC 9113 5.4.1). The text is for the log and GOAWAY's debug data.
    Connection(ErrorCode, &'static str),
    /// The stream ends with RST_STREAM (RFC 9113 5.4.2).
    Stream(u32, ErrorCode, &'static str),
}

impl Violation {
    /// A frame names a stream that has not begun (RFC 9113 5.1).
    pub const IDLE: Violation = Violation::protocol("frame on an idle stream");

    /// Returns the error of a frame on a stream that has ended (RFC 9113 5.1).
    pub const fn closed(stream: u32) -> Violation {
        Violation::Stream(stream, ErrorCode::STREAM_CLOSED, "frame on a closed stream")
    }

    /// Returns a connection error of type PROTOCOL_ERROR.
    pub const fn protocol(text: &'static str) -> Violation {
        Violation::Connection(ErrorCode::PROTOCOL_ERROR, text)
    }

    /// Returns a connection error of type FRAME_SIZE_ERROR.
    pub const fn frame_size(text: &'static str) -> Violation {
        Violation::Connection(ErrorCode::FRAME_SIZE_ERROR, text)
    }

    /// Returns a connection error of type FLOW_CONTROL_ERROR.
    pub const fn flow_control(text: &'static str) -> Violation {
        Violation::Connection(ErrorCode::FLOW_CONTROL_ERROR, text)
    }

    /// Returns the error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Violation::Connection(code, _) | Violation::Stream(_, code, _) => *code,
        }
    }
}
