//! A server's response, in the form in which every protocol delivers it.

use smallvec::SmallVec;

use crate::handler::{Fault, Frame};
use crate::http::{Fields, Status, Version};
use crate::reason::Reason;

/// Most header lines in one head or trailer section of a response.
pub(super) const LINES_MAX: usize = 256;

/// Time after which a server that had to wait for the client may close the connection without a fault
/// of its own, in microseconds.
pub(super) const SLOW_US: u64 = 1_000_000;

/// A response's head.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: Status,
    pub(super) version: Version,
    /// The headers that are forwarded, before Sluice adds its own.
    pub(super) fields: Fields,
    pub(super) content: Content,
    /// With 101: the protocols in Upgrade.
    pub(super) protocols: SmallVec<[Vec<u8>; 1]>,
}

/// The content that follows a response's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// There is no content. `declared` is the Content-Length of a response to HEAD or a 304.
    None { declared: Option<u64> },
    /// Content of this many bytes, as declared by Content-Length.
    Sized(u64),
    /// Content of unknown length whose end the protocol marks (in HTTP/1.1 the last chunk).
    Delimited,
    /// Content that ends when the server closes the connection, so that truncation cannot be
    /// detected.
    UntilClose,
}

/// Result of trying to take the next frame of content from the received bytes.
pub(super) enum Step {
    Frame(Frame),
    /// The next frame is not complete: more bytes must be received first.
    More,
    /// All content has been taken.
    End,
}

/// The fault of an exchange that ended without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// Whether nothing of the request was processed.
    pub(super) unsent: bool,
    /// Whether the server has said that it did not process the request (RFC 9113 8.7), or the connection accepted none any
    /// more.
    pub(super) refused: bool,
    /// Whether the server closed the connection while the client's next content was awaited.
    pub(super) awaited_client: bool,
}

impl Failure {
    /// The failure of an exchange of which nothing was written.
    pub(super) fn unsent(fault: Fault) -> Failure {
        Failure {
            fault,
            unsent: true,
            refused: false,
            awaited_client: false,
        }
    }

    /// The failure of an exchange in which the server has processed nothing. `is_whole`: the request's content can be sent
    /// again.
    pub(super) fn refused(reason: Reason, is_whole: bool) -> Failure {
        let mut fault = Fault::from(reason);
        fault.retryable &= is_whole;
        Failure {
            fault,
            unsent: is_whole,
            refused: true,
            awaited_client: false,
        }
    }

    /// The failure of an exchange with this fault, of which the server may have processed something.
    pub(super) fn of(fault: Fault) -> Failure {
        Failure {
            fault: Fault {
                retryable: false,
                ..fault
            },
            unsent: false,
            refused: false,
            awaited_client: false,
        }
    }
}
