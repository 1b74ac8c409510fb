//! The event loop of the load generator.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::schedule::Schedule;
use super::slot::{Expected, Failure, Progress, Slot, State};
use super::tls::Secrets;
use super::windows::{Windows, thread_cpu};
use super::{Errors, Latency, LoadPlan, LoadResult};
use crate::process::pin_to_core;

/// Maximum number of bytes that one system call reads.
const BUFFER: usize = 1 << 20;

/// First port of connections whose source address the load generator chooses. These ports are free, because servers
/// listen on other addresses.
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 64_000;

/// Longest wait for socket events. After that, the timeouts of requests are checked.
const TICK: Duration = Duration::from_millis(50);

/// Runs a load until it ends.
///
/// Errors: a plan without requests or without an end, a failed system call, or too many consecutive errors.
pub fn run(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    anyhow::ensure!(
        !plan.paths.is_empty() && plan.connections > 0,
        "a load needs a path and a connection"
    );
    anyhow::ensure!(
        plan.requests.is_some() || plan.seconds.is_some(),
        "a load needs a number of requests or of seconds"
    );
    if let Some(core) = plan.core {
        pin_to_core(core)?;
    }
    Engine::new(plan)?.run()
}

struct Engine {
    epoll: rustix::fd::OwnedFd,
    requests: Vec<Request>,
    expected: Expected,
    slots: Vec<Slot>,
    /// Indexes of connection slots that can begin a request.
    free: Vec<usize>,
    begun: u64,
    began: Instant,
    last: Instant,
    next_source: u32,
    errors: Errors,
    errors_in_row: u64,
    done: u64,
    bytes: u64,
    connects: u64,
    latency: Histogram<u64>,
    slow: u64,
    statuses: BTreeMap<u16, u64>,
    /// The schedule of an open loop; `None` in a closed loop.
    schedule: Option<Schedule>,
    windows: Option<Windows>,
    /// Time since the start at which the server was found to be saturated. No requests begin after that time.
    saturated: Option<Duration>,
    cpu_before: Duration,
    secrets: Option<Secrets>,
    plan: LoadPlan,
}

impl Engine {
    fn new(plan: LoadPlan) -> anyhow::Result<Engine> {
        let now = Instant::now();
        let schedule = Schedule::of(&plan)?;
        let windows = match (schedule, plan.window_seconds) {
            (Some(schedule), Some(length)) if length > 0.0 => {
                Some(Windows::new(length, schedule, plan.seconds))
            }
            (_, Some(_)) => anyhow::bail!("windows need an open loop and a length"),
            _ => None,
        };
        Ok(Engine {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?,
            requests: plan
                .paths
                .iter()
                .map(|path| Request::new(&plan, path))
                .collect(),
            expected: Expected {
                status: plan.expect_status,
                length: plan.expect_length,
                verify: plan.verify,
            },
            slots: (0..plan.connections).map(|_| Slot::new(now)).collect(),
            free: (0..plan.connections).rev().collect(),
            begun: 0,
            began: now,
            last: now,
            next_source: first_source(),
            errors: Errors::default(),
            errors_in_row: 0,
            done: 0,
            bytes: 0,
            connects: 0,
            latency: Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
                .context("bounds of the histogram")?,
            slow: 0,
            statuses: BTreeMap::new(),
            schedule,
            windows,
            saturated: None,
            cpu_before: thread_cpu(),
            secrets: plan.tls.as_ref().map(Secrets::of).transpose()?,
            plan,
        })
    }

