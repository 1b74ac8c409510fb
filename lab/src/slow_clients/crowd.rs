//! Thousands of slow clients on one thread: they connect, are slow, notice when they are cut, and come again.

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

/// How long it takes until all have connected for the first time.
const ARRIVAL: Duration = Duration::from_secs(2);

/// The time between two acts of a client, and between a cut and its next connection.
const SECOND: Duration = Duration::from_secs(1);

/// Bytes that the kernel keeps for a client that does not read.
const RECEIVE_BUFFER: usize = 4096;

/// Bytes of a segment, as on Ethernet. Those of loopback are so long that a server hands the kernel 2.6 MB for each client
/// that does not read: 5 GB for 2,000 of them, more than TCP may have.
const SEGMENT: u32 = 1460;

/// Longest wait for events.
const TICK: Duration = Duration::from_millis(20);

/// What befell the clients of a kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    /// Seconds from the first byte sent until the client was cut.
    pub(super) cut: Vec<f64>,
    /// Clients that were there from the beginning to the end.
    pub(super) never: u64,
    /// Connections that did not come to be, or ended before anything was sent.
    pub(super) refused: u64,
    /// Statuses that came before the end, and how often.
    pub(super) statuses: BTreeMap<u16, u64>,
}

struct Client {
    kind: Kind,
    source: IpAddr,
    connection: Option<Connection>,
    /// Connections that have ended.
    lives: u64,
}

struct Connection {
    socket: OwnedFd,
    /// When the first bytes went out.
    began: Option<Instant>,
    /// Acts since then.
    acts: usize,
    /// Whether the server was seen to have it.
    held: bool,
}

/// Something that a client does at a time.
struct Due {
    at: Instant,
    client: usize,
    /// Of this connection; for another one it does not count.
    life: u64,
}

pub(super) struct Crowd {
    server: SocketAddr,
    epoll: OwnedFd,
    clients: Vec<Client>,
    /// First connections, and everything else; each in the order of time.
    arrivals: VecDeque<Due>,
    due: VecDeque<Due>,
    fates: [Fate; Kind::ALL.len()],
    looked: Instant,
    buffer: Vec<u8>,
}

impl Crowd {
    /// So many of each kind.
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
            fates: Default::default(),
            looked: now,
            buffer: vec![0; 4096],
        })
    }

    /// Goes on until all is over; what befell whom.
    pub(super) fn run(mut self, over: &AtomicBool) -> anyhow::Result<[Fate; Kind::ALL.len()]> {
        let deaf = self.clients.iter().any(|client| !client.kind.listens());
        let mut events = Vec::with_capacity(1024);
        while !over.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.act_all(now);
            if deaf && now.saturating_duration_since(self.looked) > SECOND {
                self.looked = now;
                self.look(now)?;
            }
            let timeout = Timespec::try_from(self.wait(now)).context("a short time")?;
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
            let fate = &mut self.fates[client.kind as usize];
            fate.never += u64::from(client.lives == 0 && began.is_some());
        }
        Ok(self.fates)
    }

    fn wait(&self, now: Instant) -> Duration {
        let next = [&self.arrivals, &self.due]
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|due| due.at.saturating_duration_since(now));
        next.min().unwrap_or(TICK).min(TICK)
    }

    /// Has everybody do what is due.
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
        if !one.kind.listens() {
            // Before it connects: it is part of what the server is told then.
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

    /// Sends what comes first.
    fn begin(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(connection) = &mut one.connection else {
            return;
        };
        let mut interest = epoll::EventFlags::RDHUP;
        if one.kind.listens() {
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

    /// Reads what the server says before it ends; true at the end.
    fn note_status(&mut self, client: usize) -> bool {
        let one = &self.clients[client];
        let Some(connection) = one.connection.as_ref().filter(|_| one.kind.listens()) else {
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
                    let fate = &mut self.fates[one.kind as usize];
                    *fate.statuses.entry(status).or_default() += 1;
                }
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// The connection has ended, or did not come to be. The client comes again.
    fn end(&mut self, client: usize) {
        let now = Instant::now();
        let one = &mut self.clients[client];
        let began = one.connection.take().and_then(|one| one.began);
        let fate = &mut self.fates[one.kind as usize];
        match began {
            Some(began) => fate.cut.push((now - began).as_secs_f64()),
            None => fate.refused += 1,
        }
        one.lives += 1;
        self.due.push_back(Due {
            at: now + SECOND,
            client,
            life: one.lives,
        });
    }

    /// Who does not read can't be told that the server has closed the connection: the server's end tells.
    fn look(&mut self, now: Instant) -> anyhow::Result<()> {
        let held = sockets::held_by(self.server).context("asking for open sockets")?;
        let mut cut = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            let Some(connection) = &mut client.connection else {
                continue;
            };
            let old = connection.began.is_some_and(|began| now - began > SECOND);
            if client.kind.listens() || !old {
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
