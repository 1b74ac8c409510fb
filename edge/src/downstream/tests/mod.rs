//! Tests of downstream as a client sees it: a worker with a test's handler, and raw bytes.

mod bodies;
mod framing;
mod http2;
mod lifetime;
mod limits;
#[path = "../../../tests/behaviour/malformed.rs"]
mod malformed;
mod sockets;
mod tls;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::Notify;

use super::transport::Transport;
use super::{
    ConnectionBalance, ConnectionSetup, Options, Protocol, Protocols, Serving, Worker,
    WorkerContext,
};
use crate::handler::{Answer, Body, BodyStream, Fault, Frame, Handler, Peer, Request, Response};
use crate::http::Scheme;
use crate::sys::Clock;
use crate::telemetry::Counters;

/// A handler that is a function.
struct Answering<F>(F);

impl<F: Fn(Request) -> Answer> Handler for Answering<F> {
    fn handle(&self, request: Request) -> Answer {
        (self.0)(request)
    }
}

/// A worker with a manual clock.
struct Bench {
    worker: Rc<Worker>,
    clock: Clock,
    counters: Arc<Counters>,
    memory_freed: Rc<Notify>,
}

thread_local! {
    /// Number of times that this thread's worker gave back unused memory.
    static GIVEN_BACK: Cell<u32> = const { Cell::new(0) };
}

fn serving(options: Options, answer: impl Fn(Request) -> Answer + 'static) -> Serving {
    Serving {
        handler: Rc::new(Answering(answer)),
        options,
        routes: Rc::new(crate::telemetry::WorkerRoutes::new(0)),
        log: None,
        trust: crate::downstream::Trust::default(),
        request_ids: None,
        traces: None,
        tls: Arc::from([]),
        protocols: Arc::from([Protocols::CLEAR, Protocols::only(Protocol::Http2)]),
    }
}

impl Bench {
    fn new(answer: impl Fn(Request) -> Answer + 'static) -> Bench {
        Bench::with(Options::default(), answer)
    }

    fn with(options: Options, answer: impl Fn(Request) -> Answer + 'static) -> Bench {
        Bench::of(ConnectionBalance::new(1), options, answer)
    }

    fn of(
        balance: Arc<ConnectionBalance>,
        options: Options,
        answer: impl Fn(Request) -> Answer + 'static,
    ) -> Bench {
        let clock = Clock::manual(784_111_777);
        let counters = Arc::new(Counters::default());
        let memory_freed = Rc::<Notify>::default();
        let context = WorkerContext {
            clock: clock.clone(),
            counters: counters.clone(),
            balance,
            index: 0,
            give_memory_back: || GIVEN_BACK.set(GIVEN_BACK.get() + 1),
            memory_freed: memory_freed.clone(),
            sampler: crate::telemetry::Sampler::off(),
        };
        Bench {
            memory_freed,
            worker: Worker::new(context, serving(options, answer)),
            clock,
            counters,
        }
    }

    /// Connects a client over memory.
    fn client(&self) -> Client {
        self.client_with_room(1 << 20)
    }

    /// Connects a client over memory that holds at most `room` unread bytes in each direction.
    fn client_with_room(&self, room: usize) -> Client {
        self.client_of(room, &ConnectionSetup::plain())
    }

    /// Connects a client over memory to a listener that serves half-closed connections.
    fn half_closing_client(&self) -> Client {
        let mut setup = (*ConnectionSetup::plain()).clone();
        setup.half_close = true;
        self.client_of(1 << 20, &Arc::new(setup))
    }

    fn client_of(&self, room: usize, setup: &Arc<ConnectionSetup>) -> Client {
        let (near, far) = Transport::pair(room);
        let address = ([127, 0, 0, 1], 1).into();
        let peer = Peer {
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            address,
            local: address,
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        };
        self.worker.connect(near, peer, setup);
        Client {
            socket: far,
            got: Vec::new(),
        }
    }

    /// Waits for a condition, for up to 50 ticks.
    async fn until(&self, reached: impl Fn(&Bench) -> bool) {
        for _ in 0..50 {
            if reached(self) {
                return;
            }
            tokio::time::sleep(super::deadlines::TICK).await;
        }
        panic!("it did not come to that");
    }

    fn advance_s(&self, seconds: u64) {
        self.clock.advance_us(seconds * 1_000_000);
    }
}

/// The client's end of a connection.
struct Client {
    socket: Transport,
    got: Vec<u8>,
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut rest = bytes.as_ref();
        while !rest.is_empty() {
            let sent = poll_fn(|cx| self.socket.poll_write(cx, &[IoSlice::new(rest)], false)).await;
            match sent {
                Ok(n) => rest = &rest[n..],
                // Sluice has closed the connection. Bytes that it sent before can still be read.
                Err(_) => return,
            }
        }
    }

    /// Reads once. Returns `None` at the end, and an error after a reset.
    async fn read(&mut self) -> std::io::Result<Option<usize>> {
        let mut buf = [0; 4096];
        let n = poll_fn(|cx| self.socket.poll_read(cx, &mut buf)).await?;
        self.got.extend_from_slice(&buf[..n]);
        Ok((n > 0).then_some(n))
    }

    /// Reads up to and including `end`, which must arrive.
    async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.got, end.as_bytes()) {
                let taken: Vec<u8> = self.got.drain(..at + end.len()).collect();
                return String::from_utf8_lossy(&taken).into_owned();
            }
            let more = self.read().await;
            assert!(
                matches!(more, Ok(Some(_))),
                "{end:?} did not come, but {:?}",
                String::from_utf8_lossy(&self.got)
            );
        }
    }

    /// Reads until the connection is closed.
    async fn rest(&mut self) -> String {
        while let Some(_more) = self.read().await.expect("closed without a reset") {}
        String::from_utf8_lossy(&std::mem::take(&mut self.got)).into_owned()
    }
}

/// A body stream that calls a function for each frame.
struct Frames<F>(F);

impl<F> BodyStream for Frames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        (self.0)(cx)
    }

    fn length(&self) -> Option<u64> {
        None
    }
}

/// Returns a body of these frames.
fn frames(frames: Vec<Result<Frame, Fault>>) -> Body {
    let mut frames = frames.into_iter();
    Body::stream(Frames(move |_: &mut Context<'_>| {
        Poll::Ready(frames.next())
    }))
}

fn data(text: &'static str) -> Result<Frame, Fault> {
    Ok(Frame::Data(Bytes::from_static(text.as_bytes())))
}

fn ok(body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(200);
    response.body = Body::Bytes(body.into());
    Answer::Ready(Ok(response))
}

/// A handler that reads the body and responds with method, target and body.
fn echo(mut request: Request) -> Answer {
    Answer::later(async move {
        let mut text = format!("{} {} ", request.head.method.as_str(), request.head.target);
        while let Some(frame) = request.body.frame().await {
            match frame? {
                Frame::Data(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Frame::Trailers(fields) => text.push_str(&format!("+{fields:?}")),
                Frame::File(_) => unreachable!("no client sends these"),
            }
        }
        Ok(Response::text(200, text))
    })
}

fn on_worker<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::LocalRuntime::new()
        .expect("a runtime")
        .block_on(test)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
