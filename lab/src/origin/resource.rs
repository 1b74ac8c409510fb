//! Resources that a test origin serves, configured by builder methods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fault::{Armed, Fault};
use super::latch::Latch;
use super::record::Seen;
use crate::{noise, offset};

/// Content of a representation.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// The offset body (see [`crate::offset`]) of this length, in the resource's version.
    Offset(u64),
    /// Random bytes ([`crate::noise`]) for this file number, in the resource's version.
    Noise { file: u64, length: u64 },
    /// These bytes, in all versions of the resource.
    Fixed(Bytes),
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        match self {
            Content::Offset(length) | Content::Noise { length, .. } => *length,
            Content::Fixed(bytes) => bytes.len() as u64,
        }
    }

    pub(super) fn read(&self, version: u32, position: u64, buffer: &mut [u8]) {
        match self {
            Content::Offset(_) => offset::fill_version(version, position, buffer),
            Content::Noise { file, .. } => noise::fill(*file, version, position, buffer),
            Content::Fixed(bytes) => {
                let from = position as usize;
                buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
            }
        }
    }
}

/// Framing of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The body is framed by Content-Length.
    Length,
    /// The body is chunked, with at most this many bytes per chunk.
    Chunked(usize),
    /// The body ends where the connection is closed.
    Close,
}

/// ETag of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tag {
    /// A strong ETag made from version, length and content coding.
    Strong,
    /// A weak ETag made from version, length and content coding.
    Weak,
    /// No ETag.
    None,
    /// An ETag with this value.
    Fixed(String),
}

/// Last-Modified of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modified {
    /// A day in January 2026 that depends on the version.
    Version,
    /// No Last-Modified.
    None,
    /// A Last-Modified with this value.
    Fixed(String),
}

type Dynamic = Arc<dyn Fn(&Seen) -> Resource + Send + Sync>;

/// A resource of a test origin. Defaults: status 200, Content-Length, Range honoured, strong ETag, Last-Modified, no
/// Cache-Control.
#[derive(Clone)]
pub struct Resource {
    pub(super) content: Content,
    pub(super) encodings: Vec<(String, Content)>,
    pub(super) version: u32,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) tag: Tag,
    pub(super) modified: Modified,
    pub(super) ranges: bool,
    pub(super) multiple_ranges: bool,
    pub(super) conditional: bool,
    pub(super) framing: Framing,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) interim: Vec<(u16, Vec<(String, String)>)>,
    pub(super) rate: Option<u64>,
    pub(super) delay_head: Duration,
    pub(super) delay_body: Duration,
    pub(super) head_latch: Option<Latch>,
    pub(super) body_latch: Option<Latch>,
    pub(super) upload_latch: Option<Latch>,
    pub(super) close: bool,
    pub(super) echo: bool,
    pub(super) early: bool,
    pub(super) upgrade: Option<String>,
    pub(super) faults: Vec<Armed>,
    pub(super) dynamic: Option<Dynamic>,
}

