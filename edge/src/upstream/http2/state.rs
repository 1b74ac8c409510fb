//! The state of a connection that its task and its exchanges share.

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::activity::Activity;
use super::counts::Counts;
use super::exchange::{self, Exchange};
use super::options::{Options, READ_MIN};
use super::output::Output;

use crate::http2::client::Client;
use crate::http2::violation::ErrorCode;
use crate::http2::wakeups::Wakeups;
use crate::sys::clock::timer_now;
use crate::upstream::permit::Permit;
use crate::upstream::sample::Sample;
use crate::upstream::transport::Transport;

/// Rounds of reading and writing in one turn of the task.
const ROUNDS: usize = 16;
/// Output in bytes above which nothing is read from a server that does not read.
const CHOKED: usize = 64 << 10;
/// Shortest time between two samples of the kernel's data, in microseconds.
const SAMPLE_US: u64 = 1_000_000;

/// A connection.
pub(super) struct State {
    pub(super) client: Client,
    /// The transport, until the connection is closed.
    pub(super) transport: Option<Transport>,
    pub(super) is_encrypted: bool,
    pub(super) input: BytesMut,
    /// Size of the next read in bytes.
    pub(super) read_size: usize,
    pub(super) out: Output,
    /// Number of bytes of output so far that were written.
    pub(super) written: u64,
    /// Whether the transport accepts no more output for now.
    pub(super) is_blocked: bool,
    /// The exchanges by the slots of their streams.
    pub(super) exchanges: Vec<Option<exchange::Shared>>,
    pub(super) wakeups: Wakeups,
    pub(super) options: Options,
    /// Number of exchanges that have taken room, among them `reserved` whose request has not begun.
    leases: usize,
    pub(super) reserved: usize,
    /// Number of exchanges so far.
    uses: u64,
    /// Number of received frames, or header blocks, that belong to a stream.
    pub(super) answers: u64,
    /// Whether no further exchange takes room.
    is_retired: bool,
    /// Whether no further request is sent: the server has said so, or it does not respond.
    pub(super) is_failing: bool,
    /// Whether the connection ends when the output is written.
    pub(super) is_ending: bool,
    /// Whether the pool waits for room.
    is_full: bool,
    idle_since: Instant,
    pub(super) activity: Activity,
    /// Counts the connection among the server's connections, until it is closed.
    pub(super) permit: Option<Permit>,
    /// The connection's numbers, until it is closed.
    pub(super) counts: Option<Counts>,
    counted: (u64, u64),
    sampled: Option<(u64, u32)>,
    /// Wakes the pool when the connection has room again or is not usable any more.
    pool: Option<Waker>,
    task: Option<Waker>,
    /// Whether the task was woken since its last turn.
    is_woken: bool,
    /// The wakers to be woken when the state is not in use any more.
    wakes: SmallVec<[Waker; 4]>,
}

/// A connection's state, shared within one thread.
pub(super) struct Shared(RefCell<State>);

impl Shared {
    pub(super) fn new(state: State) -> Shared {
        Shared(RefCell::new(state))
    }

    /// Uses the state, and then wakes the tasks for which something has happened.
    pub(super) fn with<T>(&self, on: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.borrow_mut();
        let result = on(&mut state);
        let wakes = std::mem::take(&mut state.wakes);
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
        result
    }

    /// Reads the state.
    pub(super) fn read<T>(&self, on: impl FnOnce(&State) -> T) -> T {
        on(&self.0.borrow())
    }
}

impl State {
    pub(super) fn new(transport: Transport, permit: Permit, options: Options) -> State {
        let (mut out, now) = (Output::default(), timer_now());
        let client = Client::new(options.client, 0, &mut out.text);
        State {
            client,
            is_encrypted: transport.handshake().is_some(),
            transport: Some(transport),
            input: BytesMut::new(),
            read_size: READ_MIN,
            out,
            written: 0,
            is_blocked: false,
            exchanges: Vec::new(),
            wakeups: Wakeups::default(),
            leases: 0,
            reserved: 0,
            uses: 0,
            answers: 0,
            is_retired: false,
            is_failing: false,
            is_ending: false,
            is_full: false,
            idle_since: now,
            activity: Activity::new(now),
            options,
            counts: Some(Counts::new(permit.gauges_of_server())),
            permit: Some(permit),
            counted: (0, 0),
            sampled: None,
            pool: None,
            task: None,
            is_woken: false,
            wakes: SmallVec::new(),
        }
    }

