//! Faults: what went wrong with a request, in named causes.

/// Why a request, a fetch or a body failed: what was being done, whose fault it was, whether
/// another try may help. It becomes a status only in downstream.
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
    ($($(#[$doc:meta])* $name:ident = $word:literal, $stage:ident, $whose:ident, $retryable:literal;)*) => {
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
        }

        impl From<Cause> for Fault {
            fn from(cause: Cause) -> Fault {
                match cause {
                    $(Cause::$name => Fault {
                        stage: Stage::$stage,
                        whose: Whose::$whose,
                        retryable: $retryable,
                        cause,
                    }),*
                }
            }
        }
    };
}

causes! {
    /// The client went away in mid-request.
    ClientGone = "client-gone", Request, Client, false;
    /// The client's body broke its framing (400).
    BadRequestBody = "bad-request-body", Request, Client, false;
    /// The client's body is over the limit (413).
    RequestBodyTooLarge = "request-body-too-large", Request, Client, false;
    /// The client's body came too slowly (408).
    RequestBodyTimeout = "request-body-timeout", Request, Client, false;
    /// No route leads anywhere for this host and path (404).
    NoRoute = "no-route", Edge, Client, false;
    /// No server is configured or all are marked down (503).
    NoServer = "no-server", Connect, Origin, true;
    /// There is no such file, or none that may be served (404).
    NotFound = "not-found", Edge, Client, false;
    /// The file may not be read (403).
    FileDenied = "file-denied", Edge, Edge, false;
    /// The file system failed (500).
    FileFailed = "file-failed", Edge, Edge, false;
    /// The file was written to while it was sent (the body is cut).
    FileChanged = "file-changed", Body, Edge, false;
    /// Every server is at its limit of connections (503).
    ServersBusy = "servers-busy", Connect, Edge, true;
    /// A name did not resolve (502).
    Unresolved = "unresolved", Connect, Origin, true;
    /// The server refused the connection or the way is broken (502).
    ConnectFailed = "connect-failed", Connect, Origin, true;
    /// The server did not accept within `connect_timeout` (504).
    ConnectTimeout = "connect-timeout", Connect, Origin, true;
    /// A reused connection turned out closed before a byte of the response came (502).
    StaleConnection = "stale-connection", Send, Origin, true;
    /// Sending the request failed (502).
    SendFailed = "send-failed", Send, Origin, false;
    /// The origin closed before a complete head (502).
    ClosedBeforeHead = "closed-before-head", Head, Origin, false;
    /// The origin sent no complete head within `read_timeout` (504).
    HeadTimeout = "head-timeout", Head, Origin, false;
    /// The origin's head is broken, too large or ambiguous (502).
    BadHead = "bad-head", Head, Origin, false;
    /// The origin answered with a status that does not fit the request, such as 101 unasked (502).
    UnexpectedStatus = "unexpected-status", Head, Origin, false;
    /// The origin's body ended before its declared length or last chunk.
    BodyCut = "body-cut", Body, Origin, false;
    /// The origin's body broke its framing.
    BadBody = "bad-body", Body, Origin, false;
    /// No byte of the origin's body within `read_timeout`.
    BodyTimeout = "body-timeout", Body, Origin, false;
    /// The fetch this request rode was given up by us (no room, too slow a reader).
    FetchAbandoned = "fetch-abandoned", Body, Edge, false;
    /// What was being read is no more: the origin has another version (the body is cut).
    VersionChanged = "version-changed", Body, Origin, false;
    /// No memory left for this request (503).
    NoRoom = "no-room", Edge, Edge, false;
    /// A defect of ours: the request panicked (500).
    Panic = "panic", Edge, Edge, false;
    /// The request went through this edge before (508).
    Loop = "loop", Edge, Client, false;
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
}
