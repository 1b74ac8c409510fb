//! Reasons: one enum for why a request was refused, failed or was forwarded, and why a response was not stored.
//!
//! Code decides by the variants and the methods here. The text of a reason is only printed.

#[cfg(test)]
mod tests;

/// The party at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The client.
    Client,
    /// Sluice itself.
    Edge,
    /// The origin or the network to it.
    Origin,
}

/// Kinds of reasons, by the event that they explain. `docs/reasons.md` has a section for each kind.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request, a fetch or a body failed.
    Fault,
    /// A request was refused before a handler saw it.
    Refused,
    /// A response was cut: its connection was closed after a part of the response was sent.
    Cut,
    /// A request was forwarded without the cache (passed), or the cache answered it without a stored response.
    Passed,
    /// A stale response was served.
    Stale,
    /// A response was not stored.
    NotStored,
    /// The fill policy forwarded a request separately, or replaced an object.
    Forwarded,
    /// A response to a fetch did not match the object for which it was fetched.
    Fenced,
    /// A fetch was started.
    Fetched,
}

macro_rules! reasons {
    (@status) => { None };
    (@status $status:literal) => { Some($status) };
    (@whose) => { None };
    (@whose $whose:ident) => { Some(Party::$whose) };
    (@retryable) => { false };
    (@retryable $retryable:literal) => { $retryable };
    ($($kind:ident { $(
        $(#[doc = $doc:literal])+
        $name:ident = $text:literal $(, $status:literal $(, $whose:ident, $retryable:literal)?)?;
    )* })*) => {
        /// A named reason. Its variants are listed in `docs/reasons.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($($(#[doc = $doc])+ $name),*),* }

        impl Reason {
            /// Every reason, in the order of their declaration.
            pub const ALL: &'static [Reason] = &[$($(Reason::$name),*),*];

            /// Returns the token that is printed in Cache-Status, logs, JSON and response bodies.
            pub const fn text(self) -> &'static str {
                match self { $($(Reason::$name => $text),*),* }
            }

            /// Returns the kind of the reason.
            #[cfg(test)]
            pub const fn kind(self) -> Kind {
                match self { $($(Reason::$name => Kind::$kind),*),* }
            }

            /// Returns the status of the response that Sluice sends for this reason (RFC 9110 15.5, 15.6); `None` for reasons that end no
            /// request.
            pub const fn status(self) -> Option<u16> {
                match self { $($(Reason::$name => reasons!(@status $($status)?)),*),* }
            }

            /// Returns the party at fault; `None` for reasons that are no faults.
            pub const fn whose(self) -> Option<Party> {
                match self { $($(Reason::$name => reasons!(@whose $($($whose)?)?)),*),* }
            }

            /// Whether the origin can't have processed any part of the request, so that the request may be sent again.
            pub const fn retryable(self) -> bool {
                match self { $($(Reason::$name => reasons!(@retryable $($($retryable)?)?)),*),* }
            }

            /// Returns the documentation of the variant.
            #[cfg(test)]
            fn meaning(self) -> &'static str {
                match self { $($(Reason::$name => concat!($($doc),+)),*),* }
            }
        }
    };
}

