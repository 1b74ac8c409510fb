//! The client's side of an HTTP/2 connection (RFC 9113) without I/O: turns requests into bytes, and received bytes into
//! ended requests.
//!
//! Content is counted and not kept, so the windows are as large as the protocol permits. All that is kept of received
//! bytes is one incomplete frame and one incomplete field section, whose lengths are bounded.

use std::collections::HashMap;

use super::super::response::{Expected, Failure};
use super::super::targets::Chosen;
use super::encoder::{Encoder, Fields};
use super::frames::{self, FRAME_HEAD, FrameHead};
use super::hpack::{Decoder, Head};
use crate::offset;
use crate::raw_http2::{PREFACE, code, flag, kind};

/// Largest payload of a frame that a server may send (RFC 9113 4.2).
const PAYLOAD_MAX: usize = 16 << 10;
/// Maximum length of an encoded field section in bytes.
const SECTION_MAX: usize = 64 << 10;
/// Window of each stream and of the connection, in bytes, and the part of it after whose use it is renewed.
const WINDOW: u32 = 1 << 30;
const RENEWED: u32 = WINDOW / 2;
/// Window of a new connection (RFC 9113 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Number of streams that a client may use before the server has sent its limit, as other clients assume.
const FIRST_STREAMS: usize = 100;
/// Highest number of a stream.
const LAST_STREAM: u32 = (1 << 31) - 1;
/// Maximum number of answers to SETTINGS and PING that wait for the socket.
const ANSWERS_MAX: u32 = 10_000;

/// Identifiers of settings (RFC 9113 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A good response with this length of its body, and the length of the whole resource.
    Good { length: u64, whole: Option<u64> },
    /// The request failed.
    Failed(Failure),
    /// The server has not processed the request, which may be sent again.
    Refused,
}

/// A request that is in progress.
#[derive(Debug, Clone, Copy)]
struct Stream {
    place: usize,
    chosen: Chosen,
    /// The final head, once it has arrived.
    head: Option<Head>,
    /// Number of bytes of content, and number of bytes of the window that were used since it was renewed.
    length: u64,
    used: u32,
    /// The first failure. The rest of the response is received nevertheless.
    failure: Option<Failure>,
}

/// A field section of which not all frames have arrived.
#[derive(Debug)]
struct Section {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    encoder: Encoder,
    decoder: Decoder,
    streams: HashMap<u32, Stream>,
    next_stream: u32,
    /// Maximum number of concurrent streams, and whether the server has sent its settings.
    streams_max: usize,
    has_settings: bool,
    /// Whether no more streams may be opened.
    is_draining: bool,
    /// Bytes of an incomplete frame.
    partial: Vec<u8>,
    section: Option<Section>,
    /// Number of bytes of the connection's window that were used since it was renewed.
    used: u32,
    answers: u32,
    /// Bytes that have not been sent.
    pub(super) out: Vec<u8>,
}

impl Endpoint {
    /// Begins a connection, with the preface to send.
    pub(super) fn new(fields: &Fields) -> Endpoint {
        let mut out = PREFACE.to_vec();
        frames::settings(&mut out, &[(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW)]);
        frames::number(&mut out, kind::WINDOW_UPDATE, 0, WINDOW - FIRST_WINDOW);
        Endpoint {
            encoder: Encoder::new(fields),
            decoder: Decoder::new(),
            streams: HashMap::new(),
            next_stream: 1,
            streams_max: FIRST_STREAMS,
            has_settings: false,
            is_draining: false,
            partial: Vec::new(),
            section: None,
            used: 0,
            answers: 0,
            out,
        }
    }

    /// Whether another stream may be opened now.
    pub(super) fn can_open(&self) -> bool {
        !self.is_draining && self.streams.len() < self.streams_max
    }

    /// Whether no stream is open and none may be opened any more.
    pub(super) fn is_done(&self) -> bool {
        self.is_draining && self.streams.is_empty()
    }

    /// Whether no more streams may be opened.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Opens no more streams.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Opens a stream for a request. Returns its number.
    pub(super) fn request(
        &mut self,
        fields: &Fields,
        place: usize,
        chosen: Chosen,
        target: &[u8],
    ) -> u32 {
        let number = self.next_stream;
        self.next_stream += 2;
        self.is_draining |= self.next_stream > LAST_STREAM;
        let begin = self.out.len();
        let flags = flag::END_HEADERS | flag::END_STREAM;
        frames::head(&mut self.out, 0, kind::HEADERS, flags, number);
        let (encoder, out) = (&mut self.encoder, &mut self.out);
        encoder.request(fields, target, chosen.range, out);
        frames::set_length(&mut self.out[begin..]);
        let stream = Stream {
            place,
            chosen,
            head: None,
            length: 0,
            used: 0,
            failure: None,
        };
        self.streams.insert(number, stream);
        number
    }

