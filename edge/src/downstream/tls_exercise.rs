//! For the fuzzer: whole TLS connections of a client that breaks the rules, from the first byte to the end.
//!
//! The input is a program for the client. Its first byte chooses the client's TLS, and the rest are steps: a byte for the
//! kind of step, a byte for the length of its data, and the data. Bytes are moved after each step whose kind lacks the
//! highest bit.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use sluice_lab::certificates::Issued;
use sluice_lab::client::tls_config;
use tokio::runtime::LocalRuntime;

use super::connection_setup::ConnectionSetup;
use super::protocol_list::{Protocol, Protocols};
use super::transport::Transport;
use super::{ConnectionBalance, Options, Serving, Trust, Worker, WorkerContext};
use crate::handler::{Answer, Frame, Handler, Peer, Request, Response};
use crate::http::Scheme;
use crate::sys::Clock;
use crate::telemetry::Counters;
use crate::tls::{CertificateFiles, ListenerTls, Loader, Server, TicketKeys, TicketOptions};

/// Room on the wire in each direction, in bytes; for a client with little room, few records fit.
const ROOM: usize = 256 << 10;
const LITTLE_ROOM: usize = 700;
/// Length of the response to each request: several records, and more than fits on the wire at once.
const RESPONSE: usize = 150_000;
/// The bit of a step's kind that holds its bytes back until a later step, which may damage them.
const HELD: u8 = 0x80;
/// Number of times that the connection's tasks may run after each step.
const TURNS: usize = 8;
/// Most memory that one connection may hold, in bytes: idle, with a batch of encrypted bytes, and with received bytes
/// that wait.
const MEMORY_MAX: u64 = 160 << 10;

/// A worker with a TLS listener, on which connections are tried one after the other.
pub struct Bench {
    runtime: LocalRuntime,
    worker: Rc<Worker>,
    counters: Arc<Counters>,
    /// Number of requests that reached the handler.
    requests: Rc<Cell<usize>>,
    client: Arc<ClientConfig>,
    client12: Arc<ClientConfig>,
}

/// Reads the request's content and responds with some records.
struct Reading(Rc<Cell<usize>>);

impl Handler for Reading {
    fn handle(&self, mut request: Request) -> Answer {
        self.0.set(self.0.get() + 1);
        Answer::later(async move {
            while let Some(frame) = request.body.frame().await {
                if let Frame::File(_) = frame? {
                    unreachable!("clients send no files");
                }
            }
            Ok(Response::text(200, "x".repeat(RESPONSE)))
        })
    }
}

impl Bench {
    /// Creates a worker with a certificate of its own.
    ///
    /// # Panics
    ///
    /// If the worker can't be created.
    #[allow(clippy::new_without_default, reason = "a bench is costly")]
    pub fn new() -> Bench {
        let issued = Issued::new("Fuzz authority", &["localhost"]).expect("a writable folder");
        let clock = Clock::system();
        let tickets = TicketKeys::open(&TicketOptions::Random, clock.clone());
        let tickets = tickets.expect("no file").map(Arc::new);
        let listener = ListenerTls {
            certificates: vec![CertificateFiles {
                certificate: issued.files.certificate.clone(),
                key: issued.files.key.clone(),
            }],
            ..ListenerTls::default()
        };
        let protocols = [Protocol::Http1.alpn()];
        let options = crate::tls::Options::default();
        let mut loader = Loader::default();
        let shared = (tickets.as_ref(), &Arc::default());
        let server = Server::open(&options, &listener, &[], &protocols, shared, &mut loader);
        let (counters, requests) = (Arc::<Counters>::default(), Rc::<Cell<usize>>::default());
        let serving = Serving {
            handler: Rc::new(Reading(requests.clone())),
            options: Options::default(),
            routes: Rc::new(crate::telemetry::WorkerRoutes::new(0)),
            log: None,
            trust: Trust::default(),
            request_ids: None,
            traces: None,
            tls: Arc::from([Some(Arc::new(server.expect("a certificate")))]),
            protocols: Arc::from([Protocols::only(Protocol::Http1)]),
        };
        let context = WorkerContext {
            clock,
            counters: counters.clone(),
            balance: ConnectionBalance::new(1),
            index: 0,
            give_memory_back: || {},
            memory_freed: Rc::default(),
            sampler: crate::telemetry::Sampler::off(),
        };
        let runtime = LocalRuntime::new().expect("a runtime");
        let worker = runtime.block_on(async { Worker::new(context, serving) });
        let client = tls_config(&issued.authority.der());
        let mut client12 = ClientConfig::builder_with_provider(client.crypto_provider().clone())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("suites")
            .with_root_certificates(roots(&issued))
            .with_no_client_auth();
        client12.resumption = Resumption::in_memory_sessions(8);
        Bench {
            runtime,
            worker,
            counters,
            requests,
            client: Arc::new(client),
            client12: Arc::new(client12),
        }
    }