reasons! {
    Fault {
        /// The client closed the connection before its request or the response was complete.
        ClientGone = "client-gone", 400, Client, false;
        /// The framing of the client's body is invalid.
        BadRequestBody = "bad-request-body", 400, Client, false;
        /// The request body is larger than `body` allows, or than a buffered body may be (`[buffers]`).
        RequestBodyTooLarge = "request-body-too-large", 413, Client, false;
        /// The client's body has no known length, and the origin's protocol (HTTP/1.0) needs one.
        LengthRequired = "length-required", 411, Client, false;
        /// The client's body arrived too slowly.
        RequestBodyTimeout = "request-body-timeout", 408, Client, false;
        /// No route matches this host and path.
        NoRoute = "no-route", 404, Client, false;
        /// No server is configured, or all are down or drained by an order.
        NoServer = "no-server", 503, Origin, true;
        /// The path leads to no file, or to one that may not be served.
        NotFound = "not-found", 404, Client, false;
        /// The file may not be read.
        FileDenied = "file-denied", 403, Client, false;
        /// The file system failed.
        FileFailed = "file-failed", 500, Edge, false;
        /// The file changed while it was being sent (the body is cut).
        FileChanged = "file-changed", 500, Edge, false;
        /// The route does not take this method (`allow_methods`), or the method is TRACE (RFC 9110 15.5.6).
        MethodNotAllowed = "method-not-allowed", 405, Client, false;
        /// The client's address may not use this route.
        AddressDenied = "address-denied", 403, Client, false;
        /// The route needs a client certificate (`client_certificate`), and the client has none.
        CertificateRequired = "certificate-required", 403, Client, false;
        /// The URL needs a signature and has none.
        SignatureMissing = "signature-missing", 403, Client, false;
        /// The URL's signature was made with another key, or for another URL or address.
        SignatureWrong = "signature-wrong", 403, Client, false;
        /// The URL's signature has expired.
        SignatureExpired = "signature-expired", 410, Client, false;
        /// The result of `rewrite` is not a valid target, or is longer than 64 KiB.
        BadRewrite = "bad-rewrite", 500, Edge, false;
        /// The client's address sends requests more often than it may (RFC 6585 4).
        TooManyRequests = "too-many-requests", 429, Client, false;
        /// Every server is at its limit of connections, and the queue is full, this client has half of it, or no connection became free within `queue_timeout`.
        ServersBusy = "servers-busy", 503, Edge, true;
        /// The requests that wait for their responses take as much memory as `request_memory` allows, or those of this client half of it.
        RequestMemory = "request-memory", 503, Edge, true;
        /// The buffers of request bodies take as much memory as `[buffers]` allows, or those of this client half of it.
        BuffersFull = "buffers-full", 503, Edge, true;
        /// The request body is too long for memory, and its file has no room: all files take as much as `disk` in `[buffers]` allows, or those of this client half of it, or the file system is full.
        BufferDiskFull = "buffer-disk-full", 507, Edge, false;
        /// The file of a buffered body could not be written or read (a response is cut). The log has the cause.
        BufferDiskFailed = "buffer-disk-failed", 507, Edge, false;
        /// Writing or reading the file of a buffered body took longer than `disk_timeout` (a response is cut).
        BufferDiskTimeout = "buffer-disk-timeout", 507, Edge, false;
        /// The server's name did not resolve.
        Unresolved = "unresolved", 502, Origin, true;
        /// All local ports for connections to the server are in use, or this machine does not have the address in `bind`. This counts as no failure of the server.
        NoLocalPort = "no-local-port", 503, Edge, true;
        /// The system has no descriptor or no memory for another connection. This counts as no failure of the server, and no other one is tried.
        NoSocket = "no-socket", 503, Edge, true;
        /// The server or the network refused the connection.
        ConnectFailed = "connect-failed", 502, Origin, true;
        /// The server did not accept the connection within `connect_timeout`.
        ConnectTimeout = "connect-timeout", 504, Origin, true;
        /// TLS with the server failed: its certificate is not valid, or it refused the handshake. The log has the cause.
        TlsFailed = "tls-failed", 502, Origin, true;
        /// A reused connection turned out to be closed before a byte of the response arrived.
        StaleConnection = "stale-connection", 502, Origin, true;
        /// A server of HTTP/2 refused the request before it processed any of it (REFUSED_STREAM, GOAWAY), again and again, or its content could not be sent again.
        StreamRefused = "stream-refused", 502, Origin, true;
        /// Sending the request failed.
        SendFailed = "send-failed", 502, Origin, false;
        /// The origin closed the connection before a complete head. So does a server that expects TLS if its URL has `http://`.
        ClosedBeforeHead = "closed-before-head", 502, Origin, false;
        /// The origin sent no complete head within `read_timeout`.
        HeadTimeout = "head-timeout", 504, Origin, false;
        /// The origin's response head is malformed, too large or ambiguous, or of another version of HTTP than the server's
        /// URL says.
        BadHead = "bad-head", 502, Origin, false;
        /// The origin answered with a status that does not fit the request, such as 101 without Upgrade.
        UnexpectedStatus = "unexpected-status", 502, Origin, false;
        /// The server answered with a status in `retry.on`, so another server was tried.
        RetriedStatus = "retried-status", 502, Origin, false;
        /// The server answered with 500, 502, 503 or 504, which counts as a failure of the server. The response was passed on.
        ErrorStatus = "error-status", 502, Origin, false;
        /// The origin's body ended before its declared length or last chunk.
        BodyCut = "body-cut", 502, Origin, false;
        /// The framing of the origin's body is invalid.
        BadBody = "bad-body", 502, Origin, false;
        /// The origin's body arrived too slowly: no byte within `read_timeout`, or more slowly than `min_rate`.
        BodyTimeout = "body-timeout", 504, Origin, false;
        /// Sluice ended the fetch that this request waited for: there was no memory, or no reader kept up.
        FetchAbandoned = "fetch-abandoned", 503, Edge, false;
        /// The origin has another version than the one being sent (the body is cut).
        VersionChanged = "version-changed", 502, Origin, false;
        /// There is no memory for this request, or none to store the response in.
        NoRoom = "no-room", 503, Edge, false;
        /// A defect of Sluice ended the request (a panic).
        Panic = "panic", 500, Edge, false;
        /// The request has passed through this server before.
        Loop = "loop", 508, Client, false;
        /// The request's header list is larger than its server of HTTP/2 accepts.
        OriginHeaderLimit = "origin-header-limit", 431, Client, false;
    }
    Refused {
        /// The complete head did not arrive in time.
        HeaderTimeout = "header-timeout", 408;
        /// The request line is over its limit.
        RequestLineTooLong = "request-line-too-long", 414;
        /// The head is over its limit.
        HeadersTooLarge = "headers-too-large", 431;
        /// The head has too many lines.
        TooManyHeaders = "too-many-headers", 431;
        /// The HTTP version is not supported, or `protocols` of the listener leaves it out.
        HttpVersion = "http-version", 505;
        /// An empty line precedes the request line.
        EmptyLineBeforeRequest = "empty-line-before-request", 400;
        /// The request line is malformed.
        BadRequestLine = "bad-request-line", 400;
        /// The client speaks TLS, and the listener has no `tls`.
        UnexpectedTls = "unexpected-tls", 400;
        /// A header's name is malformed.
        BadFieldName = "bad-field-name", 400;
        /// A header's value is malformed.
        BadFieldValue = "bad-field-value", 400;
        /// A header line is malformed.
        BadFieldLine = "bad-field-line", 400;
        /// A line ends with CR alone.
        BareCr = "bare-cr", 400;
        /// A line ends with LF alone.
        BareLf = "bare-lf", 400;
        /// The method is CONNECT.
        Connect = "connect", 501;
        /// A TRACE request has a body.
        TraceWithBody = "trace-with-body", 400;
        /// An HTTP/1.1 request has no Host.
        NoHost = "no-host", 400;
        /// Host is empty in a request that needs a host.
        EmptyHost = "empty-host", 400;
        /// The request has several Host lines.
        RepeatedHost = "repeated-host", 400;
        /// The target's scheme is neither that of the connection nor the one that a trusted proxy reports. In an absolute
        /// target of HTTP/1, only the reported one counts.
        TargetOfAnotherScheme = "target-of-another-scheme", 400;
        /// The transfer coding is unknown.
        UnknownTransferCoding = "unknown-transfer-coding", 501;
        /// Transfer-Encoding is malformed.
        BadTransferEncoding = "bad-transfer-encoding", 400;
        /// The expectation is unknown.
        UnknownExpectation = "unknown-expectation", 417;
        /// A header's name resembles that of a framing header, so that a server could take it for one.
        FieldMimicsFraming = "field-mimics-framing", 400;
        /// The request has both Content-Length and Transfer-Encoding.
        LengthAndTransferEncoding = "length-and-transfer-encoding", 400;
        /// Content-Length is malformed or repeated.
        BadContentLength = "bad-content-length", 400;
        /// An HTTP/1.0 request has Transfer-Encoding.
        TransferEncodingInHttp10 = "transfer-encoding-in-http-1-0", 400;
        /// The request has no target.
        NoTarget = "no-target", 400;
        /// The target's scheme is not `http` or `https`.
        TargetScheme = "target-scheme", 400;
        /// An absolute target has no host.
        TargetNoHost = "target-no-host", 400;
        /// The target has user information.
        TargetUserinfo = "target-userinfo", 400;
        /// The target has a byte that is not allowed in a URI.
        TargetByte = "target-byte", 400;
        /// A `%` in the path is not followed by two hexadecimal digits.
        TargetPercent = "target-percent", 400;
        /// The path has an escaped NUL.
        TargetNul = "target-nul", 400;
        /// Dot segments lead above the root.
        TargetAboveRoot = "target-above-root", 400;
        /// A dot segment is hidden by escapes or backslashes.
        TargetHiddenDots = "target-hidden-dots", 400;
        /// The host has a port but no name.
        HostNoName = "host-no-name", 400;
        /// The host is too long.
        HostTooLong = "host-too-long", 400;
        /// The host has a byte that is not allowed in a host, or ends in two dots.
        HostByte = "host-byte", 400;
        /// The host is a malformed IPv6 address.
        HostAddress = "host-address", 400;
        /// The host's port is malformed.
        HostPort = "host-port", 400;
        /// The request is for a host that demands another client certificate than the connection's TLS handshake (RFC
        /// 9110 15.5.20).
        Misdirected = "misdirected", 421;
        /// A request of HTTP/2 is malformed (RFC 9113 8.1.1). Its stream is reset, so the status is only logged.
        MalformedRequest = "malformed-request", 400;
        /// The connection has as many requests as `max_streams` allows, or does not read the responses of 16 others while
        /// the worker has more than 4,096 such responses. The stream is reset (REFUSED_STREAM), so the status is only logged.
        TooManyStreams = "too-many-streams", 503;
        /// The client's address may not send PURGE.
        PurgeNotAllowed = "purge-not-allowed", 403;
    }
    Cut {
        /// The client received the response too slowly.
        SendTimeout = "send-timeout";
        /// The response was still being sent at the end of `shutdown_timeout`.
        DrainTimeout = "drain-timeout";
        /// No byte passed through a tunnel (Upgrade) for `tunnel_timeout`.
        TunnelTimeout = "tunnel-timeout";
    }
    Passed {
        /// The request asks for another protocol.
        Upgrade = "upgrade";
        /// A GET or HEAD has a body.
        RequestBody = "request-body";
        /// The request has a cookie named in `bypass`.
        Cookie = "cookie";
        /// The request has a header named in `bypass`.
        Header = "header";
        /// The request has a query parameter named in `bypass`.
        Query = "query";
        /// The request is a PURGE.
        Purge = "purge";
        /// The resource's Vary names a request header that is too long for a shared fetch.
        LongHeader = "long-header";
        /// The URL has the maximum number of variants, and all of them are being fetched.
        Variants = "variants";
        /// The request waited for several fetches in turn, whose responses could not be used for it.
        Parted = "parted";
        /// The request has `only-if-cached`, and nothing usable is stored (RFC 9111 5.2.1.7).
        OnlyIfCached = "only-if-cached", 504;
    }
    Stale {
        /// A stale response is served while it is revalidated (RFC 5861 3).
        StaleWhileRevalidate = "stale-while-revalidate";
        /// A stale response is served because the origin fails (RFC 5861 4).
        StaleIfError = "stale-if-error";
        /// A stale response is served while another request revalidates it.
        StaleWhileUpdating = "stale-while-updating";
        /// The request accepts a stale response (RFC 9111 5.2.1.2).
        MaxStale = "max-stale";
    }
    NotStored {
        /// The response is an interim one (RFC 9110 15.2).
        InterimResponse = "interim";
        /// The response is partial although the request has no Range (RFC 9111 3.3).
        PartialContent = "partial";
        /// The status can't be stored, or the response has `must-understand` and an unknown status (RFC 9111 3).
        StatusNotStorable = "status";
        /// The request or the response has `no-store` (RFC 9111 5.2.1.5, 5.2.2.5).
        NoStore = "no-store";
        /// The response has `private`, and not only for some of its headers (RFC 9111 5.2.2.7).
        Private = "private";
        /// The request has Authorization, and the response does not allow sharing (RFC 9111 3.5).
        Authorization = "authorization";
        /// The response may be about the client whose request caused the fetch, such as an error for a header of this client. The next fetch leaves these headers out; its response counts for all clients.
        Unconfirmed = "unconfirmed";
        /// The response sets a cookie, which is meant for one client (RFC 9111 7.3).
        SetCookie = "set-cookie";
        /// The response has `Vary: *` (RFC 9111 4.1).
        VaryAny = "vary-any";
        /// Vary names more headers than variants may depend on, or something that is no header name.
        VaryBad = "vary-bad";
        /// Neither the response nor the configuration gives a freshness lifetime.
        NoLifetime = "no-lifetime";
        /// The response has `no-cache` and no validator (RFC 9111 5.2.2.4).
        NoCache = "no-cache";
        /// The response is stale on arrival, has no validator, and may not be served stale.
        Expired = "expired";
        /// The body ends when the connection closes, so a body that was cut would look complete.
        UntilClose = "until-close";
        /// The response is larger than `max_object_size`, and can't be fetched by ranges.
        TooLarge = "too-large";
        /// The requested range is not satisfiable.
        NotSatisfiable = "not-satisfiable";
    }
    Forwarded {
        /// The client's budget is used up: too many bytes were fetched for it and not received by it yet.
        Budget = "budget";
        /// The object has its maximum number of fetches in progress.
        Crowded = "crowded";
        /// The request waited for another request's fetch for `lock_timeout`.
        LockTimeout = "lock";
        /// With `fill = "lock"`: the fetch received no byte for `lock_age`.
        LockAge = "lock-age";
        /// Other fetches can't add bytes to the object, and it lacks bytes that the request wants.
        Unjoinable = "unjoinable";
        /// The object changed more than once recently.
        Changing = "changing";
        /// The object's validators alternate, as when servers of one origin have different versions.
        Flapping = "flapping";
    }
    Fenced {
        /// The origin refuses requests with Range.
        NoRanges = "no-ranges";
        /// The origin sent another range than the requested one.
        AnotherRange = "another-range";
        /// The 206 has no usable Content-Range.
        UnusablePart = "unusable-part";
        /// The representation is empty, or has no satisfiable range.
        EmptyRepresentation = "empty";
        /// The response has the entity tag of the stored one, but another complete length.
        AnotherLength = "another-length";
        /// The origin has another version than the stored one.
        Changed = "changed";
    }
    Fetched {
        /// The fetch is the first one for a request whose response has not begun.
        FirstFetch = "miss";
        /// A further fetch for the same request, before its response has begun.
        Gap = "gap";
        /// The bytes follow those being sent to the client, and are fetched early.
        Ahead = "ahead";
        /// An earlier fetch ended before it had added all its bytes.
        Resume = "resume";
        /// No fetch in progress adds the next byte, and none may be started.
        OutOfReach = "out-of-reach";
    }
}

