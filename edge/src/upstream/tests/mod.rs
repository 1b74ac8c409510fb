//! Tests of exchanges over real sockets with scripted origins, and the helpers for these tests.

mod bodies;
mod ejection;
mod heads;
mod http2;
mod limits;
mod queue;
mod requests;
mod reuse;
mod unreachable;
mod upgrade;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::criteria::Criteria;
use super::*;
use crate::balance::{Balancer, ChoiceContext, Now, Outcome};
use crate::handler::{Body, BodyStream, Fault, Frame, Head, Peer};
use crate::http::{ClientId, Scheme};
use crate::reason::Reason;
use crate::telemetry::ServerNumbers;

/// Runs a future on the kind of runtime that a worker has. A test that hangs fails.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .expect("a runtime");
    let limit = Duration::from_secs(30);
    runtime
        .block_on(async { tokio::time::timeout(limit, future).await })
        .expect("the test hangs")
}

/// A test origin. `script` serves each connection on its own thread and gets the connection's
/// number, counted from 0.
struct Origin {
    address: SocketAddr,
    seen: Receiver<String>,
}

impl Origin {
    fn new(script: impl Fn(usize, &mut ServedConnection) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tell, seen) = channel();
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (script, tell) = (script.clone(), tell.clone());
                let Ok(stream) = stream else { return };
                std::thread::spawn(move || script(number, &mut ServedConnection { stream, tell }));
            }
        });
        Origin { address, seen }
    }

    /// Starts an origin that answers every request with the same bytes, on one connection after
    /// another.
    fn always(answer: &'static [u8]) -> Origin {
        Origin::new(move |_, served| while served.request().is_some() && served.send(answer) {})
    }

    /// Starts an origin that answers the first request with these bytes and closes.
    fn once(answer: impl Into<Vec<u8>>) -> Origin {
        let answer = answer.into();
        Origin::new(move |_, served| {
            if served.request().is_some() {
                served.send(&answer);
            }
        })
    }

    /// Returns the next request head that any connection read.
    fn next_request(&self) -> String {
        self.seen
            .recv_timeout(Duration::from_secs(20))
            .expect("a request")
    }

    fn server(&self) -> Server {
        server(self.address)
    }

    fn upstream(&self) -> Testing {
        Testing::new(Options::new(vec![self.server()]))
    }
}

fn server(address: SocketAddr) -> Server {
    Server {
        scheme: Scheme::Http,
        h2c: false,
        host: address.ip().to_string(),
        port: address.port(),
        srv: false,
        unix: None,
        weight: 1,
        backup: false,
        down: false,
        max_connections: None,
    }
}

/// Returns an address that refuses connections.
fn refusing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// The origin's end of a connection.
struct ServedConnection {
    stream: TcpStream,
    tell: Sender<String>,
}

impl ServedConnection {
    /// Reads one request head and sends it to the test; `None` if the connection was closed.
    /// Content is left unread.
    fn request(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return None,
            }
        }
        let head = String::from_utf8(head).expect("a head in ASCII");
        // Sending fails if the test has dropped the receiver, which is no error.
        let _ = self.tell.send(head.clone());
        Some(head)
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut content = vec![0; len];
        self.stream.read_exact(&mut content).expect("content");
        content
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Waits until Sluice closes the connection.
    fn await_close(&mut self) {
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).is_ok_and(|n| n > 0) {}
    }

    /// Closes the connection so that Sluice sees a reset.
    fn reset(&mut self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket
            .set_linger(Some(Duration::ZERO))
            .expect("a socket option");
    }
}

/// An upstream, and the counters and state that tests check.
struct Testing {
    upstream: Upstream,
    counters: Arc<Counters>,
    state: Arc<UpstreamState>,
    clock: Clock,
    memory_freed: Rc<Notify>,
}

impl Testing {
    fn new(options: Options) -> Testing {
        Testing::after(options, None)
    }

    /// Creates an upstream that takes the place of another one, as in a reload.
    fn after(options: Options, before: Option<&Testing>) -> Testing {
        let clock = before.map_or_else(|| Clock::manual(1_000_000), |before| before.clock.clone());
        let counters = Arc::new(Counters::default());
        let state = before.map(|before| &*before.state);
        let state = UpstreamState::after("origin", &options, state).expect("no files are read");
        state.take_effect();
        let freed = Rc::<Notify>::default();
        let (own_clock, own_counters) = (clock.clone(), counters.clone());
        Testing {
            upstream: Upstream::new(options, own_clock, own_counters, &state, freed.clone()),
            memory_freed: freed,
            counters,
            state,
            clock,
        }
    }

