//! Tests over loopback: accepting, handing over, the limit of connections, and the accept queue at
//! shutdown.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::super::ConnectionSetup;
use super::super::connection_balance::HandedOver;
use super::super::deadlines::NEVER;
use super::super::proxy_protocol::{ProxyProtocol, Versions};
use super::*;
use crate::http::Network;
use crate::http2::PREFACE;
use crate::sys::Address;
use crate::sys::listen_options::ListenOptions;
use crate::sys::listener::Listener;

fn bind(address: SocketAddr) -> Listener {
    let options = ListenOptions {
        defer_accept: false,
        ..ListenOptions::default()
    };
    let bound = Listener::bind(&address.into(), &options, 1).expect("bind");
    bound.sockets.into_iter().next().expect("one socket")
}

fn bound(listener: &Listener) -> SocketAddr {
    match listener.local() {
        Address::Ip(address) => address,
        Address::Unix => unreachable!("bound to an IP address"),
    }
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn context(balance: &Arc<ConnectionBalance>, index: usize) -> WorkerContext {
    WorkerContext {
        clock: Clock::system(),
        counters: Arc::new(Counters::default()),
        balance: balance.clone(),
        index,
        give_memory_back: || {},
        memory_freed: Rc::default(),
        sampler: crate::telemetry::Sampler::off(),
    }
}

/// Sends one request on a connection that stays open, and returns the response.
fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(GET.as_bytes()).expect("write");
    let mut got = Vec::new();
    let mut buf = [0; 1024];
    while !got.ends_with(b";") {
        let n = stream.read(&mut buf).expect("an answer");
        assert!(n > 0, "closed after {:?}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&buf[..n]);
    }
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn few_connections_are_balanced_over_the_workers() {
    let balance = ConnectionBalance::new(2);
    let (ready, address) = mpsc::channel();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let worker = |index: usize, listener: Option<Listener>| {
        let (balance, ready, mut stopped) = (balance.clone(), ready.clone(), stopped.clone());
        std::thread::spawn(move || {
            on_worker(async move {
                let name = ["zero;", "one;"][index];
                let options = serving(Options::default(), move |_| ok(name));
                let worker = Worker::new(context(&balance, index), options);
                if let Some(listener) = listener {
                    let listening = worker.clone();
                    tokio::task::spawn_local(async move {
                        listening.listen(listener, ConnectionSetup::plain()).await;
                    });
                }
                ready.send(()).expect("the test waits");
                stopped.wait_for(|stop| *stop).await.expect("told");
                worker.drain(Duration::from_secs(5)).await;
            });
        })
    };
    // Only one worker has a listener. The kernel may distribute connections just as unevenly.
    let listener = bind(any());
    let target = bound(&listener);
    let threads = [worker(0, Some(listener)), worker(1, None)];
    address.recv().expect("a worker");
    address.recv().expect("a worker");
    let mut streams: Vec<TcpStream> = Vec::new();
    for (connections, busier_max) in [(10, 6), (64, 41)] {
        while streams.len() < connections {
            streams.push(TcpStream::connect(target).expect("connect"));
            ask(streams.last_mut().expect("just pushed"));
        }
        let zero = streams
            .iter_mut()
            .filter_map(|s| ask(s).ends_with("zero;").then_some(()))
            .count();
        let busier = zero.max(connections - zero);
        assert!(busier <= busier_max, "{busier} of {connections}");
        assert_eq!(balance.open(), connections);
    }
    drop(streams);
    stop.send(true).expect("workers wait");
    for thread in threads {
        thread.join().expect("a worker's end");
    }
    assert_eq!(balance.open(), 0);
}

#[test]
fn a_drain_waits_for_handed_over_connections_and_gets_no_further_ones() {
    on_worker(async {
        let balance = ConnectionBalance::new(2);
        let worker = |index: usize, text: &'static str| {
            let options = serving(Options::default(), move |_| ok(text));
            Worker::new(context(&balance, index), options)
        };
        let (zero, one) = (worker(0, "zero;"), worker(1, "one;"));
        let listener = bind(any());
        let target = bound(&listener);
        let mut streams: Vec<_> = (0..4)
            .map(|_| TcpStream::connect(target).expect("connect"))
            .collect();
        for stream in &mut streams {
            stream.write_all(GET.as_bytes()).expect("write");
        }
        let listening = zero.clone();
        tokio::task::spawn_local(async move {
            listening.listen(listener, ConnectionSetup::plain()).await
        });
        // The other worker begins to drain while connections wait in its inbox, which it has to
        // serve before it ends.
        while zero.counters.connections_handed_over.get() == 0 {
            tokio::task::yield_now().await;
        }
        one.drain(Duration::from_secs(5)).await;
        let before = zero.counters.connections_handed_over.get();
        let mut late = TcpStream::connect(target).expect("connect");
        late.write_all(GET.as_bytes()).expect("write");
        while zero.counters.connections_accepted.get() + before < 5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(zero.counters.connections_handed_over.get(), before);
        zero.drain(Duration::from_secs(5)).await;
        streams.push(late);
        for mut stream in streams {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert!(
                answer.ends_with("zero;") || answer.ends_with("one;"),
                "{answer}"
            );
        }
    });
}

#[test]
fn a_drain_includes_connections_in_the_inbox() {
    on_worker(async {
        let balance = ConnectionBalance::new(2);
        let worker = Worker::new(
            context(&balance, 1),
            serving(Options::default(), |_| ok("x;")),
        );
        let listener = bind(any());
        let mut stream = TcpStream::connect(bound(&listener)).expect("connect");
        stream.write_all(GET.as_bytes()).expect("write");
        let mut listener = listener;
        let accepted = poll_fn(|cx| match listener.accept(cx) {
            Ok(Some(accepted)) => Poll::Ready(accepted),
            _ => listener
                .poll_readable(cx)
                .map(|_| unreachable!("it waits in the queue")),
        });
        let accepted = accepted.await;
        balance.opened(0);
        let setup = ConnectionSetup::plain();
        let handed = balance.hand_over(0, HandedOver { accepted, setup });
        assert!(handed.is_ok(), "the other has none");
        worker.drain(Duration::from_secs(5)).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("x;"), "{answer}");
    });
}