impl Reason {
    /// The reason with this text, as other programs of Sluice print it.
    pub fn named(text: &str) -> Option<Reason> {
        Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.text() == text)
    }

    /// Whether later requests for the key pass, for the time `hit_for_pass`, after a response was not stored for this reason. Excepted are
    /// two reasons that may not hold for the next request: a full store may have room soon, and a range beyond the end of one version may
    /// lie inside the next version.
    pub const fn remembered(self) -> bool {
        !matches!(self, Reason::NoRoom | Reason::NotSatisfiable)
    }

    /// Whether a partial response that is not stored for this reason may still complete a stored object of the same version. Holds for
    /// responses that any client may have and that were refused only for their short freshness.
    pub const fn same_version_usable(self) -> bool {
        matches!(self, Reason::Expired | Reason::NoCache | Reason::NoLifetime)
    }

    /// Whether a fetch failed before any of its request was sent, so that the failure can't be about the client.
    pub const fn is_before_request(self) -> bool {
        self.retryable() && !matches!(self, Reason::StaleConnection | Reason::StreamRefused)
    }

    /// Whether this machine alone is the reason that a connection to a server could not be opened.
    pub const fn is_local_connect(self) -> bool {
        matches!(self, Reason::NoLocalPort | Reason::NoSocket)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}
