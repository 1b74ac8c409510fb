//! Runs whole connections of a client with any bytes from the server, for the fuzzer.

use super::{check_lines, describe_frames};
use crate::http2::PREFACE;
use crate::http2::client::{Client, Event, Options};
use crate::http2::hpack::{Encoder, Indexing, append_independent};
use crate::http2::response::Response;
use crate::http2::violation::{ErrorCode, Violation};
use crate::http2::write;

/// Most streams at a time, and requests of a connection.
const STREAMS: usize = 4;
const REQUESTS: usize = 12;

/// Bytes of content of each request that has some.
const CONTENT: u32 = 100_000;

/// Runs a whole connection with the input as the frames of a server, after its settings. Checks that each response is
/// complete or fails, that slots and limits are respected, and that nothing depends on the pieces in which the input
/// arrives.
pub fn client(data: &[u8]) {
    let whole = fetched(data, usize::MAX);
    for piece in [1, 7] {
        assert_eq!(fetched(data, piece), whole);
    }
}

/// The course of a connection.
#[derive(Debug, PartialEq)]
struct Course {
    /// The frames that the client sends after its preface.
    frames: Vec<String>,
    /// The events for its caller.
    events: Vec<String>,
    error: Option<Violation>,
}

/// Returns the course of a connection whose server's frames arrive in pieces of this length.
fn fetched(data: &[u8], piece: usize) -> Course {
    let mut out = Vec::new();
    let mut options = Options::default();
    options.limits.streams = STREAMS as u32;
    let mut client = Client::new(options, 0, &mut out);
    let mut input = Vec::new();
    write::settings(&mut input, std::iter::empty());
    input.extend_from_slice(data);
    let mut caller = Caller::default();
    caller.send(&mut client, &mut out);
    let (mut buffer, mut response) = (Vec::new(), Response::default());
    let mut error = None;
    'all: for part in input.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let (used, event) = match client.take(&buffer, 0, &mut response, &mut out) {
                Ok(taken) => taken,
                Err(violation) => {
                    client.close(violation.code(), "error", &mut out);
                    caller.forget_content(None);
                    error = Some(violation);
                    break 'all;
                }
            };
            if let Some(event) = event {
                caller.handle(event, &response, &mut client, &mut out);
            }
            caller.send(&mut client, &mut out);
            assert_eq!(client.open_streams(), caller.open());
            assert!(client.open_streams() <= STREAMS && client.memory() < 40_000);
            if used == 0 {
                break;
            }
            buffer.drain(..used);
        }
    }
    let frames = out.strip_prefix(PREFACE).expect("a preface");
    Course {
        frames: describe_frames(frames),
        events: caller.events,
        error,
    }
}

/// A request and its response.
struct Exchange {
    head_only: bool,
    /// Bytes of content that are still to be sent. `None`: the request is complete.
    left: Option<u32>,
    has_trailers: bool,
    /// The status of the response, once there is one.
    status: Option<u16>,
    /// The declared and the received length of the response.
    declared: Option<u64>,
    received: u64,
}

/// A caller of a client, which sends requests as long as there is room.
#[derive(Default)]
struct Caller {
    exchanges: Vec<Option<Exchange>>,
    /// For each slot: the bytes of content that the caller has not consumed.
    unread: Vec<u32>,
    requests: usize,
    has_ended: bool,
    events: Vec<String>,
    /// The slot of the content that the last event has described.
    last_content: Option<usize>,
}

impl Caller {
    fn open(&self) -> usize {
        self.exchanges.iter().flatten().count()
    }

    /// Begins requests, and sends content as far as the windows permit.
    fn send(&mut self, client: &mut Client, out: &mut Vec<u8>) {
        while self.requests < REQUESTS && self.begin(client, out) {}
        while let Some((slot, most)) = client.next() {
            let exchange = self.exchanges[slot].as_mut().expect("an open stream");
            let left = exchange.left.expect("content");
            let length = left.min(most);
            exchange.left = Some(left - length);
            let ends = left == length && !exchange.has_trailers;
            client.data(slot, length, ends, out);
            out.extend(std::iter::repeat_n(0, length as usize));
            if left == length {
                exchange.left = None;
                if exchange.has_trailers {
                    client.trailers(slot, out, |_, out| {
                        append_independent(out, b"x-sum", b"1", Indexing::Without);
                    });
                }
            }
        }
    }