    fn run(mut self) -> anyhow::Result<LoadResult> {
        let mut buffer = vec![0; BUFFER];
        let mut events = Vec::with_capacity(self.plan.connections.clamp(1, 1024));
        let mut swept = self.began;
        loop {
            let now = Instant::now();
            self.pass(now);
            self.begin_due(now);
            if self.finished(now) {
                return Ok(self.result());
            }
            self.check_errors()?;
            if now - swept > TICK {
                self.sweep(now);
                swept = now;
            }
            let timeout = Timespec::try_from(self.timeout(now)).context("timeout")?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for events"),
            }
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                self.event(data.u64() as usize, flags, &mut buffer);
            }
        }
    }

    /// Fails after too many consecutive errors.
    fn check_errors(&self) -> anyhow::Result<()> {
        let most = self.plan.consecutive_errors_max.unwrap_or(u64::MAX);
        anyhow::ensure!(
            self.errors_in_row < most,
            "{most} consecutive errors from {}: {:?}",
            self.plan.target,
            self.errors
        );
        Ok(())
    }

    /// Records that time has passed. At the start of each window, also checks whether the server is saturated.
    fn pass(&mut self, now: Instant) {
        let after = now.saturating_duration_since(self.began);
        if let Some(windows) = &mut self.windows
            && windows.pass(after)
            && let Some(most) = self.plan.saturated_us
        {
            let saturated = windows.saturated(most).then_some(after);
            self.saturated = self.saturated.or(saturated);
        }
    }

    /// Begins all requests that are due while connections are free for them.
    fn begin_due(&mut self, now: Instant) {
        while !self.free.is_empty() && self.due(now).is_some() {
            let due = self.due(now).unwrap_or(now);
            let Some(slot) = self.free.pop() else { return };
            self.slots[slot].began = due;
            self.slots[slot].number = self.begun;
            self.begun += 1;
            self.begin(slot);
        }
    }

    /// Returns the scheduled time of the next request, if that request is due now.
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.over(now) {
            return None;
        }
        match self.schedule {
            None => Some(now),
            Some(schedule) => Some(self.next(schedule)).filter(|due| *due <= now),
        }
    }

    fn next(&self, schedule: Schedule) -> Instant {
        self.began + schedule.due(self.begun)
    }

    /// Whether no more requests may begin. In an open loop, requests that were scheduled before the end of the load
    /// still begin.
    fn over(&self, now: Instant) -> bool {
        let enough = self.plan.requests.is_some_and(|most| self.begun >= most);
        let late = self.plan.seconds.is_some_and(|seconds| {
            let end = self.began + Duration::from_secs_f64(seconds);
            match self.schedule {
                None => now >= end,
                Some(schedule) => self.next(schedule) >= end,
            }
        });
        enough || late || self.saturated.is_some()
    }

    fn finished(&self, now: Instant) -> bool {
        self.over(now) && self.free.len() == self.slots.len()
    }

    fn timeout(&self, now: Instant) -> Duration {
        match self.schedule {
            Some(schedule) if !self.free.is_empty() && !self.over(now) => {
                self.next(schedule).saturating_duration_since(now).min(TICK)
            }
            _ => TICK,
        }
    }

    /// Sends the next request on a connection slot. A slot without a connection connects first.
    fn begin(&mut self, slot: usize) {
        let outcome = match self.slots[slot].state {
            State::Idle => self.send(slot),
            _ => self.connect(slot),
        };
        if let Err(failure) = outcome {
            self.failed(slot, failure);
        }
    }

    fn connect(&mut self, slot: usize) -> Result<(), Failure> {
        let source = self.source();
        self.connects += 1;
        self.slots[slot].connect(&self.plan.target, source, self.secrets.as_ref())?;
        // On loopback a connect completes at once. Sending immediately saves waiting for an event and two system calls.
        self.send(slot)?;
        let interest = match self.slots[slot].state {
            State::Connecting => epoll::EventFlags::OUT,
            _ => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(slot as u64);
        let socket = self.slots[slot].socket.as_ref().ok_or(Failure::Connect)?;
        epoll::add(&self.epoll, socket, data, interest).map_err(|_| Failure::Connect)
    }

    fn send(&mut self, slot: usize) -> Result<(), Failure> {
        let number = self.slots[slot].number;
        let path = (number % self.requests.len() as u64) as usize;
        match (&self.requests[path], self.plan.numbers) {
            (Request::Numbered(before, after), Some((first, count))) => {
                let number = (first + number % count.max(1)).to_string();
                self.slots[slot].send(&[before, number.as_bytes(), after].concat())
            }
            (Request::Fixed(request), _) => self.slots[slot].send(request),
            // Unreachable: a plan without numbers has no `Request::Numbered`.
            (Request::Numbered(..), None) => Err(Failure::Malformed),
        }
    }

    /// Returns the source address and port of the next connection. Ports are counted up here, because the kernel takes
    /// much longer to find a free port while thousands of connections are in TIME_WAIT.
    fn source(&mut self) -> Option<SocketAddr> {
        if self.plan.sources == 0 || self.plan.target.is_ipv6() {
            return None;
        }
        let number = self.next_source;
        self.next_source = self.next_source.wrapping_add(1);
        let sources = self.plan.sources.min(1 << 16);
        let address = Ipv4Addr::from(0x7f01_0001 + number % sources);
        let port = FIRST_PORT + (number / sources % PORTS) as u16;
        Some(SocketAddr::from((address, port)))
    }

    fn event(&mut self, slot: usize, flags: epoll::EventFlags, buffer: &mut [u8]) {
        let outcome = match self.slots[slot].state {
            State::Absent => return,
            State::Connecting if flags.contains(epoll::EventFlags::OUT) => self.connected(slot),
            State::Connecting => Err(Failure::Connect),
            _ => self.receive(slot, buffer),
        };
        if let Err(failure) = outcome {
            self.failed(slot, failure);
        }
    }

    fn connected(&mut self, slot: usize) -> Result<(), Failure> {
        self.send(slot)?;
        if self.slots[slot].state == State::Connecting {
            return Ok(());
        }
        let data = epoll::EventData::new_u64(slot as u64);
        let socket = self.slots[slot].socket.as_ref().ok_or(Failure::Connect)?;
        epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN)
            .map_err(|_| Failure::Connect)
    }

    fn receive(&mut self, slot: usize, buffer: &mut [u8]) -> Result<(), Failure> {
        let Progress::Whole { length, close } = self.slots[slot].receive(buffer, &self.expected)?
        else {
            return Ok(());
        };
        let now = Instant::now();
        let began = self.slots[slot].began;
        let took = now.saturating_duration_since(began);
        if let Some(windows) = &mut self.windows {
            windows.record(began.saturating_duration_since(self.began), took);
        }
        self.latency
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let slow = |most| took > Duration::from_micros(most);
        self.slow += u64::from(self.plan.slow_us.is_some_and(slow));
        *self.statuses.entry(self.plan.expect_status).or_default() += 1;
        self.last = now;
        self.done += 1;
        self.errors_in_row = 0;
        self.bytes += length;
        self.slots[slot].good += 1;
        if close || !self.plan.keepalive {
            self.slots[slot].close();
        }
        self.free.push(slot);
        // The next request of a closed loop is sent before other events are handled, while the connection's data is in
        // the CPU caches.
        self.begin_due(now);
        Ok(())
    }

    fn failed(&mut self, slot: usize, failure: Failure) {
        let was_busy = self.slots[slot].busy();
        let connecting = self.slots[slot].state == State::Absent;
        self.slots[slot].close();
        if failure == Failure::Stale {
            // The server may close an idle connection. If that happens just when a request was sent, the request is
            // sent again and is not an error.
            if was_busy || connecting {
                self.begin(slot);
            }
            return;
        }
        self.count(failure);
        self.last = Instant::now();
        self.free.push(slot);
    }

    fn count(&mut self, failure: Failure) {
        self.errors_in_row += 1;
        let errors = &mut self.errors;
        let counter = match failure {
            Failure::Connect => &mut errors.connect,
            Failure::Closed | Failure::Stale => &mut errors.closed,
            Failure::Timeout => &mut errors.timeout,
            Failure::Status(status) => {
                *self.statuses.entry(status).or_default() += 1;
                &mut errors.status
            }
            Failure::Length => &mut errors.length,
            Failure::Malformed => &mut errors.malformed,
            Failure::Content => &mut errors.content,
        };
        *counter += 1;
    }

    /// Counts each request whose timeout has expired as failed.
    fn sweep(&mut self, now: Instant) {
        let limit = Duration::from_secs_f64(self.plan.timeout_seconds);
        for slot in 0..self.slots.len() {
            let one = &self.slots[slot];
            if one.busy() && now.saturating_duration_since(one.began) > limit {
                self.failed(slot, Failure::Timeout);
            }
        }
    }

    fn result(self) -> LoadResult {
        let good = || self.slots.iter().map(|slot| slot.good);
        // The last window ends at the time at which the next request would have been due, even if the load ended
        // earlier.
        let due = |schedule: Schedule| schedule.due(self.begun);
        let end = self.saturated.or(self.schedule.map(due));
        let windows = |windows: &Windows| windows.result(end.unwrap_or_default());
        LoadResult {
            requests: self.done,
            errors: self.errors,
            bytes: self.bytes,
            seconds: (self.last - self.began).as_secs_f64(),
            connects: self.connects,
            latency: Latency::of(&self.latency),
            slow: self.slow,
            statuses: self.statuses,
            per_connection: (good().min().unwrap_or(0), good().max().unwrap_or(0)),
            cpu_seconds: thread_cpu().saturating_sub(self.cpu_before).as_secs_f64(),
            windows: self.windows.as_ref().map_or_else(Vec::new, windows),
        }
    }
}

/// Returns the number of the first source port of a load. Consecutive loads begin at different ports, so that they
/// don't collide with connections in TIME_WAIT of an earlier load.
fn first_source() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.subsec_nanos())
}

/// The prepared bytes of requests for one target.
enum Request {
    /// All bytes of the request.
    Fixed(Vec<u8>),
    /// The bytes before and after the number in the request's path.
    Numbered(Vec<u8>, Vec<u8>),
}

impl Request {
    fn new(plan: &LoadPlan, path: &str) -> Request {
        let mut rest = format!(" HTTP/1.1\r\nHost: {}\r\n", plan.host);
        for (name, value) in &plan.headers {
            rest.push_str(&format!("{name}: {value}\r\n"));
        }
        if !plan.keepalive {
            rest.push_str("Connection: close\r\n");
        }
        rest.push_str("\r\n");
        match path.split_once("{n}").filter(|_| plan.numbers.is_some()) {
            Some((before, after)) => Request::Numbered(
                format!("GET {before}").into_bytes(),
                format!("{after}{rest}").into_bytes(),
            ),
            None => Request::Fixed(format!("GET {path}{rest}").into_bytes()),
        }
    }
}
