//! Handles one request on a connection of the test origin and sends its response, with faults if there are any.

use std::time::Instant;

use bytes::Bytes;

use super::answer::{Answer, answer, render_head};
use super::broken::{bad_last_chunk, bad_size_line, break_head};
use super::fault::{BadChunk, BrokenHead, Ending, Fault};
use super::record::{BODY_KEPT, Outcome, Recorder, Seen};
use super::resource::{Framing, Resource};
use super::wire::{Head, Pace, Stop, Wire};
use crate::offset;
use crate::pauses;

/// Maximum number of bytes per write.
const PIECE: u64 = 64 << 10;

/// Number of headers in an "endless" head: 32 MiB in total. The number is finite so that a client that reads all of
/// them does not hang.
const ENDLESS_FIELDS: usize = 1 << 20;

/// A request of the test origin with everything needed to respond to it.
pub(super) struct Exchange<'a> {
    pub(super) wire: &'a mut Wire,
    pub(super) recorder: &'a Recorder,
    pub(super) seen: &'a Seen,
    pub(super) resource: Resource,
    pub(super) faults: Vec<Fault>,
    /// Whether the connection is closed after this response.
    pub(super) close: bool,
}

/// The framing of the request body.
enum Upload {
    Length(u64),
    Chunked { left: u64 },
    Done,
}

pub(super) fn seen(head: Head, connection: u64, nth_on_connection: u64) -> Seen {
    Seen {
        id: 0,
        connection,
        nth_on_connection,
        at: Instant::now(),
        raw_head: head.raw,
        method: head.method,
        target: head.target,
        minor_version: head.minor_version,
        stream: None,
        headers: head.headers,
        trailers: Vec::new(),
        body: Vec::new(),
        body_length: 0,
        body_complete: false,
        body_is_offset: true,
        status: 0,
        range: None,
        sent: 0,
        outcome: Outcome::Pending,
        ended: None,
    }
}