    /// Returns the room for exchanges. Until the server has said how many streams it permits, as many are expected as it
    /// permitted last.
    fn room(&self) -> usize {
        let mut room = self.client.room();
        if !self.client.has_begun()
            && let Some(permit) = &self.permit
        {
            let expected = permit.state().protocol().expected_streams() as usize;
            room = room.min(expected.saturating_sub(self.client.open_streams()));
        }
        room.saturating_sub(self.reserved)
    }

    /// Whether the connection accepts exchanges, now or when others have ended.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_retired && !self.is_failing
    }

    /// Whether the connection has room for an exchange.
    pub(super) fn has_room(&self) -> bool {
        self.is_usable() && self.room() > 0
    }

    /// Whether a request may be begun for which room was taken.
    pub(super) fn may_begin(&self) -> bool {
        !self.is_failing && self.client.room() > 0
    }

    /// Whether a request may be begun for which room was taken. On a connection without other exchanges, the server may have
    /// announced its end, or closed it, since the runtime polled last.
    pub(super) fn is_still_usable(&mut self) -> bool {
        let is_alone = self.leases == 1;
        if is_alone
            && let Some(transport) = &mut self.transport
            && !transport.is_quiet()
        {
            let task = self.task();
            self.receive(&mut Context::from_waker(&task), timer_now());
            self.wake_task();
        }
        self.may_begin()
    }

    /// Takes room for an exchange. Returns it, and whether the connection accepts further ones.
    pub(super) fn reserve(&mut self) -> (Exchange, bool) {
        let exchange = Exchange::new(self.uses > 0);
        self.uses += 1;
        self.is_retired |= self.uses >= self.options.uses;
        self.leases += 1;
        self.reserved += 1;
        if let Some(permit) = &mut self.permit {
            permit.set_busy(true);
        }
        (exchange, self.is_usable())
    }

    /// Has the pool woken when the connection has room again or is not usable any more.
    pub(super) fn watch_room(&mut self, waker: &Waker) {
        if !self.pool.as_ref().is_some_and(|pool| pool.will_wake(waker)) {
            self.pool = Some(waker.clone());
        }
        self.is_full = !self.has_room();
    }

    /// Ends the use of an exchange. A request or a response that is not complete is abandoned.
    pub(super) fn leave(&mut self, exchange: &mut Exchange) {
        self.leases -= 1;
        self.client.forget(exchange.kept);
        if !exchange.has_begun {
            self.reserved -= 1;
        }
        if let Some(slot) = exchange.slot.take() {
            self.exchanges[slot] = None;
            let now_ms = self.activity.ms(timer_now());
            // Otherwise one client that leaves again and again could have the server end the exchanges of others.
            self.is_retired |= !self.client.cancel(slot, now_ms, &mut self.out.text);
            self.wake_task();
        }
        if self.leases == 0 {
            self.idle_since = timer_now();
            if let Some(permit) = &mut self.permit {
                permit.set_busy(false);
            }
            if !self.is_usable() {
                self.wake_task();
            }
        }
        self.note_room();
    }

    /// Wakes the pool if it waits for room and there is some.
    pub(super) fn note_room(&mut self) {
        if self.is_full && self.has_room() {
            self.is_full = false;
            self.wake_pool();
        }
    }

    /// Notes that no further exchange takes room.
    pub(super) fn retire(&mut self) {
        self.is_retired = true;
        self.wake_task();
    }

    /// Notes that no further request is sent.
    pub(super) fn fail(&mut self) {
        if !std::mem::replace(&mut self.is_failing, true) {
            self.wake_pool();
            self.wake_task();
        }
    }

    /// Whether no exchange is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.leases == 0
    }

    /// Returns the time since the last exchange has ended, in microseconds; 0 if one is in progress.
    pub(super) fn idle_us(&self) -> u64 {
        match self.is_idle() {
            true => timer_now().duration_since(self.idle_since).as_micros() as u64,
            false => 0,
        }
    }

    /// Frees memory that an idle connection does not need. Returns whether there was any.
    pub(super) fn rest(&mut self) -> bool {
        if !self.is_idle() || self.client.open_streams() > 0 {
            return false;
        }
        let mut has_freed = self.out.rest();
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
            has_freed = true;
        }
        self.client.rest();
        self.exchanges = Vec::new();
        self.wakeups.rest();
        has_freed
    }

    /// Reads and writes until nothing more can be done now. Ready when the connection has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        match &self.task {
            Some(task) if task.will_wake(cx.waker()) => {}
            _ => self.task = Some(cx.waker().clone()),
        }
        self.is_woken = false;
        self.wakeups.watch(cx);
        for slot in self.wakeups.take() {
            self.fetch(slot);
        }
        for _ in 0..ROUNDS {
            let was_choked = self.is_choked();
            let has_received = self.receive(cx, now);
            self.begin_end();
            self.gather();
            self.flush(cx);
            self.count();
            if self.transport.is_none() {
                return Poll::Ready(());
            }
            let sends_more = !self.is_blocked && self.client.next().is_some();
            // No event wakes the task for input that was there before.
            let may_receive = was_choked && !self.is_choked();
            if !has_received && !sends_more && !may_receive {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether the server does not read the answers to its frames.
    pub(super) fn is_choked(&self) -> bool {
        self.is_blocked && self.out.len() > CHOKED
    }

    /// Begins the end of a connection that gets no further exchanges.
    fn begin_end(&mut self) {
        let is_done = self.leases == 0 && self.client.open_streams() == 0;
        if is_done && !self.is_usable() && !self.is_ending {
            self.is_ending = true;
            self.client
                .close(ErrorCode::NO_ERROR, "", &mut self.out.text);
        }
    }

    /// Writes the output as far as possible.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        let before = self.out.len();
        let flushed = self.out.poll_flush(cx, transport);
        self.written += (before - self.out.len()) as u64;
        self.is_blocked = flushed.is_pending();
        let is_broken = transport.is_write_broken() || matches!(flushed, Poll::Ready(Err(_)));
        if self.is_ending {
            self.close();
        } else if is_broken {
            // The server may have responded before it stopped to read, so reading goes on until it closes.
            self.fail();
        }
    }

    fn count(&mut self) {
        if let Some(counts) = &mut self.counts {
            counts.set_open(self.client.open_streams());
        }
        if let (Some(transport), Some(permit)) = (&self.transport, &self.permit) {
            let now = (transport.read_total(), transport.written_total());
            let (read, written) = std::mem::replace(&mut self.counted, now);
            permit.count_traffic(now.0 - read, now.1 - written);
        }
    }

    /// Returns the kernel's data about the connection, unless the last sample is recent.
    pub(super) fn sample(&mut self, now_us: u64) -> Option<Sample> {
        let is_recent = |(at_us, _)| now_us.saturating_sub(at_us) < SAMPLE_US;
        if self.sampled.is_some_and(is_recent) {
            return None;
        }
        let state = self.transport.as_ref()?.tcp_state()?;
        let before = self.sampled.replace((now_us, state.retransmits));
        Some(Sample::new(&state, before.map_or(0, |(_, before)| before)))
    }

    pub(super) fn wake_task(&mut self) {
        if !std::mem::replace(&mut self.is_woken, true) {
            self.wakes.extend(self.task.clone());
        }
    }

    fn wake_pool(&mut self) {
        self.wakes.extend(self.pool.clone());
    }

    /// Wakes the user of an exchange.
    pub(super) fn wake(&mut self, exchange: &mut Exchange) {
        self.wakes.extend(exchange.event());
    }

    /// Returns the waker of the task, for reading outside its turn.
    pub(super) fn task(&self) -> Waker {
        self.task.clone().unwrap_or_else(|| Waker::noop().clone())
    }
}