#[test]
fn the_limit_of_connections_holds_and_idle_ones_make_room() {
    on_worker(async {
        let balance = ConnectionBalance::new(1);
        let options = Options {
            connections: 4,
            ..Options::default()
        };
        let worker = Worker::new(context(&balance, 0), serving(options, |_| ok("x;")));
        let listener = bind(any());
        let target = bound(&listener);
        let listening = worker.clone();
        tokio::task::spawn_local(async move {
            listening.listen(listener, ConnectionSetup::plain()).await
        });
        tokio::task::spawn_blocking(move || {
            let mut streams = Vec::new();
            for _ in 0..12 {
                let mut stream = TcpStream::connect(target).expect("connect");
                ask(&mut stream);
                streams.push(stream);
            }
        })
        .await
        .expect("all were answered");
        assert!(worker.counters.connections_refused.get() >= 8);
        worker.drain(Duration::from_secs(5)).await;
    });
}

/// A new connection to a worker, over a socket.
struct Fresh {
    worker: Rc<Worker>,
    stream: TcpStream,
}

impl Fresh {
    /// Connects to a listener of this setup, sends `bytes`, and waits until the worker has received them and waits for
    /// more.
    async fn new(setup: ConnectionSetup, bytes: &[u8]) -> Fresh {
        let mut serving = serving(Options::default(), |_| ok("x;"));
        serving.protocols = Arc::from([
            Protocols::CLEAR,
            Protocols::only(Protocol::Http2),
            Protocols::TLS,
        ]);
        let worker = Worker::new(context(&ConnectionBalance::new(1), 0), serving);
        let listener = bind(any());
        let mut stream = TcpStream::connect(bound(&listener)).expect("connect");
        let listening = worker.clone();
        let setup = Arc::new(setup);
        tokio::task::spawn_local(async move { listening.listen(listener, setup).await });
        stream.write_all(bytes).expect("write");
        let received = || worker.counters.client_bytes_in.get();
        while received() < bytes.len() as u64 || worker.deadlines.earliest() == NEVER {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Fresh { worker, stream }
    }

    /// Sends `bytes`, and closes the connection as an idle one before the runtime has seen them. Returns what comes back,
    /// up to `end` or the end of the connection.
    async fn send_while_it_is_closed(mut self, bytes: &[u8], end: &'static str) -> String {
        self.stream.write_all(bytes).expect("write");
        assert_eq!(self.worker.deadlines.expire_idle(1), 1);
        let mut stream = self.stream;
        let answer = tokio::task::spawn_blocking(move || {
            let mut answer = String::new();
            let mut buf = [0; 1024];
            while !answer.contains(end)
                && let Ok(n @ 1..) = stream.read(&mut buf)
            {
                answer.push_str(&String::from_utf8_lossy(&buf[..n]));
            }
            answer
        });
        answer.await.expect("an answer")
    }
}

#[test]
fn a_long_proxy_header_may_arrive_in_pieces() {
    on_worker(async {
        let setup = ConnectionSetup {
            proxy: Some(ProxyProtocol {
                trusted: vec![Network {
                    address: any().ip(),
                    bits: 32,
                }],
                versions: Versions::Any,
            }),
            ..(*ConnectionSetup::plain()).clone()
        };
        let bench = Bench::new(|_| ok("x;"));
        let mut client = bench.client_of(1 << 20, &Arc::new(setup));
        // The header of version 2 for a connection of the balancer's own, with one TLV of 3,997 bytes.
        let start = b"\r\n\r\n\0\r\nQUIT\n\x20\0\x0f\xa0\xea\x0f\x9d";
        let header = [&start[..], &[7; 3997]].concat();
        for piece in header.chunks(300) {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        client.send(GET).await;
        client.until("x;").await;
    });
}

#[test]
fn a_connection_that_must_make_room_answers_what_has_arrived() {
    let plain = || (*ConnectionSetup::plain()).clone();
    let (http2, either) = (1, 2);
    let hello = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    // The fields of `GET / HTTP/1.1` with `Host: a`.
    let request = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
    let with_proxy = ConnectionSetup {
        proxy: Some(ProxyProtocol {
            trusted: vec![Network {
                address: any().ip(),
                bits: 32,
            }],
            versions: Versions::Any,
        }),
        ..plain()
    };
    let encrypted = ConnectionSetup {
        tls: true,
        ..plain()
    };
    let of = |listener| ConnectionSetup {
        listener,
        ..plain()
    };
    let introduced = format!("PROXY UNKNOWN\r\n{GET}");
    for (setup, before, bytes, end) in [
        (plain(), &b""[..], GET.as_bytes(), "x;"),
        (of(either), b"", GET.as_bytes(), "x;"),
        (of(http2), &hello, request, "x;"),
        (with_proxy, b"", introduced.as_bytes(), "x;"),
        (encrypted, b"", GET.as_bytes(), "not-tls"),
    ] {
        let answer = on_worker(async {
            let fresh = Fresh::new(setup.clone(), before).await;
            fresh.send_while_it_is_closed(bytes, end).await
        });
        assert!(answer.contains(end), "{setup:?}: {answer:?}");
    }
}

#[test]
fn connections_in_the_accept_queue_are_served_before_the_listener_ends() {
    on_worker(async {
        let balance = ConnectionBalance::new(1);
        let worker = Worker::new(
            context(&balance, 0),
            serving(Options::default(), |_| ok("x;")),
        );
        let listener = bind(any());
        let mut waiting: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(bound(&listener)).expect("connect"))
            .collect();
        for stream in &mut waiting {
            stream.write_all(GET.as_bytes()).expect("write");
        }
        let listening = worker.clone();
        let accepting = tokio::task::spawn_local(async move {
            listening.listen(listener, ConnectionSetup::plain()).await
        });
        worker.drain(Duration::from_secs(5)).await;
        accepting.await.expect("the listener's end");
        for mut stream in waiting {
            let mut answer = String::new();
            stream
                .read_to_string(&mut answer)
                .expect("an answer and an end");
            assert!(
                answer.contains("connection: close\r\n") && answer.ends_with("x;"),
                "{answer}"
            );
        }
    });
}
