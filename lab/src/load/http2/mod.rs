//! The connections of a load over HTTP/2 (RFC 9113), each of which has several requests at a time as streams.
//!
//! The event loop is the same as for HTTP/1.1, so latency counts from the same times. The protocol is written for the
//! load generator, which sends only GET requests and counts content without keeping it: a general client with a task for
//! each stream would take more CPU time than the servers that it measures, and its timers are too coarse for an open
//! loop. Several frames to one connection are sent in one write.
//!
//! In a closed loop, a request that the server's limit of concurrent streams delays counts from the time at which it is
//! sent. In an open loop, it counts from its scheduled time as always.

mod encoder;
mod endpoint;
mod frames;
mod hpack;
mod huffman;
mod link;

use std::collections::VecDeque;
use std::time::Instant;

use rustix::event::epoll;
use rustix::io::Errno;

use super::LoadPlan;
use super::engine::{Connections, Load};
use super::free::REST;
use super::response::Failure;
use super::schedule::Turn;
use super::slot::READS_MAX;
use super::socket::Sources;
use super::state::{Due, Good};
use super::targets::Chosen;
use super::tls::{Protocol, Secrets};
use encoder::Fields;
use endpoint::{End, Endpoint};
use link::Link;

/// Number of times that a request is sent, if servers refuse it without processing it.
const TRIES_MAX: u8 = 4;

/// The connections. Place `p` is on connection `p` modulo the number of connections.
pub(super) struct Http2 {
    connections: Vec<Connection>,
    places: Vec<Place>,
    /// Connections that may have something to send or to open.
    changed: Vec<usize>,
    /// An empty list that keeps its memory.
    spare: Vec<usize>,
    ended: Vec<(usize, End)>,
    fields: Fields,
    sources: Sources,
    secrets: Option<Secrets>,
    is_kept: bool,
}

/// A place for a request.
#[derive(Debug, Clone, Copy)]
struct Place {
    began: Instant,
    chosen: Chosen,
    phase: Phase,
    /// Number of times that the request was sent.
    tries: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    /// The request waits for its connection or for a stream. `is_delayed`: the server's limit of streams was reached.
    Waiting {
        is_delayed: bool,
    },
    /// The request is in progress on the stream with this number.
    Sent(u32),
}

#[derive(Debug)]
struct Connection {
    /// `None`: the connection is not open.
    link: Option<Link>,
    endpoint: Endpoint,
    /// Places whose requests have not been sent.
    waiting: VecDeque<usize>,
    /// Whether the connection is in the list of changed ones.
    is_changed: bool,
    /// Whether more bytes may have arrived than were read. They are read in the next round without an event.
    is_unread: bool,
    /// Events for which the socket is registered.
    interest: epoll::EventFlags,
    connecting_since: Instant,
    /// Time until which no request begins, after the connection could not be made.
    resting_until: Instant,
    received: Instant,
    good: u64,
}

impl Http2 {
    /// Returns the connections of one thread, none of which is open.
    ///
    /// Errors: unusable certificates.
    pub(super) fn new(plan: &LoadPlan, turn: Turn) -> anyhow::Result<Http2> {
        let now = Instant::now();
        let streams = plan.streams.unwrap_or(1).max(1);
        let secrets = |tls| Secrets::of(tls, Protocol::Http2);
        let fields = Fields::of(plan);
        let place = Place {
            began: now,
            chosen: Chosen::default(),
            phase: Phase::Free,
            tries: 0,
        };
        let connection = |_| Connection {
            link: None,
            endpoint: Endpoint::new(&fields),
            waiting: VecDeque::new(),
            is_changed: false,
            is_unread: false,
            interest: epoll::EventFlags::empty(),
            connecting_since: now,
            resting_until: now,
            received: now,
            good: 0,
        };
        Ok(Http2 {
            connections: (0..plan.connections).map(connection).collect(),
            places: vec![place; plan.connections.saturating_mul(streams)],
            changed: Vec::new(),
            spare: Vec::new(),
            ended: Vec::new(),
            fields,
            sources: Sources::new(plan, turn),
            secrets: plan.tls.as_ref().map(secrets).transpose()?,
            is_kept: plan.keepalive,
        })
    }

    fn mark(&mut self, number: usize) {
        let one = &mut self.connections[number];
        if !one.is_changed {
            one.is_changed = true;
            self.changed.push(number);
        }
    }

    /// Lets a request wait for its connection.
    fn wait(&mut self, place: usize) {
        let number = place % self.connections.len();
        self.places[place].phase = Phase::Waiting { is_delayed: false };
        self.connections[number].waiting.push_back(place);
        self.mark(number);
    }

    /// Opens, uses or closes a connection, as its requests require.
    fn serve(&mut self, load: &mut Load<'_>, number: usize) -> Result<(), Failure> {
        if self.connections[number].endpoint.is_done() {
            self.close(number);
        }
        let one = &mut self.connections[number];
        if one.link.is_none() {
            if one.waiting.is_empty() {
                return Ok(());
            }
            self.open(load, number)?;
        }
        self.send_requests(load, number);
        self.write(load, number)
    }

