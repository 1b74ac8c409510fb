//! The record of a request for the counters and the access log.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::downstream::worker::{Serving, Worker};
use crate::handler::{Head, Peer, Response, UpstreamTimings};
use crate::http::{CacheStatus, Fwd, Outcome, Status};
use crate::reason::Reason;
use crate::telemetry::{AccessLog, AccessRecord, AccessUpstream, Counters, Selection};

/// The record of one request. Closing or dropping the record counts and logs the request once.
pub struct Record {
    worker: Rc<Worker>,
    /// The handlers and limits that were in use when the request began.
    pub serving: Rc<Serving>,
    /// Bytes of content sent.
    pub body_bytes: u64,
    /// Whether the response was sent completely.
    pub complete: bool,
    /// Reason for which the request was refused, failed or was cut short.
    pub reason: Option<Reason>,
    status: Status,
    cache: Option<CacheStatus>,
    upstream: Option<Rc<UpstreamTimings>>,
    line: Option<Box<LogLine>>,
    closed: bool,
}

/// Method and target of a request that a protocol refused, as far as they could be read.
#[derive(Clone, Copy, Default)]
pub struct RefusedRequest<'a> {
    /// The method, empty if it could not be read.
    pub method: &'a str,
    /// The target as received, empty if it could not be read.
    pub target: &'a str,
}

/// The parts of the request that the log needs. Only created if there is an access log.
struct LogLine {
    peer: Peer,
    time_unix_ms: u64,
    began_us: u64,
    version: &'static str,
    text: Vec<u8>,
    method: Range<usize>,
    authority: Range<usize>,
    target: Range<usize>,
    headers: [Option<Range<usize>>; 3],
    /// Values of further headers that the log's configuration names, as ranges of the copied text.
    more: SmallVec<[Option<Range<usize>>; 4]>,
    /// Selects which requests of the route are logged. `None`: all.
    selection: Option<Rc<Selection>>,
}

/// Headers that are logged in every format.
const LOGGED: [&str; 3] = ["referer", "user-agent", "range"];

impl Record {
    /// Creates the record of a valid request.
    #[inline]
    pub fn new(worker: &Rc<Worker>, serving: Rc<Serving>, peer: Peer, head: &Head) -> Record {
        let line = serving
            .log
            .as_ref()
            .map(|log| LogLine::of(worker, log, peer, head));
        Record::open(worker, serving, line)
    }

    /// Creates the record of a refused request.
    pub fn of_refused(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        peer: Peer,
        request: RefusedRequest<'_>,
    ) -> Record {
        let line = serving.log.as_ref().map(|_| {
            let mut line = LogLine::new(worker, peer);
            line.method = line.add(request.method.as_bytes());
            line.target = line.add(request.target.as_bytes());
            line
        });
        Record::open(worker, serving, line)
    }

    #[inline]
    fn open(worker: &Rc<Worker>, serving: Rc<Serving>, line: Option<Box<LogLine>>) -> Record {
        worker.counters.requests_now.add(1);
        Record {
            worker: worker.clone(),
            serving,
            body_bytes: 0,
            complete: false,
            reason: None,
            status: 0,
            cache: None,
            upstream: None,
            line,
            closed: false,
        }
    }

