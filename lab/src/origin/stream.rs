//! One request of the test origin with HTTP/2: its response, with faults if there are any.

use std::future::{Future, poll_fn};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::sleep;

use super::answer::{Answer, answer};
use super::fault::Fault;
use super::http2::Order;
use super::record::{BODY_KEPT, Recorder, Seen};
use super::resource::Resource;
use super::wire::Pace;
use crate::{offset, pauses};

/// Most bytes that are sent at once.
const PIECE: u64 = 16 << 10;

/// Headers of HTTP/1.1 that a message of HTTP/2 must not have (RFC 9113 8.2.2).
const CONNECTION_HEADERS: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// Reason to stop serving a request.
pub(super) enum Stop {
    /// The client has reset the stream, or the connection has ended.
    Gone,
    /// A fault requires that the stream be reset with this code.
    Reset(Reason),
    /// A fault concerns the whole connection.
    Connection(Order),
}

impl From<h2::Error> for Stop {
    fn from(_: h2::Error) -> Stop {
        Stop::Gone
    }
}

/// The sending direction of a stream.
pub(super) struct Reply {
    respond: SendResponse<Bytes>,
    /// The content, once the head has been sent.
    content: Option<SendStream<Bytes>>,
}

impl Reply {
    pub(super) fn new(respond: SendResponse<Bytes>) -> Reply {
        Reply {
            respond,
            content: None,
        }
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    fn interim(&mut self, head: Response<()>) -> Result<(), Stop> {
        Ok(self.respond.send_informational(head)?)
    }

    fn head(&mut self, head: Response<()>, is_end: bool) -> Result<(), Stop> {
        self.content = Some(self.respond.send_response(head, is_end)?);
        Ok(())
    }

    /// Sends as many bytes as the client's windows permit, at least one. Returns these bytes' number.
    async fn send_some(&mut self, piece: &mut Bytes) -> Result<usize, Stop> {
        let content = self.content.as_mut().ok_or(Stop::Gone)?;
        content.reserve_capacity(piece.len());
        let capacity = poll_fn(|context| content.poll_capacity(context)).await;
        let capacity = capacity.ok_or(Stop::Gone)??;
        let part = piece.split_to(capacity.min(piece.len()));
        let length = part.len();
        content.send_data(part, false)?;
        Ok(length)
    }

    /// Ends the response.
    fn end(&mut self, trailers: HeaderMap) -> Result<(), Stop> {
        let content = self.content.as_mut().ok_or(Stop::Gone)?;
        match trailers.is_empty() {
            true => content.send_data(Bytes::new(), true)?,
            false => content.send_trailers(trailers)?,
        }
        Ok(())
    }

    /// Waits until the client has reset the stream, or the connection has ended.
    async fn until_gone(&mut self) {
        // The reason makes no difference.
        let _ = poll_fn(|context| match &mut self.content {
            Some(content) => content.poll_reset(context),
            None => self.respond.poll_reset(context),
        })
        .await;
    }

    /// Waits for the future `what`, unless the client resets the stream first.
    async fn hold<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = what => Ok(done),
            () = self.until_gone() => Err(Stop::Gone),
        }
    }
}

/// A request with everything needed to respond to it.
pub(super) struct Stream<'a> {
    pub(super) seen: &'a Seen,
    pub(super) resource: Resource,
    pub(super) faults: Vec<Fault>,
    pub(super) body: RecvStream,
    pub(super) reply: Reply,
    pub(super) recorder: &'a Recorder,
}