    /// Begins a request, of a kind that depends on their number. Returns false if there is no room.
    fn begin(&mut self, client: &mut Client, out: &mut Vec<u8>) -> bool {
        let room = client.room();
        let kind = self.requests % 4;
        let head_only = kind == 1;
        let has_content = kind >= 2;
        let fields = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            let method: &[u8] = [&b"GET"[..], b"HEAD", b"POST", b"PUT"][kind];
            append_independent(out, b":method", method, Indexing::Without);
            append_independent(out, b":scheme", b"https", Indexing::Without);
            append_independent(out, b":path", b"/", Indexing::Without);
            encoder.field(out, b":authority", b"a.example", Indexing::Field);
        };
        let Some(slot) = client.begin(!has_content, head_only, out, fields) else {
            assert_eq!(room, 0);
            return false;
        };
        assert!(room > 0 && !self.has_ended);
        self.requests += 1;
        let slots = self.exchanges.len().max(slot + 1);
        self.exchanges.resize_with(slots, || None);
        self.unread.resize(slots, 0);
        assert!(self.exchanges[slot].is_none(), "a slot in use");
        self.exchanges[slot] = Some(Exchange {
            head_only,
            left: has_content.then_some(CONTENT),
            has_trailers: kind == 3,
            status: None,
            declared: None,
            received: 0,
        });
        client.set_content(slot, has_content);
        true
    }

    fn handle(
        &mut self,
        event: Event<'_>,
        response: &Response,
        client: &mut Client,
        out: &mut Vec<u8>,
    ) {
        self.note(&event, response);
        if !matches!(event, Event::Content { .. }) {
            // Content is consumed at times that do not depend on the pieces in which it arrives.
            for (slot, unread) in self.unread.iter_mut().enumerate() {
                client.consume(slot, std::mem::take(unread), 0, out);
            }
        }
        match event {
            Event::Head { slot, status, ends } => {
                self.head(slot, status, response);
                if ends {
                    self.end(slot, client, out);
                }
            }
            Event::Content {
                slot,
                content,
                ends,
            } => {
                let exchange = self.answered(slot);
                exchange.received += content.len() as u64;
                let most = exchange.declared.unwrap_or(u64::MAX);
                assert!(exchange.received <= most, "more content than declared");
                self.unread[slot] += content.len() as u32;
                if ends {
                    self.end(slot, client, out);
                }
            }
            Event::Trailers { slot, fields } => {
                check_lines(&fields);
                self.end(slot, client, out);
            }
            Event::Failed { slot, .. } => {
                assert!(self.exchanges[slot].take().is_some());
                self.unread[slot] = 0;
            }
            Event::GoAway { .. } => {
                self.has_ended = true;
                while let Some(slot) = client.take_unprocessed(out) {
                    assert!(self.exchanges[slot].take().is_some());
                    self.unread[slot] = 0;
                    self.events.push(format!("unprocessed {slot}"));
                }
            }
            Event::Pong(_) => {}
        }
    }

    fn head(&mut self, slot: usize, status: u16, response: &Response) {
        assert!((100..1000).contains(&status) && status != 101 && status == response.status);
        check_lines(&response.fields);
        assert!(response.fields.get_all("content-length").count() <= 1);
        let exchange = self.exchanges[slot].as_mut().expect("an open stream");
        assert!(exchange.status.is_none(), "a second head");
        if status >= 200 {
            exchange.status = Some(status);
            exchange.declared = match exchange.head_only || matches!(status, 204 | 304) {
                true => Some(0),
                false => response.content_length,
            };
        }
    }

    /// Returns the exchange of a stream whose response has begun.
    fn answered(&mut self, slot: usize) -> &mut Exchange {
        let exchange = self.exchanges[slot].as_mut().expect("an open stream");
        assert!(exchange.status.is_some(), "content before a head");
        exchange
    }

    /// Ends a stream whose response is complete.
    fn end(&mut self, slot: usize, client: &mut Client, out: &mut Vec<u8>) {
        let exchange = self.answered(slot);
        let length = exchange.declared.unwrap_or(exchange.received);
        assert_eq!(exchange.received, length, "less content than declared");
        self.exchanges[slot] = None;
        self.unread[slot] = 0;
        client.end(slot, out);
    }

    /// Forgets the last event if it was content, of this slot or any: of a frame that turns out to be a violation, only
    /// the parts before the violation are delivered.
    fn forget_content(&mut self, slot: Option<usize>) {
        if let Some(last) = self.last_content.take()
            && slot.is_none_or(|slot| slot == last)
        {
            self.events.pop();
        }
    }

    /// Describes an event. Parts of content that follow each other are one.
    fn note(&mut self, event: &Event<'_>, response: &Response) {
        let end = |ends: &bool| if *ends { " ends" } else { "" };
        if let Event::Failed { slot, .. } = event {
            self.forget_content(Some(*slot));
        }
        let last = self.last_content.take();
        let text = match event {
            Event::Head { slot, status, ends } => {
                let fields = response.fields.text().escape_ascii();
                format!("head {slot} {status} {fields}{}", end(ends))
            }
            Event::Content {
                slot,
                content,
                ends,
            } => {
                self.last_content = Some(*slot);
                let text = format!("{}{}", content.escape_ascii(), end(ends));
                match self.events.last_mut() {
                    Some(before) if last == Some(*slot) => return before.push_str(&text),
                    _ => format!("content {slot} {text}"),
                }
            }
            Event::Trailers { slot, fields } => {
                format!("trailers {slot} {}", fields.text().escape_ascii())
            }
            Event::Failed {
                slot,
                code: ErrorCode(code),
                violation,
            } => format!("failed {slot} {code} {}", violation.unwrap_or_default()),
            Event::GoAway { code } => format!("go away {}", code.0),
            Event::Pong(bytes) => format!("pong {}", bytes.escape_ascii()),
        };
        self.events.push(text);
    }
}