    /// Chooses the first allowed server for each request, and records choices and outcomes.
    fn record_choices(&self, record: &Recorded) {
        let balancer = Box::new(record.clone());
        self.upstream.worker.pool.set_balancer(balancer);
    }

    fn start(&self, request: Request) -> Pending {
        match self.upstream.handle(request) {
            Answer::Later(pending) => pending,
            Answer::Ready(_) => panic!("an exchange takes time"),
        }
    }

    async fn ask(&self, request: Request) -> Result<Response, Reason> {
        self.start(request).response.await.map_err(|f| f.reason)
    }

    /// Returns status and content, or the reason why there is no complete response.
    async fn fetch(&self, request: Request) -> Result<(u16, Vec<u8>), Reason> {
        let mut response = self.ask(request).await?;
        Ok((response.status, content(&mut response.body).await?))
    }

    /// Returns the numbers of each server.
    fn status(&self) -> Vec<ServerNumbers> {
        let servers = self.state.servers();
        servers.iter().map(|server| server.numbers()).collect()
    }

    /// Whether a sweep has freed memory since the last call.
    fn is_memory_freed(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(self.memory_freed.notified()).poll(&mut cx).is_ready()
    }

    fn idle(&self) -> usize {
        self.upstream.worker.pool.idle_connections(0)
    }
}

/// A balancer for up to two servers that records the choices and how the exchanges ended.
#[derive(Clone, Default)]
struct Recorded {
    /// The key of each choice.
    keys: Rc<RefCell<Vec<u64>>>,
    outcomes: Rc<RefCell<Vec<Outcome>>>,
}

impl Balancer for Recorded {
    fn set_weights(&mut self, _: &[u32]) {}

    fn choose(&mut self, context: &ChoiceContext<'_>) -> Option<usize> {
        self.keys.borrow_mut().push((context.key)());
        (0..2).find(|&server| context.allows(server))
    }

    fn begin(&mut self, _: usize) {}

    fn end(&mut self, _: usize, outcome: Outcome, _: Now<'_>) {
        self.outcomes.borrow_mut().push(outcome);
    }
}

async fn content(body: &mut Body) -> Result<Vec<u8>, Reason> {
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map_err(|fault| fault.reason)? {
            Frame::Data(bytes) => content.extend_from_slice(&bytes),
            Frame::Trailers(_) | Frame::File(_) => {}
        }
    }
    Ok(content)
}

fn request(method: Method, target: &str, fields: &[(&str, &str)]) -> Request {
    let mut head = Head::new();
    head.method = method;
    head.target.push_str(target);
    head.authority.push_str("example.com");
    for (name, value) in fields {
        head.fields.append(name, value);
    }
    Request {
        head,
        body: Body::Empty,
        peer: Peer {
            address: ([192, 0, 2, 7], 4711).into(),
            client: [192, 0, 2, 7].into(),
            local: ([192, 0, 2, 1], 80).into(),
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        },
        interim: None,
    }
}

fn get(target: &str) -> Request {
    request(Method::Get, target, &[])
}

fn post(body: Body) -> Request {
    let mut request = request(Method::Post, "/", &[]);
    request.body = body;
    request
}

/// A request's content that the test feeds frame by frame. Pending while no frame is queued.
#[derive(Clone, Default)]
struct Fed(Rc<RefCell<Feed>>);

#[derive(Default)]
struct Feed {
    frames: VecDeque<Option<Result<Frame, Fault>>>,
    polled: usize,
    waker: Option<std::task::Waker>,
}

impl Fed {
    fn feed(&self, frame: Option<Result<Frame, Fault>>) {
        let mut feed = self.0.borrow_mut();
        feed.frames.push_back(frame);
        if let Some(waker) = feed.waker.take() {
            waker.wake();
        }
    }

    fn data(&self, bytes: &'static [u8]) {
        self.feed(Some(Ok(Frame::Data(Bytes::from_static(bytes)))));
    }
}

impl BodyStream for Fed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut feed = self.0.borrow_mut();
        feed.polled += 1;
        feed.waker = Some(cx.waker().clone());
        match feed.frames.pop_front() {
            Some(frame) => Poll::Ready(frame),
            None => Poll::Pending,
        }
    }

    fn length(&self) -> Option<u64> {
        None
    }
}

/// Returns the criteria of a GET request.
fn criteria() -> Criteria<'static> {
    Criteria {
        needs_http1: false,
        client: ClientId::of([192, 0, 2, 7].into()),
        key: &|| 0,
        is_repeatable: true,
        sticky: None,
        record: Rc::default(),
    }
}

/// Whether `future` is still pending when polled after all ready tasks have run.
async fn is_waiting<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending()))
        .await
}

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