    /// Runs one connection.
    ///
    /// # Panics
    ///
    /// If more requests arrive than the client sent, if the connection holds too much memory, or if anything of it is
    /// left at the end.
    pub fn exercise(&self, input: &[u8]) {
        let Some((mode, steps)) = input.split_first() else {
            return;
        };
        self.requests.set(0);
        let sent = self.runtime.block_on(self.connection(*mode, steps));
        assert!(self.requests.get() <= sent, "a request that nobody sent");
        let left = |name: &str, value: u64| assert_eq!(value, 0, "{name}");
        left("memory", self.counters.tls_memory_now.get());
        left("handshakes", self.counters.tls_handshakes_now.get());
        left("panics", self.counters.panics.get());
    }

    /// Runs one connection, and returns the most requests that the server can have received.
    async fn connection(&self, mode: u8, mut steps: &[u8]) -> usize {
        let room = if mode & 2 == 0 { ROOM } else { LITTLE_ROOM };
        let (near, wire) = Transport::pair(room);
        self.worker.connect(near, peer(), &setup());
        let config = if mode & 1 == 0 {
            &self.client
        } else {
            &self.client12
        };
        let mut client = Client::new(wire, config, mode);
        while let [kind, length, rest @ ..] = steps {
            let (data, rest) = rest.split_at(rest.len().min(usize::from(*length)));
            steps = rest;
            client.step(*kind & !HELD, data);
            if *kind & HELD != 0 {
                continue;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
                client.exchange();
            }
            let memory = self.counters.tls_memory_now.get();
            assert!(memory <= MEMORY_MAX, "{memory} bytes");
        }
        let sent = client.requests_sent();
        drop(client);
        for _ in 0..1000 {
            if self.worker.connections() == 0 {
                return sent;
            }
            tokio::task::yield_now().await;
        }
        panic!("the connection outlives its client");
    }
}

fn roots(issued: &Issued) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(issued.authority.der().into()).expect("a root");
    roots
}

fn setup() -> Arc<ConnectionSetup> {
    Arc::new(ConnectionSetup {
        scheme: Scheme::Https,
        listener: 0,
        proxy: None,
        tls: true,
        half_close: false,
    })
}

fn peer() -> Peer {
    let address = ([127, 0, 0, 1], 1).into();
    Peer {
        client: std::net::Ipv4Addr::LOCALHOST.into(),
        address,
        local: address,
        scheme: Scheme::Https,
        tls: None,
        shared: false,
    }
}

/// A client that follows the rules as far as the steps let it.
struct Client {
    wire: Option<Transport>,
    session: ClientConnection,
    /// Ciphertext that is not on the wire yet.
    unsent: Vec<u8>,
    /// Whether the client reads.
    is_reading: bool,
    /// Whether the client's own TLS takes part. If not, the steps write all bytes.
    has_session: bool,
    /// Whether the client decrypts what it reads.
    is_decrypting: bool,
    /// Bytes that were given to TLS as plaintext.
    plain: Vec<u8>,
}

