//! Thousands of slow clients on one thread. They connect, behave as their kind does, record when they are cut, and
//! reconnect.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use socket2::SockRef;

use super::kind::{Act, Kind};
use super::sockets;

/// Time within which all clients connect for the first time.
const ARRIVAL: Duration = Duration::from_secs(2);

/// Interval between two actions of a client, and between a cut and the next connection.
const SECOND: Duration = Duration::from_secs(1);

/// Receive buffer in bytes of a client that does not read.
const RECEIVE_BUFFER: usize = 4096;

/// Segment size in bytes, as on Ethernet. With the segments of loopback, the kernel accepts 2.6 MB from the server
/// for each client that does not read: 5 GB for 2,000 of them, more than the limit for TCP.
const SEGMENT: u32 = 1460;

/// Longest wait for events.
const TICK: Duration = Duration::from_millis(20);

/// Counters for the clients of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct KindCounters {
    /// For each connection that was cut, seconds from the first byte sent to the cut.
    pub(super) cut: Vec<f64>,
    /// Clients that were connected from the beginning to the end.
    pub(super) never: u64,
    /// Connections that could not be opened, or that ended before the client began a request.
    pub(super) refused: u64,
    /// Statuses received before the end of a connection, and their numbers.
    pub(super) statuses: BTreeMap<u16, u64>,
}

struct Client {
    kind: Kind,
    source: IpAddr,
    connection: Option<Connection>,
    /// Number of connections that have ended.
    lives: u64,
}

struct Connection {
    socket: OwnedFd,
    /// Time at which the first bytes were sent.
    began: Option<Instant>,
    /// Number of actions since the first bytes were sent.
    acts: usize,
    /// Whether the server's socket for this connection has been seen in the list of open sockets.
    held: bool,
}

/// A scheduled action of a client.
struct Due {
    at: Instant,
    client: usize,
    /// Number of the connection that this action is for. The action is skipped if the client has another connection
    /// by then.
    life: u64,
}

pub(super) struct Crowd {
    server: SocketAddr,
    epoll: OwnedFd,
    clients: Vec<Client>,
    /// First connections and all other actions, each ordered by time.
    arrivals: VecDeque<Due>,
    due: VecDeque<Due>,
    counters: [KindCounters; Kind::ALL.len()],
    checked_at: Instant,
    buffer: Vec<u8>,
}

impl Crowd {
    /// Returns a crowd with `each` clients of each kind.
    pub(super) fn new(server: SocketAddr, kinds: &[Kind], each: usize) -> anyhow::Result<Crowd> {
        let client = |kind: Kind, number| Client {
            kind,
            source: IpAddr::V4(kind.source(number)),
            connection: None,
            lives: 0,
        };
        let clients: Vec<Client> = (0..each)
            .flat_map(|number| kinds.iter().map(move |kind| client(*kind, number)))
            .collect();
        let now = Instant::now();
        let share = |place: usize| place as f64 / clients.len() as f64;
        let arrivals = (0..clients.len()).map(|client| Due {
            at: now + ARRIVAL.mul_f64(share(client)),
            client,
            life: 0,
        });
        Ok(Crowd {
            server,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?,
            arrivals: arrivals.collect(),
            clients,
            due: VecDeque::new(),
            counters: Default::default(),
            checked_at: now,
            buffer: vec![0; 4096],
        })
    }