    fn open(&mut self, load: &mut Load<'_>, number: usize) -> Result<(), Failure> {
        let now = Instant::now();
        let target = load.state.plan.target;
        let one = &mut self.connections[number];
        one.connecting_since = now;
        one.received = now;
        if load.state.is_closed_loop() {
            // Latency does not count the time that other connections took to open.
            for place in &one.waiting {
                let request = &mut self.places[*place];
                if request.tries == 0 {
                    request.began = now;
                }
            }
        }
        let link = Link::open(&target, &mut self.sources, self.secrets.as_ref())?;
        one.interest = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&load.epoll, &link.socket, data, one.interest).map_err(Failure::Connect)?;
        one.link = Some(link);
        Ok(())
    }

    /// Opens a stream for each waiting request, as far as the server's limit permits.
    fn send_requests(&mut self, load: &mut Load<'_>, number: usize) {
        let one = &mut self.connections[number];
        while one.endpoint.can_open()
            && let Some(place) = one.waiting.pop_front()
        {
            let request = &mut self.places[place];
            let is_delayed = request.phase == Phase::Waiting { is_delayed: true };
            if is_delayed && load.state.is_closed_loop() {
                request.began = Instant::now();
            }
            load.state.counts.sent_again += u64::from(request.tries > 0);
            request.tries += 1;
            let target = load.state.targets.target(request.chosen);
            let stream = one
                .endpoint
                .request(&self.fields, place, request.chosen, target);
            request.phase = Phase::Sent(stream);
            if !self.is_kept {
                one.endpoint.drain();
            }
        }
        for place in &one.waiting {
            self.places[*place].phase = Phase::Waiting { is_delayed: true };
        }
    }

    fn write(&mut self, load: &mut Load<'_>, number: usize) -> Result<(), Failure> {
        let one = &mut self.connections[number];
        let Some(link) = &mut one.link else {
            return Ok(());
        };
        let was_connected = link.is_connected();
        let is_sent = match link.write(&mut one.endpoint.out) {
            Err(Failure::Closed) if was_connected => {
                // The server may have announced the end with bytes that have not been read. Reading finds the end.
                one.endpoint.out.clear();
                true
            }
            written => written?,
        };
        if !was_connected && link.is_connected() {
            let took = one.connecting_since.elapsed();
            load.state.counts.connected(took);
        }
        let mut interest = epoll::EventFlags::IN;
        match is_sent {
            true => one.endpoint.sent(),
            false => interest |= epoll::EventFlags::OUT,
        }
        if interest != one.interest {
            one.interest = interest;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(&load.epoll, &link.socket, data, interest)
                .map_err(|_| Failure::Closed)?;
        }
        Ok(())
    }

    /// Reads until nothing more is there, or as much as the buffer holds. Returns whether nothing more is there. Then
    /// more of the next requests are sent together, which is less work for the server.
    fn read(
        &mut self,
        load: &mut Load<'_>,
        number: usize,
        buffer: &mut [u8],
    ) -> Result<bool, Failure> {
        let mut total = 0;
        for _ in 0..READS_MAX {
            let one = &mut self.connections[number];
            let Some(link) = &mut one.link else {
                return Ok(true);
            };
            let count = match link.read(buffer)? {
                None if link.is_drained() => return Ok(true),
                None => continue,
                Some(0) => return Err(Failure::Closed),
                Some(count) => count,
            };
            let now = Instant::now();
            one.received = now;
            let (fields, expected) = (&self.fields, &load.state.expected);
            let bytes = &buffer[..count];
            let received = one
                .endpoint
                .receive(bytes, fields, expected, &mut self.ended);
            self.end_requests(load, number, now);
            received?;
            total += count;
            if total >= buffer.len() {
                break;
            }
        }
        Ok(false)
    }

    /// Reads from a connection, and lets it send then: a body that arrives faster than it is read does not delay requests
    /// and answers.
    fn receive(&mut self, load: &mut Load<'_>, number: usize, buffer: &mut [u8]) {
        match self.read(load, number, buffer) {
            Ok(is_drained) => {
                self.connections[number].is_unread = !is_drained;
                if !is_drained {
                    load.unread.push(number as u64);
                }
                // Also without new requests, there may be answers to send, or a handshake to continue.
                self.mark(number);
            }
            Err(failure) => self.abandon(load, number, failure),
        }
    }

    /// Counts the requests that have ended, and frees their places.
    fn end_requests(&mut self, load: &mut Load<'_>, number: usize, now: Instant) {
        let mut ended = std::mem::take(&mut self.ended);
        for (place, end) in ended.drain(..) {
            let request = self.places[place];
            match end {
                End::Good { length, whole } => {
                    let good = Good {
                        began: request.began,
                        chosen: request.chosen,
                        length,
                        whole,
                    };
                    load.state.good(good, now);
                    self.connections[number].good += 1;
                    self.free(load, place);
                }
                End::Refused if request.tries < TRIES_MAX => {
                    self.wait(place);
                }
                End::Refused => self.failed(load, place, Failure::Closed),
                End::Failed(failure) => self.failed(load, place, failure),
            }
        }
        self.ended = ended;
    }

    fn free(&mut self, load: &mut Load<'_>, place: usize) {
        self.places[place].phase = Phase::Free;
        load.free.give(place);
    }

    fn failed(&mut self, load: &mut Load<'_>, place: usize, failure: Failure) {
        load.state.failed(failure);
        self.places[place].phase = Phase::Free;
        match failure {
            Failure::Connect(_) | Failure::Tls => {
                let number = place % self.connections.len();
                let until = self.connections[number].resting_until;
                load.free.rest(place, until);
            }
            _ => load.free.give(place),
        }
    }

    /// Closes a connection. Its waiting requests are sent on the next one.
    fn close(&mut self, number: usize) {
        let one = &mut self.connections[number];
        one.link = None;
        one.is_unread = false;
        one.endpoint = Endpoint::new(&self.fields);
        for place in &one.waiting {
            self.places[*place].phase = Phase::Waiting { is_delayed: false };
        }
    }

    /// Closes a connection after a failure, with which its requests end. If the server has announced the end of the
    /// connection, the requests that were not sent wait for the next one.
    fn abandon(&mut self, load: &mut Load<'_>, number: usize, failure: Failure) {
        let is_announced = self.connections[number].endpoint.is_draining();
        self.close(number);
        if matches!(failure, Failure::Connect(_) | Failure::Tls) {
            self.connections[number].resting_until = Instant::now() + REST;
        }
        if !is_announced {
            self.connections[number].waiting.clear();
        }
        for place in self.places_of(number) {
            match self.places[place].phase {
                Phase::Free => {}
                Phase::Waiting { .. } if is_announced => self.mark(number),
                _ => self.failed(load, place, failure),
            }
        }
    }

    /// Closes a connection on which nothing arrives, and lets its requests wait for the next one.
    fn replace(&mut self, number: usize) {
        self.close(number);
        for place in self.places_of(number) {
            if let Phase::Sent(_) = self.places[place].phase {
                self.wait(place);
            }
        }
    }

    fn places_of(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        (number..self.places.len()).step_by(self.connections.len())
    }
}