impl Exchange<'_> {
    /// Reads the rest of the request and sends the response. Returns whether the connection stays open.
    pub(super) async fn run(mut self) -> Result<bool, Stop> {
        pauses::point();
        let mut upload = self.upload();
        self.fault_before_head().await?;
        if let Some(protocol) = self.requested_upgrade() {
            return self.tunnel(&protocol).await;
        }
        if !self.resource.early {
            self.expect_continue(&upload).await?;
        }
        if self.resource.echo {
            self.echo(&mut upload).await?;
        } else {
            if !self.resource.early {
                while self.read_piece(&mut upload).await?.is_some() {}
            }
            self.answer().await?;
        }
        Ok(!self.close)
    }

    async fn fault_before_head(&self) -> Result<(), Stop> {
        for fault in &self.faults {
            match fault {
                Fault::NeverAnswer => {
                    self.wire.until_gone().await;
                    return Err(Stop::Aborted);
                }
                Fault::EndBeforeHead(ending) | Fault::EndBeforeHeadOnReuse(ending) => {
                    return Err(Stop::Faulted(*ending));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn expect_continue(&mut self, upload: &Upload) -> Result<(), Stop> {
        let expected = self
            .seen
            .header("expect")
            .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expected && !matches!(upload, Upload::Done) {
            self.wire.write(&render_head(100, &[])).await?;
        }
        Ok(())
    }

    fn upload(&self) -> Upload {
        let chunked = self
            .seen
            .header_all("transfer-encoding")
            .iter()
            .any(|value| value.to_ascii_lowercase().contains("chunked"));
        let length = self
            .seen
            .header("content-length")
            .and_then(|value| value.trim().parse().ok());
        match length {
            _ if chunked => Upload::Chunked { left: 0 },
            Some(length) if length > 0 => Upload::Length(length),
            _ => {
                self.recorder
                    .request(self.seen.id, |seen| seen.body_complete = true);
                Upload::Done
            }
        }
    }

    /// Reads the next bytes of the request body, and records them.
    async fn read_piece(&mut self, upload: &mut Upload) -> Result<Option<Bytes>, Stop> {
        let piece = self.read_some(upload).await?;
        let complete = piece.is_none();
        self.recorder.request(self.seen.id, |seen| {
            seen.body_complete = complete;
            let Some(piece) = &piece else { return };
            let room = BODY_KEPT.saturating_sub(seen.body.len()).min(piece.len());
            seen.body.extend_from_slice(&piece[..room]);
            seen.body_is_offset &= offset::verify_offset(seen.body_length, piece).is_ok();
            seen.body_length += piece.len() as u64;
        });
        Ok(piece)
    }

    async fn read_some(&mut self, upload: &mut Upload) -> Result<Option<Bytes>, Stop> {
        if let Upload::Chunked { left: left @ 0 } = upload {
            *left = self.read_chunk_size().await?;
            if *left == 0 {
                *upload = Upload::Done;
            }
        }
        let left = match upload {
            Upload::Done => return Ok(None),
            Upload::Length(left) | Upload::Chunked { left } => left,
        };
        let room = self.bytes_allowed_by_latch(*left).await?;
        let piece = self.wire.read_some(room).await?;
        if piece.is_empty() {
            return Err(Stop::Aborted);
        }
        *left -= piece.len() as u64;
        match (*left, &upload) {
            (0, Upload::Length(_)) => *upload = Upload::Done,
            (0, Upload::Chunked { .. }) => drop(self.wire.read_line().await?),
            _ => {}
        }
        Ok(Some(piece))
    }

    async fn bytes_allowed_by_latch(&mut self, wanted: u64) -> Result<u64, Stop> {
        let Some(latch) = &self.resource.upload_latch else {
            return Ok(wanted);
        };
        let got = self.recorder.read(|record| {
            let own = record.requests.iter().find(|seen| seen.id == self.seen.id);
            own.map_or(0, |seen| seen.body_length)
        });
        // While the latch holds the request body, its bytes stay unread in the socket, and a close by the client can't
        // be detected.
        Ok(latch.pass(got).await.min(wanted))
    }

    async fn read_chunk_size(&mut self) -> Result<u64, Stop> {
        let line = self.wire.read_line().await?;
        let text = String::from_utf8_lossy(&line);
        let size = text.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| Stop::Malformed)?;
        if size == 0 {
            while !self.wire.read_line().await?.is_empty() {}
        }
        Ok(size)
    }

    /// Sends the bytes of the request body back as they arrive.
    async fn echo(&mut self, upload: &mut Upload) -> Result<(), Stop> {
        let mut headers = self.resource.headers.clone();
        let length = match upload {
            Upload::Length(length) => Some(*length),
            Upload::Done => Some(0),
            Upload::Chunked { .. } => None,
        };
        headers.push(match length {
            Some(length) => ("Content-Length".to_owned(), length.to_string()),
            None => ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
        });
        self.status(200);
        self.wire.write(&render_head(200, &headers)).await?;
        while let Some(piece) = self.read_piece(upload).await? {
            if length.is_some() {
                self.wire.write(&piece).await?;
            } else {
                self.wire.write(&chunk(&piece)).await?;
            }
            self.sent(piece.len() as u64);
        }
        if length.is_none() {
            self.wire.write(b"0\r\n\r\n").await?;
        }
        Ok(())
    }

    fn requested_upgrade(&self) -> Option<String> {
        let offered = self.resource.upgrade.clone()?;
        let requested = self.seen.header("upgrade")?;
        requested.eq_ignore_ascii_case(&offered).then_some(offered)
    }

    /// Responds with 101, then sends every received byte back until the client closes the connection.
    async fn tunnel(&mut self, protocol: &str) -> Result<bool, Stop> {
        let headers = [
            ("Connection".to_owned(), "Upgrade".to_owned()),
            ("Upgrade".to_owned(), protocol.to_owned()),
        ];
        self.status(101);
        self.wire.write(&render_head(101, &headers)).await?;
        loop {
            let piece = self.wire.read_some(u64::MAX).await?;
            if piece.is_empty() {
                return Ok(false);
            }
            self.wire.write(&piece).await?;
            self.sent(piece.len() as u64);
        }
    }

    async fn answer(&mut self) -> Result<(), Stop> {
        if !self.resource.delay_head.is_zero() {
            let delay = tokio::time::sleep(self.resource.delay_head);
            self.wire.hold(delay).await?;
        }
        for (status, headers) in &self.resource.interim {
            self.wire.write(&render_head(*status, headers)).await?;
        }
        if let Some(latch) = &self.resource.head_latch {
            self.wire.hold(latch.pass(0)).await?;
        }
        let answer = answer(&self.resource, self.seen, &self.faults, self.close);
        self.recorder.request(self.seen.id, |seen| {
            seen.status = answer.status;
            seen.range = answer.range;
        });
        self.send_head(&answer).await?;
        if self.seen.method == "HEAD" || matches!(answer.status, 204 | 304) {
            return Ok(());
        }
        if !self.resource.delay_body.is_zero() {
            let delay = tokio::time::sleep(self.resource.delay_body);
            self.wire.hold(delay).await?;
        }
        self.send_body(&answer).await?;
        self.send_end(&answer).await
    }

    async fn send_head(&mut self, answer: &Answer) -> Result<(), Stop> {
        let mut head = answer.render();
        let mut stall = None;
        for fault in &self.faults {
            match fault {
                Fault::RawHead(raw) => head.clone_from(raw),
                Fault::Head(how) => head = break_head(head, *how),
                Fault::StallHead { after } => stall = Some(*after),
                _ => {}
            }
        }
        if let Some(after) = stall {
            self.wire.write(&head[..after.min(head.len())]).await?;
            self.wire.until_gone().await;
            return Err(Stop::Aborted);
        }
        self.wire.write(&head).await?;
        for fault in &self.faults {
            if let Fault::DripBody { bytes, every } = fault {
                self.wire.drip = Some((*bytes, *every));
            }
        }
        if self.faults.contains(&Fault::Head(BrokenHead::Endless)) {
            for _ in 0..ENDLESS_FIELDS {
                self.wire
                    .write(b"X-Broken: and so on, and so on\r\n")
                    .await?;
            }
        }
        Ok(())
    }

    async fn send_body(&mut self, answer: &Answer) -> Result<(), Stop> {
        pauses::point();
        let length = answer.length();
        let halt = self.halt();
        let mut pace = Pace::new(self.resource.rate);
        let mut buffer = vec![0; PIECE.min(length) as usize];
        let mut sent = 0;
        while sent < length {
            let mut room = PIECE.min(length - sent);
            if let Framing::Chunked(size) = answer.framing {
                room = room.min(size.max(1) as u64);
            }
            if let Some((after, halt)) = halt {
                if sent >= after {
                    return self.end_early(halt).await;
                }
                room = room.min(after - sent);
            }
            if let Some(latch) = &self.resource.body_latch {
                room = room.min(self.wire.hold(latch.pass(sent)).await?);
            }
            room = pace.grant(self.wire, room).await?;
            let piece = &mut buffer[..room as usize];
            answer.read(sent, piece);
            self.send_piece(answer.framing, piece).await?;
            sent += room;
            if let Some(latch) = &self.resource.body_latch {
                latch.passed(sent);
            }
        }
        match halt {
            Some((after, halt)) if after <= sent => self.end_early(halt).await,
            _ => Ok(()),
        }
    }

    /// Returns the number of body bytes after which a fault stops the response, and the way in which the connection is
    /// then closed, or `None` if the connection stays open and silent.
    fn halt(&self) -> Option<(u64, Option<Ending>)> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::CutBody { after, ending } => Some((*after, Some(*ending))),
            Fault::StallBody { after } => Some((*after, None)),
            _ => None,
        })
    }

    async fn end_early(&mut self, ending: Option<Ending>) -> Result<(), Stop> {
        match ending {
            Some(ending) => Err(Stop::Faulted(ending)),
            None => {
                self.wire.until_gone().await;
                Err(Stop::Aborted)
            }
        }
    }

    async fn send_piece(&mut self, framing: Framing, piece: &[u8]) -> Result<(), Stop> {
        if let Framing::Chunked(_) = framing {
            self.wire.write(&chunk(piece)).await?;
            self.sent(piece.len() as u64);
            if let Some(line) = self.bad_chunk().and_then(bad_size_line) {
                self.wire.write(&line).await?;
                self.faults
                    .retain(|fault| !matches!(fault, Fault::Chunk(_)));
            }
            return Ok(());
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let count = self.wire.write_some(rest).await?;
            self.sent(count as u64);
            rest = &rest[count..];
        }
        Ok(())
    }

    async fn send_end(&mut self, answer: &Answer) -> Result<(), Stop> {
        if let Framing::Chunked(_) = answer.framing {
            let last = self.bad_chunk().and_then(bad_last_chunk);
            let missing = last.as_ref().is_some_and(Vec::is_empty);
            let last = last.unwrap_or_else(|| last_chunk(&self.resource.trailers));
            self.wire.write(&last).await?;
            if missing {
                return Err(Stop::Faulted(Ending::Fin));
            }
        }
        let faults = std::mem::take(&mut self.faults);
        for fault in &faults {
            match fault {
                Fault::ExtraBytes(bytes) => self.wire.write(bytes).await?,
                Fault::LengthTooLong(_) => return Err(Stop::Faulted(Ending::Fin)),
                _ => {}
            }
        }
        Ok(())
    }

    fn bad_chunk(&self) -> Option<BadChunk> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Chunk(how) => Some(*how),
            _ => None,
        })
    }

    fn status(&self, status: u16) {
        self.recorder
            .request(self.seen.id, |seen| seen.status = status);
    }

    fn sent(&self, bytes: u64) {
        self.recorder.sent(self.seen.id, self.seen.path(), bytes);
    }
}

fn chunk(data: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn last_chunk(trailers: &[(String, String)]) -> Vec<u8> {
    let mut last = "0\r\n".to_owned();
    for (name, value) in trailers {
        last.push_str(&format!("{name}: {value}\r\n"));
    }
    last.push_str("\r\n");
    last.into_bytes()
}