    /// Runs the clients until `over` is set. Returns the counters of each kind.
    pub(super) fn run(
        mut self,
        over: &AtomicBool,
    ) -> anyhow::Result<[KindCounters; Kind::ALL.len()]> {
        let silent = self.clients.iter().any(|client| !client.kind.reads());
        let mut events = Vec::with_capacity(1024);
        while !over.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.act_all(now);
            if silent && now.saturating_duration_since(self.checked_at) > SECOND {
                self.checked_at = now;
                self.check_server_sockets(now)?;
            }
            let timeout = Timespec::try_from(self.wait(now)).context("timeout")?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for events"),
            }
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                self.event(data.u64() as usize, flags);
            }
        }
        for client in &self.clients {
            let began = client.connection.as_ref().and_then(|one| one.began);
            let counters = &mut self.counters[client.kind as usize];
            counters.never += u64::from(client.lives == 0 && began.is_some());
        }
        Ok(self.counters)
    }

    fn wait(&self, now: Instant) -> Duration {
        let next = [&self.arrivals, &self.due]
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|due| due.at.saturating_duration_since(now));
        next.min().unwrap_or(TICK).min(TICK)
    }

    /// Runs all actions that are due.
    fn act_all(&mut self, now: Instant) {
        let due = |queue: &mut VecDeque<Due>| queue.pop_front_if(|due| due.at <= now);
        while let Some(due) = due(&mut self.arrivals).or_else(|| due(&mut self.due)) {
            let client = &self.clients[due.client];
            if client.lives != due.life {
                continue;
            }
            match &client.connection {
                None => self.connect(due.client),
                Some(_) => self.act(due.client),
            }
        }
    }

    fn connect(&mut self, client: usize) {
        let Ok(socket) = self.connected(client) else {
            self.end(client);
            return;
        };
        self.clients[client].connection = Some(Connection {
            socket,
            began: None,
            acts: 0,
            held: false,
        });
    }

    fn connected(&self, client: usize) -> anyhow::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        let one = &self.clients[client];
        SockRef::from(&socket).set_tcp_mss(SEGMENT)?;
        if !one.kind.reads() {
            // The buffer must be set before connecting, because it determines the window that the client announces.
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        }
        net::bind(&socket, &SocketAddr::new(one.source, 0))?;
        match net::connect(&socket, &self.server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let data = epoll::EventData::new_u64(client as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::OUT)?;
        Ok(socket)
    }

    fn event(&mut self, client: usize, flags: epoll::EventFlags) {
        let one = &self.clients[client];
        let Some(connection) = &one.connection else {
            return;
        };
        let gone = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        if flags.intersects(gone) {
            self.note_status(client);
            self.end(client);
        } else if connection.began.is_none() {
            self.begin(client);
        } else if flags.contains(epoll::EventFlags::IN) {
            if self.note_status(client) {
                self.end(client);
            }
        } else if flags.contains(epoll::EventFlags::RDHUP) {
            self.end(client);
        }
    }

    /// Sends the first bytes of the connection.
    fn begin(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(connection) = &mut one.connection else {
            return;
        };
        let mut interest = epoll::EventFlags::RDHUP;
        if one.kind.reads() {
            interest |= epoll::EventFlags::IN;
        }
        let data = epoll::EventData::new_u64(client as u64);
        let first = one.kind.first();
        let sent = net::send(&connection.socket, &first, SendFlags::NOSIGNAL);
        let changed = epoll::modify(&self.epoll, &connection.socket, data, interest);
        if sent != Ok(first.len()) || changed.is_err() {
            self.end(client);
            return;
        }
        let now = Instant::now();
        connection.began = Some(now);
        self.due.push_back(Due {
            at: now + SECOND,
            client,
            life: one.lives,
        });
    }

    fn act(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(connection) = &mut one.connection else {
            return;
        };
        let act = one.kind.each_second(connection.acts);
        connection.acts += 1;
        let done = match &act {
            Act::Nothing => return,
            Act::Send(bytes) => net::send(&connection.socket, bytes, SendFlags::NOSIGNAL).map(drop),
            Act::Read(count) => {
                let buffer = &mut self.buffer[..*count];
                let read = net::recv(&connection.socket, buffer, RecvFlags::empty());
                match read {
                    Ok((_, 0)) => Err(Errno::CONNRESET),
                    other => other.map(drop),
                }
            }
        };
        match done {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => self.due.push_back(Due {
                at: Instant::now() + SECOND,
                client,
                life: one.lives,
            }),
            Err(_) => self.end(client),
        }
    }

    /// Reads a response and records its status. Returns whether the connection has ended.
    fn note_status(&mut self, client: usize) -> bool {
        let one = &self.clients[client];
        let Some(connection) = one.connection.as_ref().filter(|_| one.kind.reads()) else {
            return false;
        };
        match net::recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => true,
            Ok((_, count)) => {
                let text = &self.buffer[..count];
                let digits = text
                    .strip_prefix(b"HTTP/1.1 ")
                    .and_then(|rest| rest.get(..3));
                let status = digits
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| digits.parse().ok());
                if let Some(status) = status {
                    let counters = &mut self.counters[one.kind as usize];
                    *counters.statuses.entry(status).or_default() += 1;
                }
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Records the end or failure of a connection and schedules the next one.
    fn end(&mut self, client: usize) {
        let now = Instant::now();
        let one = &mut self.clients[client];
        let began = one.connection.take().and_then(|one| one.began);
        let counters = &mut self.counters[one.kind as usize];
        match began {
            Some(began) => counters.cut.push((now - began).as_secs_f64()),
            None => counters.refused += 1,
        }
        one.lives += 1;
        self.due.push_back(Due {
            at: now + SECOND,
            client,
            life: one.lives,
        });
    }

    /// Finds connections that the server has closed. A client that does not read is not notified, so the server's
    /// sockets are listed.
    fn check_server_sockets(&mut self, now: Instant) -> anyhow::Result<()> {
        let held = sockets::held_by(self.server).context("listing open sockets")?;
        let mut cut = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            let Some(connection) = &mut client.connection else {
                continue;
            };
            let old = connection.began.is_some_and(|began| now - began > SECOND);
            if client.kind.reads() || !old {
                continue;
            }
            let Ok(Some(local)) = net::getsockname(&connection.socket).map(sockets::address) else {
                continue;
            };
            let there = held.contains(&local);
            if connection.held && !there {
                cut.push(number);
            }
            connection.held |= there;
        }
        for client in cut {
            self.end(client);
        }
        Ok(())
    }
}
