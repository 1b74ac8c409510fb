//! Faults: what went wrong with a request, in named causes, each with the status it becomes.

use crate::http::Status;

/// Why a request, a fetch or a body failed: what was being done, whose fault it was, whether
/// another try may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What was being done.
    pub stage: Stage,
    /// Whose fault it was.
    pub whose: Whose,
    /// Whether nothing of the request can have been acted upon, so that it may be sent again.
    pub retryable: bool,
    /// The named reason.
    pub cause: Cause,
    /// Seconds after which the client may ask again (RFC 9110 10.2.3); 0: nothing is said.
    pub retry_after_s: u32,
}

/// What was being done when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the client's request.
    Request,
    /// Choosing and reaching a server.
    Connect,
    /// Sending the request to the origin.
    Send,
    /// Waiting for and reading the response's head.
    Head,
    /// Reading the response's body.
    Body,
    /// Work of our own.
    Edge,
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The client's.
    Client,
    /// Ours.
    Edge,
    /// The origin's, or the way's there.
    Origin,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal, $stage:ident, $whose:ident, $retryable:literal;)*) => {
        /// Named reasons, each with its stage, whose fault it is and whether a retry is safe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cause { $($(#[$doc])* $name),* }

        impl Cause {
            /// Every cause, in order.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),*];

            /// The word for logs, metrics and Cache-Status.
            pub fn word(self) -> &'static str {
                match self { $(Cause::$name => $word),* }
            }

            /// What a client is told whose request it ends (RFC 9110 15.5, 15.6).
            pub fn status(self) -> Status {
                match self { $(Cause::$name => $status),* }
            }
        }

        impl From<Cause> for Fault {
            fn from(cause: Cause) -> Fault {
                match cause {
                    $(Cause::$name => Fault {
                        stage: Stage::$stage,
                        whose: Whose::$whose,
                        retryable: $retryable,
                        cause,
                        retry_after_s: 0,
                    }),*
                }
            }
        }
    };
}

causes! {
    /// The client went away in mid-request.
    ClientGone = "client-gone", 400, Request, Client, false;
    /// The client's body broke its framing.
    BadRequestBody = "bad-request-body", 400, Request, Client, false;
    /// The client's body is over the limit.
    RequestBodyTooLarge = "request-body-too-large", 413, Request, Client, false;
    /// The client's body came too slowly.
    RequestBodyTimeout = "request-body-timeout", 408, Request, Client, false;
    /// No route leads anywhere for this host and path.
    NoRoute = "no-route", 404, Edge, Client, false;
    /// No server is configured or all are marked down.
    NoServer = "no-server", 503, Connect, Origin, true;
    /// There is no such file, or none that may be served.
    NotFound = "not-found", 404, Edge, Client, false;
    /// The file may not be read.
    FileDenied = "file-denied", 403, Edge, Client, false;
    /// The file system failed.
    FileFailed = "file-failed", 500, Edge, Edge, false;
    /// The file was written to while it was sent (the body is cut).
    FileChanged = "file-changed", 500, Body, Edge, false;
    /// The client's address may not use this route.
    AddressDenied = "address-denied", 403, Edge, Client, false;
    /// The URL has no signature, and needs one.
    SignatureMissing = "signature-missing", 403, Edge, Client, false;
    /// The URL's signature is not one of ours, or is for something else.
    SignatureWrong = "signature-wrong", 403, Edge, Client, false;
    /// The URL's signature was good for a time that is over.
    SignatureExpired = "signature-expired", 410, Edge, Client, false;
    /// The client's address asks more often than it may (RFC 6585 4).
    TooManyRequests = "too-many-requests", 429, Edge, Client, false;
    /// Every server is at its limit of connections.
    ServersBusy = "servers-busy", 503, Connect, Edge, true;
    /// A name did not resolve.
    Unresolved = "unresolved", 502, Connect, Origin, true;
    /// The server refused the connection or the way is broken.
    ConnectFailed = "connect-failed", 502, Connect, Origin, true;
    /// The server did not accept within `connect_timeout`.
    ConnectTimeout = "connect-timeout", 504, Connect, Origin, true;
    /// A reused connection turned out closed before a byte of the response came.
    StaleConnection = "stale-connection", 502, Send, Origin, true;
    /// Sending the request failed.
    SendFailed = "send-failed", 502, Send, Origin, false;
    /// The origin closed before a complete head.
    ClosedBeforeHead = "closed-before-head", 502, Head, Origin, false;
    /// The origin sent no complete head within `read_timeout`.
    HeadTimeout = "head-timeout", 504, Head, Origin, false;
    /// The origin's head is broken, too large or ambiguous.
    BadHead = "bad-head", 502, Head, Origin, false;
    /// The origin answered with a status that does not fit the request, such as 101 unasked.
    UnexpectedStatus = "unexpected-status", 502, Head, Origin, false;
    /// The origin's body ended before its declared length or last chunk.
    BodyCut = "body-cut", 502, Body, Origin, false;
    /// The origin's body broke its framing.
    BadBody = "bad-body", 502, Body, Origin, false;
    /// No byte of the origin's body within `read_timeout`.
    BodyTimeout = "body-timeout", 504, Body, Origin, false;
    /// The fetch this request rode was given up by us (no room, too slow a reader).
    FetchAbandoned = "fetch-abandoned", 503, Body, Edge, false;
    /// What was being read is no more: the origin has another version (the body is cut).
    VersionChanged = "version-changed", 502, Body, Origin, false;
    /// No memory left for this request.
    NoRoom = "no-room", 503, Edge, Edge, false;
    /// A defect of ours: the request panicked.
    Panic = "panic", 500, Edge, Edge, false;
    /// The request went through this edge before.
    Loop = "loop", 508, Edge, Client, false;
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.cause.word())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_word() {
        let mut words: Vec<_> = Cause::ALL.iter().map(|c| c.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Cause::ALL.len());
    }

    #[test]
    fn every_cause_has_a_status_that_names_whose_fault_it_was() {
        for &cause in Cause::ALL {
            let fault = Fault::from(cause);
            let status = fault.cause.status();
            match fault.whose {
                Whose::Client => assert!(matches!(status, 400..=499 | 508), "{cause:?}"),
                Whose::Edge | Whose::Origin => assert!((500..600).contains(&status), "{cause:?}"),
            }
        }
    }
}
