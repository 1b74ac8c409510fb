//! Runs our HTTP/2 and that of the h2 crate against each other over memory. The input is a sequence of operations of both
//! sides. At the end, both must agree on every message: its head, its content, its end, and its reset.

pub mod client;
pub mod server;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use http::HeaderMap;
use sluice::test_rigs::http::fields::Fields;
use sluice::test_rigs::http2::{Encoder, Indexing};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most operations of a run, and most streams.
const OPERATIONS: usize = 200;
const STREAMS: usize = 16;

/// Most bytes of content of a run.
const CONTENT: usize = 300_000;

/// The smallest window of our client, which decides how many rounds its content needs.
const WINDOW_MIN: u32 = 128;

/// Rounds after which a connection that is still busy counts as one without end.
const ROUNDS: usize = 10_000;

/// Windows in bytes that h2 opens at the end, so that all content can be sent.
const WINDOW: u32 = 1 << 20;

/// Fields of a message, in order.
type Lines = Vec<(String, String)>;

/// The input as a sequence of numbers.
struct Script<'a> {
    rest: &'a [u8],
    /// Bytes of content that may still be sent.
    content: usize,
}

impl Script<'_> {
    fn new(data: &[u8]) -> Script<'_> {
        Script {
            rest: data,
            content: CONTENT,
        }
    }

    /// Returns the next byte. `None`: the script has ended.
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Returns the next byte; 0 at the end.
    fn byte(&mut self) -> usize {
        usize::from(self.next().unwrap_or(0))
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a length of which small values are frequent, up to 65,025.
    fn length(&mut self) -> usize {
        self.byte() * self.byte()
    }

    /// Returns a length of content.
    fn content(&mut self) -> usize {
        let length = self.length().min(self.content);
        self.content -= length;
        length
    }

    /// Returns fields that may be trailers.
    fn trailers(&mut self) -> Lines {
        let mut lines = self.lines();
        lines.retain(|line| line.0.starts_with("x-"));
        lines
    }

    /// Returns fields of a message, with names and values that repeat.
    fn lines(&mut self) -> Lines {
        const NAMES: [&str; 8] = [
            "x-a",
            "x-b",
            "cookie",
            "accept",
            "content-type",
            "user-agent",
            "x-long",
            "date",
        ];
        let count = self.byte() % 8;
        let mut lines = Vec::new();
        for _ in 0..count {
            let (name, value) = (NAMES[self.byte() % NAMES.len()], self.byte());
            let length = match name {
                "x-long" => value * value / 8,
                _ => value % 40,
            };
            let letters = (0..length).map(|at| char::from(b'!' + ((value + at / 3) % 94) as u8));
            lines.push((name.to_owned(), letters.collect()));
        }
        lines
    }
}

/// One direction of a stream, as one side knows it.
#[derive(Debug, Default, PartialEq)]
struct Message {
    head: Option<Lines>,
    length: u64,
    trailers: Option<Lines>,
    ends: bool,
}

impl Message {
    /// Counts received content, which must be what was sent.
    fn receive(&mut self, number: usize, content: &[u8]) {
        for (at, found) in content.iter().enumerate() {
            assert_eq!(*found, byte(number, self.length + at as u64));
        }
        self.length += content.len() as u64;
    }

    /// Asserts that this message, as it was received, is the beginning of the one that was sent, or all of it.
    fn check(&self, sent: &Message, number: usize) {
        if let Some(head) = &self.head {
            assert_eq!(Some(head), sent.head.as_ref(), "the head of {number}");
        }
        assert!(self.length <= sent.length, "the content of {number}");
        if self.ends {
            assert!(sent.ends, "the end of {number}");
            assert_eq!(self.length, sent.length, "the content of {number}");
            assert_eq!(self.trailers, sent.trailers, "the trailers of {number}");
        } else {
            assert_eq!(self.trailers, None, "the trailers of {number}");
        }
    }
}

/// Asserts that the interim heads that were received are those that were sent, or the first of them before the final head.
fn check_interim(received: &[Lines], sent: &[Lines], is_final: bool, number: usize) {
    assert!(sent.starts_with(received), "the interim heads of {number}");
    if is_final {
        assert_eq!(received.len(), sent.len(), "the interim heads of {number}");
    }
}

/// Returns a byte of a stream's content.
fn byte(number: usize, at: u64) -> u8 {
    (number as u64 * 31 + at * 7 + at / 256) as u8
}

/// Returns content of a stream.
fn content(number: usize, from: u64, length: usize) -> Vec<u8> {
    (from..from + length as u64)
        .map(|at| byte(number, at))
        .collect()
}