impl fmt::Debug for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Resource")
            .field("content", &self.content)
            .field("version", &self.version)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Resource {
    /// Creates a resource whose content is an offset body (see [`crate::offset`]) of `length` bytes.
    pub fn offset(length: u64) -> Resource {
        Resource::new(Content::Offset(length))
    }

    /// Creates a resource whose content is `length` bytes of [`noise`], determined by file number, version and offset.
    pub fn noise(file: u64, length: u64) -> Resource {
        Resource::new(Content::Noise { file, length })
    }

    /// Creates a resource with these bytes as its content.
    pub fn bytes(body: impl Into<Bytes>) -> Resource {
        Resource::new(Content::Fixed(body.into()))
    }

    /// Creates a response with this status and a short text. It has no validators and ignores Range.
    pub fn status(status: u16) -> Resource {
        Resource::bytes(format!("status {status}\n"))
            .with_status(status)
            .tag(Tag::None)
            .modified(Modified::None)
            .ranges(false)
            .conditional(false)
    }

    /// Creates a resource that sends the request body back as it arrives, with the framing of the request.
    pub fn echo() -> Resource {
        let mut resource = Resource::status(200);
        resource.echo = true;
        resource
    }

    /// Creates a resource that responds with `101 Switching Protocols` to upgrade requests for `protocol`, then sends
    /// back every byte received.
    pub fn upgrade(protocol: &str) -> Resource {
        let mut resource = Resource::status(426);
        resource.upgrade = Some(protocol.to_owned());
        resource
    }

    /// Creates a resource that calls `choose` for each request, when the request head is complete, and responds with
    /// the returned resource.
    pub fn dynamic(choose: impl Fn(&Seen) -> Resource + Send + Sync + 'static) -> Resource {
        let mut resource = Resource::status(500);
        resource.dynamic = Some(Arc::new(choose));
        resource
    }

    fn new(content: Content) -> Resource {
        Resource {
            content,
            encodings: Vec::new(),
            version: 0,
            status: 200,
            headers: Vec::new(),
            tag: Tag::Strong,
            modified: Modified::Version,
            ranges: true,
            multiple_ranges: true,
            conditional: true,
            framing: Framing::Length,
            trailers: Vec::new(),
            interim: Vec::new(),
            rate: None,
            delay_head: Duration::ZERO,
            delay_body: Duration::ZERO,
            head_latch: None,
            body_latch: None,
            upload_latch: None,
            close: false,
            echo: false,
            early: false,
            upgrade: None,
            faults: Vec::new(),
            dynamic: None,
        }
    }

    /// Sets the status of the response. Ranges and preconditions apply only to 200.
    pub fn with_status(mut self, status: u16) -> Resource {
        self.status = status;
        self
    }

    /// Adds a header to responses.
    pub fn header(mut self, name: &str, value: &str) -> Resource {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a Cache-Control header.
    pub fn cache_control(self, value: &str) -> Resource {
        self.header("Cache-Control", value)
    }

    /// Adds a Vary header.
    pub fn vary(self, value: &str) -> Resource {
        self.header("Vary", value)
    }

    /// Sets the ETag.
    pub fn tag(mut self, tag: Tag) -> Resource {
        self.tag = tag;
        self
    }

    /// Sets Last-Modified.
    pub fn modified(mut self, modified: Modified) -> Resource {
        self.modified = modified;
        self
    }

    /// Sets the version, which determines the content (unless fixed bytes), the ETag and the date.
    pub fn version(mut self, version: u32) -> Resource {
        self.version = version;
        self
    }

    /// Sets whether Range is honoured. If not, every response has the whole body and no Accept-Ranges.
    pub fn ranges(mut self, honoured: bool) -> Resource {
        self.ranges = honoured;
        self
    }

    /// Sets whether requests for several ranges are honoured. If not, the response has the whole body.
    pub fn multiple_ranges(mut self, honoured: bool) -> Resource {
        self.multiple_ranges = honoured;
        self
    }

    /// Sets whether If-None-Match, If-Modified-Since, If-Match and If-Range are honoured.
    pub fn conditional(mut self, honoured: bool) -> Resource {
        self.conditional = honoured;
        self
    }

    /// Sets the framing of the body.
    pub fn framing(mut self, framing: Framing) -> Resource {
        self.framing = framing;
        self
    }

    /// Adds a trailer after a chunked body.
    pub fn trailer(mut self, name: &str, value: &str) -> Resource {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds another content for requests that accept the content coding `coding`. Responses then have `Vary:
    /// Accept-Encoding`.
    pub fn encoded(mut self, coding: &str, body: impl Into<Bytes>) -> Resource {
        self.encodings
            .push((coding.to_owned(), Content::Fixed(body.into())));
        self
    }

    /// Adds an interim (1xx) response before the final one.
    pub fn interim(mut self, status: u16, headers: &[(&str, &str)]) -> Resource {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.interim.push((status, headers));
        self
    }

    /// Limits the rate in bytes per second at which bodies are sent on each connection.
    pub fn rate(mut self, bytes_per_second: u64) -> Resource {
        self.rate = Some(bytes_per_second.max(1));
        self
    }

    /// Delays the response head by this time.
    pub fn delay_head(mut self, delay: Duration) -> Resource {
        self.delay_head = delay;
        self
    }

    /// Delays the body by this time after the head.
    pub fn delay_body(mut self, delay: Duration) -> Resource {
        self.delay_body = delay;
        self
    }

    /// Holds the final response head until the latch's limit is above 0.
    pub fn hold_head(mut self, latch: &Latch) -> Resource {
        self.head_latch = Some(latch.clone());
        self
    }

    /// Holds each body at the latch's limit, counted in bytes of the response body.
    pub fn hold_body(mut self, latch: &Latch) -> Resource {
        self.body_latch = Some(latch.clone());
        self
    }

    /// Stops reading the request body at the latch's limit.
    pub fn hold_upload(mut self, latch: &Latch) -> Resource {
        self.upload_latch = Some(latch.clone());
        self
    }

    /// Responds before reading the request body, then closes the connection.
    pub fn answer_early(mut self) -> Resource {
        self.early = true;
        self.close = true;
        self
    }

    /// Sends `Connection: close` and closes the connection after the response.
    pub fn close(mut self) -> Resource {
        self.close = true;
        self
    }

    /// Adds a fault that applies to every response.
    pub fn fault(mut self, fault: Fault) -> Resource {
        self.faults.push(Armed::always(fault));
        self
    }

    /// Adds a fault that applies to the next `times` responses. Clones of this resource share the count.
    pub fn fault_times(mut self, times: u32, fault: Fault) -> Resource {
        self.faults.push(Armed::times(times, fault));
        self
    }
}
