//! What a test origin answers for a path, built knob by knob.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fault::{Armed, Fault};
use super::gate::Gate;
use super::record::Seen;
use crate::{noise, offset};

/// The bytes of a representation.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// The offset body of the resource's version.
    Offset(u64),
    /// The noise of a file and the resource's version.
    Noise { file: u64, length: u64 },
    /// These bytes, whatever the version.
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

/// How a response shows where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// Chunks of at most so many bytes.
    Chunked(usize),
    /// The end of the connection.
    Close,
}

/// The entity tag of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tag {
    /// A strong one made of version, length and coding.
    Strong,
    /// The same, but weak.
    Weak,
    /// No entity tag.
    None,
    /// This field value, as it is.
    Fixed(String),
}

/// Last-Modified of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modified {
    /// A day in January 2026 that the version chooses.
    Version,
    /// No date.
    None,
    /// This field value, as it is.
    Fixed(String),
}

type Dynamic = Arc<dyn Fn(&Seen) -> Resource + Send + Sync>;

/// What is answered for a path. Unless told otherwise: 200, Content-Length, ranges honoured, a strong entity tag,
/// Last-Modified, and no Cache-Control.
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
    pub(super) gate_head: Option<Gate>,
    pub(super) gate_body: Option<Gate>,
    pub(super) gate_upload: Option<Gate>,
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
    /// An offset body of `length` bytes.
    pub fn offset(length: u64) -> Resource {
        Resource::new(Content::Offset(length))
    }

    /// A body of `length` bytes of [`noise`] that file number, version and place determine.
    pub fn noise(file: u64, length: u64) -> Resource {
        Resource::new(Content::Noise { file, length })
    }

    /// These bytes as the body.
    pub fn bytes(body: impl Into<Bytes>) -> Resource {
        Resource::new(Content::Fixed(body.into()))
    }

    /// An answer with this status and a short text that names it; no validators, no ranges.
    pub fn status(status: u16) -> Resource {
        Resource::bytes(format!("status {status}\n"))
            .with_status(status)
            .tag(Tag::None)
            .modified(Modified::None)
            .ranges(false)
            .conditional(false)
    }

    /// Sends the request's body back as it comes, in the framing it came in.
    pub fn echo() -> Resource {
        let mut resource = Resource::status(200);
        resource.echo = true;
        resource
    }

    /// Answers `101 Switching Protocols` to requests that ask for `protocol`, then sends back every byte that comes.
    pub fn upgrade(protocol: &str) -> Resource {
        let mut resource = Resource::status(426);
        resource.upgrade = Some(protocol.to_owned());
        resource
    }

    /// Chooses the resource anew for every request, when its head is complete.
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
            gate_head: None,
            gate_body: None,
            gate_upload: None,
            close: false,
            echo: false,
            early: false,
            upgrade: None,
            faults: Vec::new(),
            dynamic: None,
        }
    }

    /// Another status. Ranges and conditions count only for 200.
    pub fn with_status(mut self, status: u16) -> Resource {
        self.status = status;
        self
    }

    /// A field more, in the order of the calls.
    pub fn header(mut self, name: &str, value: &str) -> Resource {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Cache-Control.
    pub fn cache_control(self, value: &str) -> Resource {
        self.header("Cache-Control", value)
    }

    /// Vary.
    pub fn vary(self, value: &str) -> Resource {
        self.header("Vary", value)
    }

    /// The entity tag.
    pub fn tag(mut self, tag: Tag) -> Resource {
        self.tag = tag;
        self
    }

    /// Last-Modified.
    pub fn modified(mut self, modified: Modified) -> Resource {
        self.modified = modified;
        self
    }

    /// The version: it chooses the bytes of an offset body, the entity tag and the date.
    pub fn version(mut self, version: u32) -> Resource {
        self.version = version;
        self
    }

    /// Whether ranges are honoured; if not, every request gets the whole, without Accept-Ranges.
    pub fn ranges(mut self, honoured: bool) -> Resource {
        self.ranges = honoured;
        self
    }

    /// Whether several ranges in one request are honoured; if not, they get the whole.
    pub fn multiple_ranges(mut self, honoured: bool) -> Resource {
        self.multiple_ranges = honoured;
        self
    }

    /// Whether If-None-Match, If-Modified-Since, If-Match and If-Range are looked at.
    pub fn conditional(mut self, honoured: bool) -> Resource {
        self.conditional = honoured;
        self
    }

    /// How the end of the body is shown.
    pub fn framing(mut self, framing: Framing) -> Resource {
        self.framing = framing;
        self
    }

    /// A trailer field after a chunked body.
    pub fn trailer(mut self, name: &str, value: &str) -> Resource {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another body for requests that accept `coding`; adds `Vary: Accept-Encoding` and Content-Encoding.
    pub fn encoded(mut self, coding: &str, body: impl Into<Bytes>) -> Resource {
        self.encodings
            .push((coding.to_owned(), Content::Fixed(body.into())));
        self
    }

    /// A 1xx response before the final one.
    pub fn interim(mut self, status: u16, headers: &[(&str, &str)]) -> Resource {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.interim.push((status, headers));
        self
    }

    /// Bytes per second of body on each connection.
    pub fn rate(mut self, bytes_per_second: u64) -> Resource {
        self.rate = Some(bytes_per_second.max(1));
        self
    }

    /// Time before the head is sent.
    pub fn delay_head(mut self, delay: Duration) -> Resource {
        self.delay_head = delay;
        self
    }

    /// Time between head and body.
    pub fn delay_body(mut self, delay: Duration) -> Resource {
        self.delay_body = delay;
        self
    }

    /// Holds the head (after interim responses) until the gate's limit is above 0.
    pub fn gate_head(mut self, gate: &Gate) -> Resource {
        self.gate_head = Some(gate.clone());
        self
    }

    /// Holds each response's body at the gate's limit, counted in bytes of that response.
    pub fn gate(mut self, gate: &Gate) -> Resource {
        self.gate_body = Some(gate.clone());
        self
    }

    /// Stops reading the request's body at the gate's limit.
    pub fn gate_upload(mut self, gate: &Gate) -> Resource {
        self.gate_upload = Some(gate.clone());
        self
    }

    /// Answers before it reads the request's body, then closes.
    pub fn answer_early(mut self) -> Resource {
        self.early = true;
        self.close = true;
        self
    }

    /// Sends `Connection: close` and closes after the answer.
    pub fn close(mut self) -> Resource {
        self.close = true;
        self
    }

    /// A fault that every request meets.
    pub fn fault(mut self, fault: Fault) -> Resource {
        self.faults.push(Armed::always(fault));
        self
    }

    /// A fault that only the next `times` requests meet; clones of this resource share the count.
    pub fn fault_times(mut self, times: u32, fault: Fault) -> Resource {
        self.faults.push(Armed::times(times, fault));
        self
    }
}
