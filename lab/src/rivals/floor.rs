//! The floor server: a bare epoll loop on one thread that answers every request head with the same prepared bytes.
//! Its CPU time is the cost of the sockets alone, a lower bound for every server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use serde::{Deserialize, Serialize};

use crate::offset;
use crate::process::pin_to_core;

/// Options of a floor server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FloorOptions {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Length in bytes of the body of each response (see `crate::offset` for its content).
    pub body: u64,
    /// Headers of each response in addition to Content-Length.
    pub headers: Vec<(String, String)>,
    /// Whether the server closes the connection after each response, with `Connection: close`.
    pub close: bool,
    /// SO_SNDBUF of its connections; `None`: the kernel adjusts it.
    pub send_buffer: Option<usize>,
    /// Core to which the thread is pinned.
    pub core: Option<usize>,
}

impl FloorOptions {
    /// Returns a floor server with a body of `body` bytes and a lifetime of one hour.
    pub fn new(body: u64) -> FloorOptions {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        FloorOptions {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            body,
            headers: vec![
                field("Content-Type", "application/octet-stream"),
                field("Cache-Control", "max-age=3600"),
                field("ETag", "\"floor\""),
            ],
            close: false,
            send_buffer: Some(SEND_BUFFER),
            core: None,
        }
    }
}

/// Send buffer in bytes. A large response takes half the CPU time if its unread bytes fit into the CPU cache: 150 µs
/// instead of 280 µs for 1 MiB on 16 connections. A buffer that the kernel enlarges to megabytes, or
/// TCP_NOTSENT_LOWAT, does not have this effect.
const SEND_BUFFER: usize = 128 << 10;

/// A running floor server. Dropping this value ends the server.
#[derive(Debug)]
pub struct Floor {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// Interval at which the thread checks whether it should end.
const TICK: Duration = Duration::from_millis(100);

const LISTENER: u64 = u64::MAX;

impl Floor {
    /// Starts a floor server on its own thread.
    pub fn start(options: FloorOptions) -> anyhow::Result<Floor> {
        let listener = TcpListener::bind(options.address)
            .with_context(|| format!("the floor server can't listen on {}", options.address))?;
        // The standard library's backlog is too short for a thousand connections at once.
        net::listen(&listener, 4096)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let mut server = Server::new(listener, &options)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let answered = server.answered.clone();
        let thread = std::thread::Builder::new()
            .name("floor".to_owned())
            .spawn(move || {
                let pinned = options.core.map_or(Ok(()), pin_to_core);
                if let Err(error) = pinned.and_then(|()| server.run(&stopping)) {
                    eprintln!("the floor server ended: {error:#}");
                }
            })?;
        Ok(Floor {
            address,
            stop,
            answered,
            thread: Some(thread),
        })
    }

    /// Returns the number of responses sent.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, its message has already been printed.
            let _ = thread.join();
        }
    }
}

struct Connection {
    socket: OwnedFd,
    /// Number of bytes received so far of the empty line that ends a request head.
    matched: usize,
    /// Number of responses to send, including the one in progress.
    pending: u32,
    written: usize,
    writing: bool,
}

struct Server {
    epoll: OwnedFd,
    listener: TcpListener,
    response: Vec<u8>,
    close: bool,
    send_buffer: Option<usize>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    answered: Arc<AtomicU64>,
}

impl Server {
    fn new(listener: TcpListener, options: &FloorOptions) -> anyhow::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        let mut response = "HTTP/1.1 200 OK\r\n".to_owned();
        for (name, value) in &options.headers {
            response.push_str(&format!("{name}: {value}\r\n"));
        }
        if options.close {
            response.push_str("Connection: close\r\n");
        }
        response.push_str(&format!("Content-Length: {}\r\n\r\n", options.body));
        let mut response = response.into_bytes();
        let body = usize::try_from(options.body).context("length of the body")?;
        response.extend_from_slice(&offset::offset_bytes(0, body));
        Ok(Server {
            epoll,
            listener,
            response,
            close: options.close,
            send_buffer: options.send_buffer,
            connections: Vec::new(),
            free: Vec::new(),
            answered: Arc::default(),
        })
    }

    fn run(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(1024);
        let mut buffer = vec![0; 64 << 10];
        let tick = Timespec::try_from(TICK)?;
        while !stop.load(Ordering::Relaxed) {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    LISTENER => self.accept(),
                    index => self.serve(index as usize, flags, &mut buffer),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(socket) = net::accept_with(&self.listener, flags) {
            // If the kernel refuses these options, the floor's CPU time is slightly higher.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            if let Some(size) = self.send_buffer {
                let _ = sockopt::set_socket_send_buffer_size(&socket, size);
            }
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let data = epoll::EventData::new_u64(index as u64);
            if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
                self.free.push(index);
                continue;
            }
            self.connections[index] = Some(Connection {
                socket,
                matched: 0,
                pending: 0,
                written: 0,
                writing: false,
            });
        }
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags, buffer: &mut [u8]) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let mut alive = true;
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            alive = connection.read(buffer);
        }
        let pending = connection.pending;
        alive = alive && connection.write(&self.response);
        let answered = pending > 0 && connection.pending == 0;
        let gave = pending.saturating_sub(connection.pending);
        self.answered.fetch_add(u64::from(gave), Ordering::Relaxed);
        if !alive || (answered && self.close) {
            self.connections[index] = None;
            self.free.push(index);
            return;
        }
        let blocked = connection.pending > 0;
        if blocked != connection.writing {
            connection.writing = blocked;
            let interest = match blocked {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(index as u64);
            // This call fails only for a closed socket, whose next event reports the end of the connection.
            let _ = epoll::modify(&self.epoll, &connection.socket, data, interest);
        }
    }
}

impl Connection {
    /// Counts the empty lines in the received bytes. Returns false at the end of the connection.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        match net::recv(self.socket.as_fd(), &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => false,
            Ok((_, count)) => {
                self.count_heads(&buffer[..count]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    fn count_heads(&mut self, bytes: &[u8]) {
        const END: &[u8] = b"\r\n\r\n";
        // Nearly always the bytes are exactly one request, so checking their end is enough.
        if self.matched == 0 && bytes.ends_with(END) && bytes.len() < 1024 {
            let earlier = bytes[..bytes.len() - 1].windows(4).any(|four| four == END);
            if !earlier {
                self.pending = self.pending.saturating_add(1);
                return;
            }
        }
        for byte in bytes {
            self.matched = match *byte == END[self.matched] {
                true => self.matched + 1,
                false => usize::from(*byte == END[0]),
            };
            if self.matched == END.len() {
                self.matched = 0;
                self.pending = self.pending.saturating_add(1);
            }
        }
    }

    /// Writes pending responses as far as the socket accepts them. Returns false at the end of the connection.
    fn write(&mut self, response: &[u8]) -> bool {
        while self.pending > 0 {
            match net::send(&self.socket, &response[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            if self.written == response.len() {
                self.written = 0;
                self.pending -= 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[test]
    fn each_request_head_is_answered_even_if_split_or_pipelined() {
        let floor = Floor::start(FloorOptions::new(100_000)).expect("a free port");
        let mut client = Client::connect(floor.addr()).expect("connect");
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send_raw(&request[..20]).expect("sent");
        client.send_raw(&request[20..]).expect("sent");
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(100_000).expect("an offset body");
        client.send_raw(&request.repeat(3)).expect("sent");
        for _ in 0..3 {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(100_000).expect("an offset body");
        }
        assert_eq!(floor.answered(), 4);
    }
}