impl Stream<'_> {
    /// Reads the request and sends the response.
    pub(super) async fn run(&mut self) -> Result<(), Stop> {
        pauses::point();
        self.fault_before_head().await?;
        if !self.resource.early {
            self.expect_continue()?;
        }
        if self.resource.echo {
            return self.echo().await;
        }
        if !self.resource.early {
            while self.read_piece().await?.is_some() {}
        }
        self.answer().await
    }

    async fn fault_before_head(&mut self) -> Result<(), Stop> {
        for fault in self.faults.clone() {
            match fault {
                Fault::NeverAnswer | Fault::StallHead { .. } => {
                    self.reply.until_gone().await;
                    return Err(Stop::Gone);
                }
                Fault::EndBeforeHead(ending) | Fault::EndBeforeHeadOnReuse(ending) => {
                    return Err(Stop::Connection(Order::End(ending)));
                }
                Fault::RefuseStream => return Err(Stop::Reset(Reason::REFUSED_STREAM)),
                Fault::GoAway(code) => return Err(Stop::Connection(Order::GoAway(code.into()))),
                _ => {}
            }
        }
        Ok(())
    }

    fn expect_continue(&mut self) -> Result<(), Stop> {
        let expected = self
            .seen
            .header("expect")
            .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expected && !self.body.is_end_stream() {
            self.reply.interim(head(100, &[]))?;
        }
        Ok(())
    }

    /// Reads the next bytes of the request's content, and records them.
    async fn read_piece(&mut self) -> Result<Option<Bytes>, Stop> {
        if let Some(latch) = &self.resource.upload_latch {
            let got = self.recorder.read(|record| {
                let own = record.requests.iter().find(|seen| seen.id == self.seen.id);
                own.map_or(0, |seen| seen.body_length)
            });
            // A latch holds whole pieces, as the client's frames give them.
            latch.pass(got).await;
        }
        let piece = self.body.data().await.transpose()?;
        if let Some(piece) = &piece {
            let window = self.body.flow_control();
            window.release_capacity(piece.len())?;
        }
        self.recorder.request(self.seen.id, |seen| {
            seen.body_complete = piece.is_none();
            let Some(piece) = &piece else { return };
            let room = BODY_KEPT.saturating_sub(seen.body.len()).min(piece.len());
            seen.body.extend_from_slice(&piece[..room]);
            seen.body_is_offset &= offset::verify_offset(seen.body_length, piece).is_ok();
            seen.body_length += piece.len() as u64;
        });
        if piece.is_none()
            && let Some(trailers) = self.body.trailers().await?
        {
            self.recorder
                .request(self.seen.id, |seen| seen.trailers = fields(&trailers));
        }
        Ok(piece)
    }

    /// Sends the bytes of the request's content back as they arrive.
    async fn echo(&mut self) -> Result<(), Stop> {
        let mut headers = self.resource.headers.clone();
        if let Some(length) = self.seen.header("content-length") {
            headers.push(("content-length".to_owned(), length.to_owned()));
        }
        self.recorder
            .request(self.seen.id, |seen| seen.status = 200);
        self.reply.head(head(200, &headers), false)?;
        while let Some(piece) = self.read_piece().await? {
            self.send(piece).await?;
        }
        self.reply.end(HeaderMap::new())
    }

    async fn answer(&mut self) -> Result<(), Stop> {
        self.reply.hold(sleep(self.resource.delay_head)).await?;
        for (status, headers) in &self.resource.interim {
            self.reply.interim(head(*status, headers))?;
        }
        if let Some(latch) = self.resource.head_latch.clone() {
            self.reply.hold(latch.pass(0)).await?;
        }
        let answer = answer(&self.resource, self.seen, &self.faults, false);
        self.recorder.request(self.seen.id, |seen| {
            seen.status = answer.status;
            seen.range = answer.range;
        });
        // Most servers end a response without content with its head.
        let is_empty = answer.length() == 0
            && self.resource.trailers.is_empty()
            && self.faults.is_empty()
            && self.resource.delay_body.is_zero();
        let bodiless = self.seen.method == "HEAD" || matches!(answer.status, 204 | 304) || is_empty;
        let head = head(answer.status, &answer.headers);
        self.reply.head(head, bodiless)?;
        if bodiless {
            return Ok(());
        }
        self.reply.hold(sleep(self.resource.delay_body)).await?;
        self.send_body(&answer).await?;
        self.send_end().await
    }

    async fn send_body(&mut self, answer: &Answer) -> Result<(), Stop> {
        pauses::point();
        let (length, halt, drip) = (answer.length(), self.halt(), self.drip());
        let mut pace = Pace::new(self.resource.rate);
        let latch = self.resource.body_latch.clone();
        let mut sent = 0;
        loop {
            if let Some(after) = halt
                && sent >= after.min(length)
            {
                return self.end_early().await;
            }
            if sent == length {
                return Ok(());
            }
            let mut room = PIECE.min(length - sent);
            if let Some(after) = halt {
                room = room.min(after - sent);
            }
            if let Some((bytes, every)) = drip {
                self.reply.hold(sleep(every)).await?;
                room = room.min(bytes.max(1) as u64);
            }
            if let Some(latch) = &latch {
                room = room.min(self.reply.hold(latch.pass(sent)).await?);
            }
            let (due, room) = pace.step(room);
            if let Some(due) = due {
                self.reply.hold(tokio::time::sleep_until(due)).await?;
            }
            let mut piece = vec![0; room as usize];
            answer.read(sent, &mut piece);
            self.send(piece.into()).await?;
            sent += room;
            if let Some(latch) = &latch {
                latch.passed(sent);
            }
        }
    }

    /// Sends bytes as the client's windows permit.
    async fn send(&mut self, mut piece: Bytes) -> Result<(), Stop> {
        while !piece.is_empty() {
            let length = self.reply.send_some(&mut piece).await? as u64;
            self.recorder.sent(self.seen.id, self.seen.path(), length);
        }
        Ok(())
    }

    async fn send_end(&mut self) -> Result<(), Stop> {
        for fault in self.faults.clone() {
            if let Fault::ExtraBytes(bytes) = fault {
                self.send(bytes.into()).await?;
            }
        }
        self.reply.end(header_map(&self.resource.trailers))
    }

    /// Returns the number of bytes of content after which a fault stops the response.
    fn halt(&self) -> Option<u64> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::CutBody { after, .. }
            | Fault::StallBody { after }
            | Fault::ResetStream { after, .. } => Some(*after),
            _ => None,
        })
    }

    fn drip(&self) -> Option<(usize, Duration)> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::Drip { bytes, every } | Fault::DripBody { bytes, every } => {
                Some((*bytes, *every))
            }
            _ => None,
        })
    }

    /// Ends or stalls a response in the way of its fault.
    async fn end_early(&mut self) -> Result<(), Stop> {
        for fault in &self.faults {
            match fault {
                Fault::CutBody { ending, .. } => {
                    return Err(Stop::Connection(Order::End(*ending)));
                }
                Fault::ResetStream { code, .. } => return Err(Stop::Reset((*code).into())),
                _ => {}
            }
        }
        self.reply.until_gone().await;
        Err(Stop::Gone)
    }
}

/// Returns a response head without the headers that only HTTP/1.1 has.
fn head(status: u16, headers: &[(String, String)]) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *head.headers_mut() = header_map(headers);
    head
}

/// Headers that the http crate does not accept are left out.
fn header_map(fields: &[(String, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value)
            && !CONNECTION_HEADERS.contains(&name.as_str())
        {
            map.append(name, value);
        }
    }
    map
}

fn fields(map: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value)))
        .collect()
}