    /// Returns the counters of the request's worker.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.worker.counters
    }

    /// Counts a request that is passed to a handler.
    #[inline]
    pub fn count_request(&self) {
        self.worker.counters.requests.add(1);
    }

    /// Records and counts the final response.
    #[inline]
    pub fn responded(&mut self, response: &mut Response) {
        self.status = response.status;
        self.cache = response.cache;
        self.upstream = response.upstream.take();
        self.reason = response.fault.or(self.reason);
        let counters = &self.worker.counters;
        match response.status {
            200..=299 => counters.responses_2xx.add(1),
            300..=399 => counters.responses_3xx.add(1),
            400..=499 => counters.responses_4xx.add(1),
            500..=599 => counters.responses_5xx.add(1),
            _ => {}
        }
        match response.cache {
            None => {}
            Some(cache) if cache.outcome == Outcome::Hit => {
                counters.cache_hits.add(1);
                if cache.ttl_s.is_some_and(|ttl_s| ttl_s < 0) {
                    counters.cache_stale.add(1);
                }
            }
            Some(cache)
                if cache.fwd_status == Some(304)
                    && matches!(cache.outcome, Outcome::Fwd(Fwd::Stale | Fwd::Request)) =>
            {
                counters.cache_validated.add(1);
            }
            Some(cache) if cache.collapsed => counters.cache_collapsed.add(1),
            Some(cache) => match cache.outcome {
                Outcome::Fwd(Fwd::Bypass | Fwd::Method) => counters.cache_passes.add(1),
                Outcome::Own => {}
                _ => counters.cache_misses.add(1),
            },
        }
    }

    /// Takes the log selection of the route, which the handler has set by now.
    #[inline]
    pub fn handler_called(&mut self) {
        if let (Some(line), Some(log)) = (&mut self.line, &self.serving.log) {
            line.selection = log.take_selection();
        }
    }

    /// Counts and logs the request. Further calls do nothing.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let counters = &self.worker.counters;
        counters.requests_now.sub(1);
        if !self.complete {
            counters.responses_cut.add(1);
        }
        if let Some(line) = self.line.take() {
            self.log(&line);
        }
    }

    fn log(&self, line: &LogLine) {
        let Some(log) = &self.serving.log else { return };
        let now_us = self.worker.clock.monotonic_us();
        let request_us = now_us.saturating_sub(line.began_us);
        if let Some(selection) = &line.selection
            && !selection.takes(self.status, request_us)
        {
            return;
        }
        let text =
            |range: &Range<usize>| std::str::from_utf8(&line.text[range.clone()]).unwrap_or("");
        let value = |range: &Option<Range<usize>>| range.clone().map(|range| &line.text[range]);
        let header = |i: usize| value(&line.headers[i]);
        let more: SmallVec<[Option<&[u8]>; 4]> = line.more.iter().map(value).collect();
        log.record(&AccessRecord {
            time_unix_ms: line.time_unix_ms,
            client: line.peer.client,
            peer: line.peer.address,
            scheme: line.peer.scheme.as_str(),
            method: text(&line.method),
            authority: text(&line.authority),
            target: text(&line.target),
            version: line.version,
            status: self.status,
            body_bytes: self.body_bytes,
            referer: header(0),
            user_agent: header(1),
            range: header(2),
            request_headers: &more,
            cache: self.cache.map(|cache| cache.word()),
            reason: self.reason.or(self.cache.and_then(|cache| cache.detail)),
            request_us,
            upstream: self.upstream.as_ref().map(|upstream| AccessUpstream {
                server: upstream.server.get(),
                status: upstream.status.get(),
                connect_us: upstream.connect_us.get(),
                header_us: upstream.header_us.get(),
                response_us: upstream.response_us.get(),
            }),
            cut: !self.complete,
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.close();
    }
}

impl LogLine {
    fn of(worker: &Worker, log: &AccessLog, peer: Peer, head: &Head) -> Box<LogLine> {
        let mut line = LogLine::new(worker, peer);
        line.version = head.version.as_str();
        line.method = line.add(head.method.as_str().as_bytes());
        line.authority = line.add(head.authority.as_bytes());
        line.target = line.add(head.target_as_received().as_bytes());
        for (i, name) in LOGGED.iter().enumerate() {
            line.headers[i] = head.fields.get(name).map(|value| line.add(value));
        }
        for name in log.request_headers() {
            let value = head.fields.get(name).map(|value| line.add(value));
            line.more.push(value);
        }
        line
    }

    fn new(worker: &Worker, peer: Peer) -> Box<LogLine> {
        Box::new(LogLine {
            peer,
            time_unix_ms: worker.clock.unix_ms(),
            began_us: worker.clock.monotonic_us(),
            version: "",
            text: Vec::with_capacity(256),
            method: 0..0,
            authority: 0..0,
            target: 0..0,
            headers: [const { None }; 3],
            more: SmallVec::new(),
            selection: None,
        })
    }

    fn add(&mut self, part: &[u8]) -> Range<usize> {
        let start = self.text.len();
        self.text.extend_from_slice(part);
        start..self.text.len()
    }
}