impl Client {
    fn new(wire: Transport, config: &Arc<ClientConfig>, mode: u8) -> Client {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config.clone(), name).expect("a session");
        let mut client = Client {
            wire: Some(wire),
            session,
            unsent: Vec::new(),
            is_reading: mode & 8 == 0,
            has_session: mode & 4 == 0,
            is_decrypting: mode & 4 == 0,
            plain: Vec::new(),
        };
        client.encrypt();
        client
    }

    /// Returns the most requests that the plaintext can contain: each has a version of HTTP.
    fn requests_sent(&self) -> usize {
        memchr::memmem::find_iter(&self.plain, b"HTTP/").count()
    }

    fn step(&mut self, kind: u8, data: &[u8]) {
        let first = usize::from(data.first().copied().unwrap_or_default());
        let second = usize::from(data.get(1).copied().unwrap_or_default());
        match kind % 10 {
            // Requests, or anything else as plaintext.
            0 | 1 => {
                self.plain.extend_from_slice(data);
                // After a failure, rustls takes no more plaintext.
                let _ = self.session.writer().write_all(data);
            }
            // Bytes that TLS did not make.
            2 => self.unsent.extend_from_slice(data),
            // A damaged byte, or a missing end.
            3 => {
                self.encrypt();
                let at = first << 8 | second;
                if let Some(byte) = self.unsent.get_mut(at) {
                    *byte ^= data.get(2).copied().unwrap_or(0x80);
                }
            }
            4 => {
                self.encrypt();
                let left = self.unsent.len().saturating_sub(first);
                self.unsent.truncate(left);
            }
            // The same bytes again.
            5 => {
                self.encrypt();
                self.unsent
                    .extend_from_within(..self.unsent.len().min(first << 4));
            }
            // A part of the waiting bytes, and then a pause.
            6 => {
                self.encrypt();
                self.put(first.max(1));
            }
            7 => {
                let _ = self.session.refresh_traffic_keys();
            }
            8 if second % 2 == 0 => {
                self.session.send_close_notify();
                // In debug builds, rustls panics at an invalid record after its own `close_notify`.
                self.is_decrypting = false;
            }
            8 => {
                if let Some(wire) = &mut self.wire {
                    wire.shutdown_write();
                }
            }
            _ if second % 4 == 3 => {
                if let Some(mut wire) = self.wire.take() {
                    wire.reset_on_drop();
                }
            }
            _ => self.is_reading = second % 2 == 0,
        }
    }

    /// Moves bytes in both directions.
    fn exchange(&mut self) {
        self.encrypt();
        self.put(usize::MAX);
        if !self.is_reading {
            return;
        }
        let (Some(wire), mut cx) = (&mut self.wire, Context::from_waker(Waker::noop())) else {
            return;
        };
        let mut buf = [0; 16 << 10];
        while let Poll::Ready(Ok(n @ 1..)) = wire.poll_read(&mut cx, &mut buf) {
            let mut bytes = &buf[..n];
            while self.is_decrypting && !bytes.is_empty() {
                if !matches!(self.session.read_tls(&mut bytes), Ok(1..))
                    || self.session.process_new_packets().is_err()
                {
                    break;
                }
                let _ = io::copy(&mut Taking(self.session.reader()), &mut io::sink());
            }
        }
    }

    /// Takes the ciphertext that TLS has made.
    fn encrypt(&mut self) {
        while self.has_session && self.session.wants_write() {
            if self.session.write_tls(&mut self.unsent).is_err() {
                return;
            }
        }
    }

    /// Puts at most this many of the waiting bytes onto the wire.
    fn put(&mut self, most: usize) {
        let Some(wire) = &mut self.wire else {
            return;
        };
        let mut cx = Context::from_waker(Waker::noop());
        let bytes = &self.unsent[..self.unsent.len().min(most)];
        if bytes.is_empty() {
            return;
        }
        if let Poll::Ready(Ok(n)) = wire.poll_write(&mut cx, &[IoSlice::new(bytes)], false) {
            self.unsent.drain(..n);
        }
    }
}

/// Reads plaintext until none is left.
struct Taking<'a>(rustls::Reader<'a>);

impl Read for Taking<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(buf).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a step of a program.
    fn step(kind: u8, data: &[u8]) -> Vec<u8> {
        let length = u8::try_from(data.len()).expect("a short step");
        [&[kind, length], data].concat()
    }

    // The fuzzer finds nothing if its client never completes a request.
    #[test]
    fn requests_reach_the_handler_over_both_versions_and_little_room() {
        const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let bench = Bench::new();
        for mode in 0..4 {
            let steps = [step(0, GET), step(7, b""), step(0, GET), step(9, b"\0\0")];
            bench.exercise(&[&[mode], &steps.concat()[..]].concat());
            assert!(bench.requests.get() > 0, "mode {mode}");
        }
        assert!(bench.counters.tls_handshakes.get() > 0 && bench.counters.tls_resumed.get() > 0);
    }

    #[test]
    fn a_record_that_is_damaged_or_repeated_ends_the_connection() {
        const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let bench = Bench::new();
        for mode in 0..2 {
            for damage in [step(3, b"\0\x0a\x01"), step(5, b"\xff")] {
                let steps = [step(9, b"\0\0"), step(HELD, GET), damage];
                bench.exercise(&[&[mode], &steps.concat()[..], &step(0, GET)].concat());
                assert!(bench.requests.get() <= 1, "mode {mode}");
            }
        }
    }

    // A run of the fuzzer found these steps: a damaged handshake, `close_notify`, and then the server's alert.
    #[test]
    fn an_alert_after_the_client_has_ended_its_direction_is_not_decrypted() {
        let bench = Bench::new();
        let steps = [
            step(4, b"\x04\x04\x04\x04"),
            step(36, b"\x04\x04\x04\x04S"),
            step(78, b""),
            step(47, b"\x01"),
        ];
        bench.exercise(&[&[0xb0], &steps.concat()[..]].concat());
        assert_eq!(bench.requests.get(), 0);
    }
}
