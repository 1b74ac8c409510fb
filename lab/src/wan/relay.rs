//! The fallback for machines without the permissions for the emulator: a TCP relay that delays bytes.
//!
//! The relay emulates delay, jitter, rate and queue of a link for connections that go through it. No bytes are lost, and
//! the kernel's TCP sees only the loopback device, so neither retransmissions nor congestion control happen.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::direction_seeds;
use super::link::{Fate, Link, LinkSettings, transmission};
use super::namespace::MTU;
use super::profile::Profile;

/// Maximum number of connections at a time. Further ones are closed at once.
const CONNECTIONS_MAX: usize = 256;

/// Maximum number of bytes that are delayed as one piece.
const PIECE: usize = 4096;

/// Maximum number of pieces on their way in one direction of a connection.
const PIECES_MAX: usize = 1024;

/// Maximum number of bytes on their way in one direction of a connection, whatever the profile says.
const BYTES_MAX: usize = PIECES_MAX * PIECE;

/// Longest wait for a connection to the target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A running relay. Dropping the value closes its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay on a loopback address that connects to `target`. Loss is ignored.
    pub fn start(profile: &Profile, target: SocketAddr, seed: u64) -> anyhow::Result<Relay> {
        profile.check()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let [up_seed, down_seed] = direction_seeds(seed);
        let shared = Arc::new(Shared {
            target,
            round_trip: profile.delay,
            began: Instant::now(),
            up: Lane::new(profile.up_link(), up_seed),
            down: Lane::new(profile.down_link(), down_seed),
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = shared.clone();
        let thread = thread::Builder::new()
            .name("wan-relay".to_owned())
            .spawn(move || accept(&listener, &accepting))?;
        Ok(Relay {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the address that clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // A connection wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, its message has already been printed.
            let _ = thread.join();
        }
        for sockets in self.shared.open.lock().values() {
            close(sockets);
        }
    }
}

/// State shared by all connections of a relay.
#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    round_trip: Duration,
    began: Instant,
    up: Lane,
    down: Lane,
    stopping: AtomicBool,
    /// The sockets of open connections, which are closed when the relay is dropped.
    open: Mutex<HashMap<u64, Vec<TcpStream>>>,
}

/// One direction of all connections together.
#[derive(Debug)]
struct Lane {
    link: Mutex<Link>,
    /// Time for which the bottleneck may be busy before senders have to wait.
    queue: Duration,
    /// Maximum number of bytes of one connection on their way: those in the queue and those on the line.
    room: usize,
}

impl Lane {
    fn new(settings: LinkSettings, seed: u64) -> Lane {
        let queue = settings.rate.map_or(Duration::MAX, |rate| {
            transmission(MTU * settings.queue as usize, rate)
        });
        let room = room(&settings);
        // A relay can't drop bytes, so its model neither loses nor drops anything.
        let settings = LinkSettings {
            loss: 0.0,
            queue: u32::MAX,
            ..settings
        };
        Lane {
            link: Mutex::new(Link::new(settings, seed)),
            queue,
            room,
        }
    }

    /// Accepts a piece, and returns the time at which it arrives; or returns the time to wait before trying again.
    fn send(&self, now: Duration, bytes: usize) -> Result<Duration, Duration> {
        let mut link = self.link.lock();
        let backlog = link.backlog(now);
        if backlog > self.queue {
            return Err(backlog - self.queue);
        }
        match link.send(now, bytes) {
            Fate::Arrives(at) => Ok(at),
            // The settings exclude this.
            Fate::Lost | Fate::QueueFull => Ok(now),
        }
    }
}

/// Returns the number of bytes that fit into the queue and onto the line of a link, and into the piece in transmission.
fn room(settings: &LinkSettings) -> usize {
    let Some(rate) = settings.rate else {
        return BYTES_MAX;
    };
    let on_the_line = (settings.delay + settings.jitter).as_secs_f64() * rate as f64 / 8.0;
    let queue = MTU * settings.queue as usize;
    (queue + on_the_line as usize + PIECE).min(BYTES_MAX)
}

/// The bytes on their way in one direction of a connection, and their limit. A receiver that does not read thus stops
/// the sender, as a full queue does.
#[derive(Debug)]
struct Room {
    /// Number of bytes; `None` after the receiver has gone.
    taken: Mutex<Option<usize>>,
    freed: Condvar,
    limit: usize,
}

impl Room {
    fn new(limit: usize) -> Room {
        Room {
            taken: Mutex::new(Some(0)),
            freed: Condvar::new(),
            limit,
        }
    }

    /// Waits until there is room for these bytes, and takes it. Returns false if the receiver has gone.
    fn take(&self, bytes: usize) -> bool {
        let mut taken = self.taken.lock();
        loop {
            match *taken {
                None => return false,
                Some(before) if before + bytes <= self.limit => {
                    *taken = Some(before + bytes);
                    return true;
                }
                Some(_) => self.freed.wait(&mut taken),
            }
        }
    }

    fn free(&self, bytes: usize) {
        let mut taken = self.taken.lock();
        *taken = taken.map(|before| before - bytes);
        self.freed.notify_all();
    }

    fn close(&self) {
        *self.taken.lock() = None;
        self.freed.notify_all();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut number = 0;
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let client = match accepted {
            Ok((client, _)) => client,
            // For example, no descriptor is free.
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if shared.open.lock().len() >= CONNECTIONS_MAX {
            continue;
        }
        let Ok(sockets) = client.try_clone() else {
            continue;
        };
        number += 1;
        shared.open.lock().insert(number, vec![sockets]);
        let (relay, own) = (shared.clone(), number);
        let started = thread::Builder::new()
            .name("wan-connection".to_owned())
            .spawn(move || {
                // An error ends only this connection, as a failing network would.
                let _ = connect(&relay, own, client);
                let sockets = relay.open.lock().remove(&own);
                close(&sockets.unwrap_or_default());
            });
        if started.is_err() {
            shared.open.lock().remove(&number);
        }
    }
}

fn close(sockets: &[TcpStream]) {
    for socket in sockets {
        // The other side may have closed the connection already.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Connects to the target and moves bytes in both directions until both have ended. The connection starts one round
/// trip late, since the kernel accepted it without the handshake over the emulated link.
fn connect(shared: &Shared, number: u64, client: TcpStream) -> io::Result<()> {
    thread::sleep(shared.round_trip);
    let server = TcpStream::connect_timeout(&shared.target, CONNECT_TIMEOUT)?;
    if let Some(sockets) = shared.open.lock().get_mut(&number) {
        sockets.push(server.try_clone()?);
    }
    if shared.stopping.load(Ordering::SeqCst) {
        return Ok(());
    }
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let began = shared.began;
    thread::scope(|scope| {
        for (from, to, lane) in [
            (&client, &server, &shared.up),
            (&server, &client, &shared.down),
        ] {
            let (sender, receiver) = sync_channel(PIECES_MAX);
            let room = Arc::new(Room::new(lane.room));
            let delivering = room.clone();
            scope.spawn(move || receive(from, lane, &room, began, &sender));
            scope.spawn(move || {
                deliver(to, &delivering, began, &receiver);
                delivering.close();
            });
        }
    });
    Ok(())
}

/// Bytes and the time of their arrival; no bytes: the end of the direction.
type Piece = (Duration, Vec<u8>);

/// Reads pieces until the connection ends, and schedules them. Reads nothing while there is no room.
fn receive(
    mut from: &TcpStream,
    lane: &Lane,
    room: &Room,
    began: Instant,
    pieces: &SyncSender<Piece>,
) {
    let mut buffer = [0; PIECE];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A reset becomes an ordinary end.
            Err(_) => 0,
        };
        if !room.take(length) {
            return;
        }
        let due = loop {
            match lane.send(began.elapsed(), length) {
                Ok(due) => break due,
                Err(wait) => thread::sleep(wait),
            }
        };
        let sent = pieces.send((due, buffer[..length].to_vec()));
        if length == 0 || sent.is_err() {
            return;
        }
    }
}

/// Writes pieces when they are due.
fn deliver(mut to: &TcpStream, room: &Room, began: Instant, pieces: &Receiver<Piece>) {
    for (due, piece) in pieces {
        thread::sleep(due.saturating_sub(began.elapsed()));
        let written = match piece.is_empty() {
            true => to.shutdown(Shutdown::Write),
            false => to.write_all(&piece),
        };
        if written.is_err() {
            // The sender must not wait for a receiver that is gone.
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
        room.free(piece.len());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::noise;
    use crate::wan::Profile;

    #[test]
    fn a_receiver_that_does_not_read_stops_the_sender_once_the_queue_is_full() {
        let profile: Profile = "delay=10ms,rate=80Mbit,queue=100"
            .parse()
            .expect("a profile");
        let lane = Lane::new(profile.up_link(), 1);
        // 100 packets, 5 ms at 10 MB/s, and a piece.
        assert_eq!(lane.room, 100 * MTU + 50_000 + PIECE);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("a connection");
        let (accepted, _) = listener.accept().expect("a connection");
        let mut sent = vec![0; 3_000_000];
        noise::fill(1, 0, 0, &mut sent);
        let (began, room) = (Instant::now(), Room::new(lane.room));
        let (sender, receiver) = sync_channel(PIECES_MAX);
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                client
                    .write_all(&sent)
                    .and_then(|()| client.shutdown(Shutdown::Write))
            });
            scope.spawn(|| receive(&accepted, &lane, &room, began, &sender));
            // Notifying succeeds only if the sender waits; the sender then finds no room, and waits again.
            let deadline = Instant::now() + Duration::from_secs(60);
            while !room.freed.notify_one() {
                assert!(Instant::now() < deadline, "the sender is not stopped");
                thread::yield_now();
            }
            let mut received = Vec::new();
            for (_, piece) in &receiver {
                if piece.is_empty() {
                    break;
                }
                assert!(*room.taken.lock() <= Some(lane.room));
                received.extend_from_slice(&piece);
                room.free(piece.len());
            }
            received
        });
        assert!(received == sent);
    }

    #[test]
    fn a_sender_ends_when_its_receiver_has_gone() {
        let room = Room::new(10);
        assert!(room.take(10));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| room.take(1));
            while !room.freed.notify_one() {
                thread::yield_now();
            }
            room.close();
            assert!(!waiting.join().expect("no panic"));
        });
        assert_eq!(room.limit, 10);
    }

    #[test]
    fn links_without_a_rate_have_a_limit_too() {
        assert_eq!(room(&Profile::default().up_link()), BYTES_MAX);
        let fast: Profile = "delay=10s,rate=10Gbit".parse().expect("a profile");
        assert_eq!(room(&fast.up_link()), BYTES_MAX);
    }
}