/// Sorts fields by their names, since the maps of h2 keep the order only within a name.
fn sorted(mut lines: Lines) -> Lines {
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    lines
}

/// Joins the lines of Cookie to one, as our server does (RFC 9113 8.2.3).
fn with_one_cookie(lines: &Lines) -> Lines {
    let (cookies, mut others): (Lines, Lines) =
        lines.iter().cloned().partition(|line| line.0 == "cookie");
    let cookies: Vec<_> = cookies
        .into_iter()
        .map(|line| line.1)
        .filter(|value| !value.is_empty())
        .collect();
    if !cookies.is_empty() {
        others.push(("cookie".to_owned(), cookies.join("; ")));
    }
    sorted(others)
}

fn of_map(map: &HeaderMap) -> Lines {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let lines = map.iter();
    sorted(
        lines
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect(),
    )
}

fn to_map(lines: &Lines) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name: http::HeaderName = name.parse().expect("a name");
        map.append(name, value.parse().expect("a value"));
    }
    map
}

fn of_fields(fields: &Fields) -> Lines {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = fields.iter();
    sorted(
        lines
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    )
}

/// Encodes fields in ways that depend on their values.
fn encode(encoder: &mut Encoder, out: &mut Vec<u8>, lines: &Lines) {
    const WAYS: [Indexing; 4] = [
        Indexing::Field,
        Indexing::Name,
        Indexing::Without,
        Indexing::Never,
    ];
    for (name, value) in lines {
        let way = WAYS[value.len() % WAYS.len()];
        encoder.field(out, name.as_bytes(), value.as_bytes(), way);
    }
}

/// The end of a connection that the h2 crate has.
#[derive(Clone, Default)]
struct Transport(Rc<RefCell<Wires>>);

#[derive(Default)]
struct Wires {
    /// Bytes that were sent to h2, and whether no more follow.
    inbox: VecDeque<u8>,
    is_closed: bool,
    /// Whether h2 has closed the connection, so that it reads nothing more.
    is_left: bool,
    /// Bytes that h2 has sent.
    outbox: VecDeque<u8>,
}

impl Transport {
    /// Moves bytes from our side to h2.
    fn deliver(&self, out: &mut Vec<u8>, most: usize) {
        let most = most.min(out.len());
        let wires = &mut self.0.borrow_mut();
        wires.inbox.extend(out.drain(..most));
        if wires.is_left {
            wires.inbox.clear();
        }
    }

    /// Moves bytes from h2 to our side.
    fn collect(&self, input: &mut Vec<u8>, most: usize) {
        let outbox = &mut self.0.borrow_mut().outbox;
        let most = most.min(outbox.len());
        input.extend(outbox.drain(..most));
    }

    fn close(&self) {
        self.0.borrow_mut().is_closed = true;
    }

    /// Notes that h2 has closed the connection.
    fn leave(&self) {
        let wires = &mut self.0.borrow_mut();
        wires.is_left = true;
        wires.inbox.clear();
    }

    /// Whether h2 has read and we have collected everything.
    fn is_empty(&self) -> bool {
        let wires = self.0.borrow();
        wires.inbox.is_empty() && wires.outbox.is_empty()
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wires = &mut self.0.borrow_mut();
        let most = into.remaining().min(wires.inbox.len());
        for byte in wires.inbox.drain(..most) {
            into.put_slice(&[byte]);
        }
        match most == 0 && !wires.is_closed {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().outbox.extend(from);
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Everything is polled after each step, so nothing needs to be woken.
fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Receives what has arrived of a message. `unreleased` counts its content. Returns the error that ends it.
fn receive(
    stream: &mut RecvStream,
    message: &mut Message,
    number: usize,
    unreleased: &mut usize,
) -> Result<(), h2::Error> {
    if message.ends {
        return Ok(());
    }
    let mut cx = context();
    loop {
        match stream.poll_data(&mut cx) {
            Poll::Ready(Some(part)) => {
                let part = part?;
                *unreleased += part.len();
                message.receive(number, &part);
            }
            Poll::Ready(None) => break,
            Poll::Pending => return Ok(()),
        }
    }
    if let Poll::Ready(trailers) = stream.poll_trailers(&mut cx) {
        message.trailers = trailers?.as_ref().map(of_map);
        message.ends = true;
    }
    Ok(())
}

/// Opens the windows of a message by this much of its content.
fn release(stream: &mut RecvStream, unreleased: &mut usize, most: usize) {
    let length = most.min(*unreleased);
    *unreleased -= length;
    // A stream that has ended has no window.
    let _ = stream.flow_control().release_capacity(length);
}