    /// Gives a request up.
    pub(super) fn cancel(&mut self, number: u32) {
        if self.streams.remove(&number).is_some() {
            frames::number(&mut self.out, kind::RST_STREAM, number, code::CANCEL);
        }
    }

    /// Records that all bytes were sent.
    pub(super) fn sent(&mut self) {
        self.answers = 0;
    }

    /// Processes received bytes, and adds the places of ended requests to `ended`.
    ///
    /// Errors: the server has violated the protocol. The connection can't be used any more.
    pub(super) fn receive(
        &mut self,
        received: &[u8],
        fields: &Fields,
        expected: &Expected,
        ended: &mut Vec<(usize, End)>,
    ) -> Result<(), Failure> {
        let mut bytes = self.complete(received, fields, expected, ended)?;
        while let Some((head, rest)) = frames::parse(bytes) {
            if head.length > PAYLOAD_MAX {
                return Err(Failure::Malformed);
            }
            let Some((payload, rest)) = rest.split_at_checked(head.length) else {
                break;
            };
            bytes = rest;
            self.frame(head, payload, fields, expected, ended)
                .ok_or(Failure::Malformed)?;
        }
        debug_assert!(bytes.len() < FRAME_HEAD + PAYLOAD_MAX);
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Completes an incomplete frame with received bytes, and processes it. Returns the bytes after it, which are none if
    /// the frame is still incomplete. Only this frame is copied.
    fn complete<'a>(
        &mut self,
        mut received: &'a [u8],
        fields: &Fields,
        expected: &Expected,
        ended: &mut Vec<(usize, End)>,
    ) -> Result<&'a [u8], Failure> {
        let mut partial = std::mem::take(&mut self.partial);
        let mut take = |partial: &mut Vec<u8>, wanted: usize| {
            let missing = wanted.saturating_sub(partial.len()).min(received.len());
            let part = received.split_off(..missing).unwrap_or_default();
            partial.extend_from_slice(part);
        };
        if !partial.is_empty() {
            take(&mut partial, FRAME_HEAD);
        }
        if let Some((head, _)) = frames::parse(&partial) {
            if head.length > PAYLOAD_MAX {
                return Err(Failure::Malformed);
            }
            take(&mut partial, FRAME_HEAD + head.length);
            if let Some(payload) = partial[FRAME_HEAD..].get(..head.length) {
                self.frame(head, payload, fields, expected, ended)
                    .ok_or(Failure::Malformed)?;
                partial.clear();
            }
        }
        // The memory is used again.
        self.partial = partial;
        Ok(received)
    }

    /// Processes a frame. Returns `None` if the server has violated the protocol.
    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        fields: &Fields,
        expected: &Expected,
        ended: &mut Vec<(usize, End)>,
    ) -> Option<()> {
        let is_continued = self.section.is_some();
        if is_continued != (head.kind == kind::CONTINUATION) {
            return None;
        }
        let ends_stream = head.flags & flag::END_STREAM != 0;
        match head.kind {
            kind::DATA => {
                let content = frames::unpadded(head, payload)?;
                self.data(head, content, expected);
                if ends_stream {
                    self.end(head.stream, expected, ended);
                }
            }
            kind::HEADERS => {
                self.section = Some(Section {
                    stream: head.stream,
                    ends_stream,
                    bytes: Vec::new(),
                });
                let part = frames::without_priority(head, frames::unpadded(head, payload)?)?;
                self.section_part(head, part, expected, ended)?;
            }
            kind::CONTINUATION => self.section_part(head, payload, expected, ended)?,
            kind::RST_STREAM => {
                let reason = frames::u32_at(payload, 0)?;
                self.reset(head.stream, reason, ended);
            }
            kind::SETTINGS if head.flags & flag::ACK == 0 => {
                self.settings(payload, fields)?;
                frames::head(&mut self.out, 0, kind::SETTINGS, flag::ACK, 0);
                self.answered()?;
            }
            kind::PING if head.flags & flag::ACK == 0 => {
                let opaque = payload.get(..8)?;
                frames::head(&mut self.out, 8, kind::PING, flag::ACK, 0);
                self.out.extend_from_slice(opaque);
                self.answered()?;
            }
            kind::GOAWAY => {
                let last = frames::u32_at(payload, 0)? & LAST_STREAM;
                self.go_away(last, ended);
            }
            frames::PUSH_PROMISE => return None,
            // The endpoint sends no content, so the server's windows do not matter.
            _ => {}
        }
        Some(())
    }

    fn answered(&mut self) -> Option<()> {
        self.answers += 1;
        (self.answers <= ANSWERS_MAX).then_some(())
    }

    /// Counts the content of a frame. Content of streams that were given up still uses the connection's window.
    fn data(&mut self, head: FrameHead, content: &[u8], expected: &Expected) {
        // The length is at most PAYLOAD_MAX.
        let used = head.length as u32;
        self.used += used;
        if self.used >= RENEWED {
            frames::number(&mut self.out, kind::WINDOW_UPDATE, 0, self.used);
            self.used = 0;
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            return;
        };
        stream.used += used;
        if stream.used >= RENEWED {
            frames::number(&mut self.out, kind::WINDOW_UPDATE, head.stream, stream.used);
            stream.used = 0;
        }
        if stream.head.is_none() {
            stream.fail(Failure::Malformed);
        }
        if expected.verify && stream.failure.is_none() {
            let first = stream.chosen.range.map_or(0, |(first, _)| first);
            if offset::verify_offset(first.saturating_add(stream.length), content).is_err() {
                stream.fail(Failure::Content);
            }
        }
        stream.length += content.len() as u64;
    }

    fn section_part(
        &mut self,
        head: FrameHead,
        part: &[u8],
        expected: &Expected,
        ended: &mut Vec<(usize, End)>,
    ) -> Option<()> {
        let section = self.section.as_mut()?;
        if section.stream != head.stream || section.bytes.len() + part.len() > SECTION_MAX {
            return None;
        }
        let is_last = head.flags & flag::END_HEADERS != 0;
        let decoded = match (is_last, section.bytes.is_empty()) {
            (true, true) => self.decoder.decode(part)?,
            (true, false) => {
                section.bytes.extend_from_slice(part);
                self.decoder.decode(&section.bytes)?
            }
            (false, _) => {
                section.bytes.extend_from_slice(part);
                return Some(());
            }
        };
        let ends_stream = section.ends_stream;
        self.section = None;
        if let Some(stream) = self.streams.get_mut(&head.stream) {
            stream.section(decoded, expected);
        }
        if ends_stream {
            self.end(head.stream, expected, ended);
        }
        Some(())
    }

    /// Processes the end of a response.
    fn end(&mut self, number: u32, expected: &Expected, ended: &mut Vec<(usize, End)>) {
        let Some(stream) = self.streams.remove(&number) else {
            return;
        };
        let length = stream.length;
        let end = match (stream.failure, stream.head) {
            (Some(failure), _) => End::Failed(failure),
            (None, None) => End::Failed(Failure::Malformed),
            (None, Some(head)) => {
                // A 304 has the length that a 200 would have, and no content (RFC 9110 8.6).
                let is_right = match head.status {
                    Some(304) => length == 0,
                    _ => head.length.is_none_or(|sent| sent == length),
                };
                let checked = expected.check_length(stream.chosen, head.range, length);
                match checked {
                    Err(failure) => End::Failed(failure),
                    Ok(()) if !is_right => End::Failed(Failure::Length),
                    Ok(()) => End::Good {
                        length,
                        whole: head.range.whole(),
                    },
                }
            }
        };
        ended.push((stream.place, end));
    }

    fn reset(&mut self, number: u32, reason: u32, ended: &mut Vec<(usize, End)>) {
        if let Some(stream) = self.streams.remove(&number) {
            let end = match (reason, stream.failure) {
                (code::REFUSED_STREAM, _) => End::Refused,
                (_, Some(failure)) => End::Failed(failure),
                (_, None) => End::Failed(Failure::Closed),
            };
            ended.push((stream.place, end));
        }
    }

    fn go_away(&mut self, last: u32, ended: &mut Vec<(usize, End)>) {
        self.is_draining = true;
        self.streams.retain(|number, stream| {
            let is_processed = *number <= last;
            if !is_processed {
                ended.push((stream.place, End::Refused));
            }
            is_processed
        });
    }

    fn settings(&mut self, payload: &[u8], fields: &Fields) -> Option<()> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return None;
        }
        // A server that sends no limit has none.
        if !self.has_settings {
            self.has_settings = true;
            self.streams_max = usize::MAX;
        }
        for setting in settings {
            let value = frames::u32_at(setting, 2)?;
            let value = usize::try_from(value).unwrap_or(usize::MAX);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                HEADER_TABLE_SIZE => self.encoder.limit_table(value, fields),
                MAX_CONCURRENT_STREAMS => self.streams_max = value,
                _ => {}
            }
        }
        Some(())
    }
}

impl Stream {
    fn fail(&mut self, failure: Failure) {
        self.failure = self.failure.or(Some(failure));
    }

    /// Processes a field section: an interim head, the final head, or trailers.
    fn section(&mut self, head: Head, expected: &Expected) {
        match (self.head, head.status) {
            (None, Some(100..200)) => {}
            (None, Some(status)) => {
                self.head = Some(head);
                if let Err(failure) = expected.check_head(self.chosen, status, head.range) {
                    self.fail(failure);
                }
            }
            (Some(_), None) => {}
            _ => self.fail(Failure::Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