impl Connections for Http2 {
    fn places(&self) -> usize {
        self.places.len()
    }

    fn rests_until(&self, place: usize) -> Option<Instant> {
        let one = &self.connections[place % self.connections.len()];
        one.link.is_none().then_some(one.resting_until)
    }

    fn begin(&mut self, load: &mut Load<'_>, place: usize, due: Due) {
        let request = &mut self.places[place];
        request.began = due.began;
        request.chosen = load.state.choose(due, place);
        request.tries = 0;
        self.wait(place);
    }

    fn event(
        &mut self,
        load: &mut Load<'_>,
        number: u64,
        _flags: epoll::EventFlags,
        buffer: &mut [u8],
    ) -> Option<Instant> {
        let number = usize::try_from(number).ok()?;
        if self.connections.get(number)?.is_unread {
            // The connection is read on in any case.
            return None;
        }
        self.receive(load, number, buffer);
        Some(Instant::now())
    }

    fn read_on(&mut self, load: &mut Load<'_>, number: u64, buffer: &mut [u8]) -> Option<Instant> {
        let number = usize::try_from(number).ok()?;
        if !self.connections.get(number)?.is_unread {
            return None;
        }
        self.receive(load, number, buffer);
        Some(Instant::now())
    }

    fn flush(&mut self, load: &mut Load<'_>) {
        // A connection that is opened again after a failure is served in the next round, which may be at once.
        let mut changed = std::mem::take(&mut self.spare);
        std::mem::swap(&mut changed, &mut self.changed);
        for number in changed.drain(..) {
            let one = &mut self.connections[number];
            one.is_changed = false;
            if let Err(failure) = self.serve(load, number) {
                self.abandon(load, number, failure);
            }
        }
        self.spare = changed;
    }

    fn sweep(&mut self, load: &mut Load<'_>, now: Instant) {
        let limit = load.state.time_limit;
        for place in 0..self.places.len() {
            let request = self.places[place];
            let is_late = now.saturating_duration_since(request.began) > limit;
            if request.phase == Phase::Free || !is_late {
                continue;
            }
            let number = place % self.connections.len();
            let one = &self.connections[number];
            let received = one.received;
            if one.link.as_ref().is_some_and(|link| !link.is_connected()) {
                load.state.connect_failed(Errno::TIMEDOUT);
            }
            if now.saturating_duration_since(received) > limit {
                self.replace(number);
            }
            let one = &mut self.connections[number];
            match self.places[place].phase {
                Phase::Sent(stream) => one.endpoint.cancel(stream),
                _ => one.waiting.retain(|waiting| *waiting != place),
            }
            self.failed(load, place, Failure::Timeout);
            self.mark(number);
        }
    }

    fn per_connection(&self) -> (u64, u64) {
        let good = || self.connections.iter().map(|one| one.good);
        (good().min().unwrap_or(0), good().max().unwrap_or(0))
    }
}
