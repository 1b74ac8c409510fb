//! The record of a request for the counters and the access log.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use super::tally::{Tally, count_reasons};
use crate::downstream::worker::{Serving, Worker};
use crate::handler::{ClientCertificate, Head, Peer, Response, UpstreamTimings};
use crate::http::{CacheStatus, Fields, Fwd, Outcome, RequestId, Status, TraceContext};
use crate::reason::Reason;
use crate::telemetry::{
    AccessLog, AccessRecord, AccessTls, AccessUpstream, Counters, Sample, SampleResult, Sampler,
    Selection,
};

/// The record of one request. Closing or dropping the record counts and logs the request once.
pub struct Record {
    worker: Rc<Worker>,
    /// The handlers and limits that were in use when the request began.
    pub serving: Rc<Serving>,
    /// Whether the response was sent completely.
    pub complete: bool,
    /// Reason for which the request was refused, failed or was cut short.
    pub reason: Option<Reason>,
    /// The request's id, if requests have ids.
    pub request_id: Option<RequestId>,
    /// The request's trace, if requests have traces.
    trace: Option<Rc<TraceContext>>,
    /// The sample of the request, if the request is sampled.
    sample: Option<Box<Sample>>,
    status: Status,
    cache: Option<CacheStatus>,
    /// Reason for which a cache forwarded a request that then failed.
    failed_fwd: Option<Fwd>,
    upstream: Option<Rc<UpstreamTimings>>,
    line: Option<Box<LogLine>>,
    /// Time at which the head was complete, in microseconds of the monotonic clock. If the request
    /// is answered without waiting, this may be the time of an earlier such request.
    began_us: u64,
    tally: Tally,
    /// Whether the request is valid and passed to a handler.
    counted: bool,
    closed: bool,
}

/// The beginning of a request that a protocol refused, as far as it could be read.
#[derive(Clone, Copy, Default)]
pub struct RefusedRequest<'a> {
    /// The method, empty if it could not be read.
    pub method: &'a str,
    /// The target as received, empty if it could not be read.
    pub target: &'a str,
    /// The HTTP version, empty if it could not be read or is not supported.
    pub version: &'static str,
    /// The request line as received, perhaps cut.
    pub line: &'a [u8],
}

/// The parts of the request that the log needs. Only created if there is an access log.
struct LogLine {
    peer: Peer,
    certificate: Option<Rc<ClientCertificate>>,
    time_unix_ms: u64,
    version: &'static str,
    text: Vec<u8>,
    method: Range<usize>,
    authority: Range<usize>,
    target: Range<usize>,
    /// The request line of a refused request.
    refused_line: Range<usize>,
    headers: [Option<Range<usize>>; 3],
    /// Values of further headers that the log's configuration names, as ranges of the copied text.
    more: SmallVec<[Option<Range<usize>>; 4]>,
    /// Selects which requests of the route are logged. `None`: all.
    selection: Option<Rc<Selection>>,
}

/// The status that is logged for a client that left before its response began. No response has it.
const CLIENT_GONE: Status = 499;

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
        let mut record = Record::open(worker, serving, head.id.clone(), line);
        record.trace.clone_from(&head.trace);
        let url = (peer.scheme.as_str(), &*head.authority, &*head.target);
        record.sample = worker.sampler.begin(peer.client, url);
        record
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
            line.version = request.version;
            line.refused_line = line.add(request.line);
            line
        });
        let fields = Fields::new();
        let id = serving.request_id(&worker.clock, &peer, &fields);
        let trace = serving.trace(&fields);
        let mut record = Record::open(worker, serving, id, line);
        record.trace = trace;
        let target = request.target.as_bytes();
        record.sample = worker.sampler.uncounted(Some(peer.client), target);
        record
    }

    #[inline]
    fn open(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        request_id: Option<RequestId>,
        line: Option<Box<LogLine>>,
    ) -> Record {
        worker.counters.requests_now.add(1);
        let began_us = match line {
            Some(_) => worker.clock.read_us(),
            None => worker.clock.recent_us(),
        };
        Record {
            worker: worker.clone(),
            serving,
            complete: false,
            reason: None,
            request_id,
            trace: None,
            sample: None,
            status: 0,
            cache: None,
            failed_fwd: None,
            upstream: None,
            line,
            began_us,
            tally: Tally::new(),
            counted: false,
            closed: false,
        }
    }

    /// Returns the request's worker.
    #[inline]
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Returns the counters of the request's worker.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.worker.counters
    }

    /// Counts a request that is passed to a handler.
    #[inline]
    pub fn count_request(&mut self) {
        self.counted = true;
        self.worker.counters.requests.add(1);
    }

    /// Notes that the response has to be waited for, and sets the beginning of the request to now.
    pub fn begin_waiting(&mut self) {
        if self.line.is_none() {
            self.began_us = self.worker.clock.read_us();
        }
    }

    /// Records and counts the final response.
    #[inline]
    pub fn responded(&mut self, response: &mut Response) {
        self.status = response.status;
        self.cache = response.cache;
        self.upstream = response.upstream.take();
        self.reason = response.fault.or(self.reason);
        self.failed_fwd = response.failed_fwd;
        let counters = &self.worker.counters;
        self.tally.respond(counters, &self.serving.routes, response);
    }

    /// Returns the bytes of content sent.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.tally.body_bytes()
    }

    /// Records and counts the bytes of content that have been sent so far, at least.
    #[inline]
    pub fn note_sent(&mut self, bytes: u64) {
        let counters = &self.worker.counters;
        self.tally.sent(counters, &self.serving.routes, bytes);
    }

    /// Takes the route and its log selection, which the handler has set by now. `response` is the response, unless it has to
    /// be waited for. No other request of the worker has begun since this one.
    #[inline]
    pub fn handler_called(&mut self, response: Option<&Response>) {
        self.tally.choose(&self.serving.routes);
        let is_failed = |response: &Response| response.fault.is_some() || response.status >= 500;
        if response.is_none_or(is_failed) {
            self.keep_sample();
        }
        if let (Some(line), Some(log)) = (&mut self.line, &self.serving.log) {
            line.selection = log.take_selection();
        }
    }

    /// Has the request sampled in any case, since it waits or has failed.
    fn keep_sample(&mut self) {
        match &mut self.sample {
            Some(sample) => Sampler::single(sample),
            None => self.sample = self.worker.sampler.keep(),
        }
    }

    /// Passes the sample of the request on, if it is sampled or has failed.
    #[cold]
    fn send_sample(&mut self, request_us: u64) {
        let sampler = &self.worker.sampler;
        // A response from memory may be cut after other requests have begun. Its URL is not known then.
        let sample = self.sample.take().or_else(|| sampler.uncounted(None, b""));
        let Some(mut sample) = sample else { return };
        sample.result = SampleResult {
            status: self.status,
            reason: self.reason,
            is_cut: !self.complete,
            is_miss: self.tally.is_miss(),
            body_bytes: self.body_bytes(),
            // The time of a tunnel says nothing about the URL.
            request_us: if self.status == 101 { 0 } else { request_us },
            server: self
                .upstream
                .as_ref()
                .and_then(|upstream| upstream.server.get()),
        };
        sampler.send(sample);
    }

    /// Counts and logs the request. Further calls do nothing.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let request_us = self.request_us();
        // A tunnel's end says nothing about how fast the request was processed.
        let is_timed = self.counted && self.status != 101;
        let duration_us = is_timed.then_some(request_us);
        let counters = &self.worker.counters;
        self.tally
            .close(counters, &self.serving.routes, duration_us, self.complete);
        count_reasons(counters, self.named_reason(), self.forwarded());
        if let Some(line) = self.line.take() {
            self.log(&line, request_us);
        }
        if self.sample.is_some() || self.reason.is_some() {
            self.send_sample(request_us);
        }
    }

    /// Returns the microseconds since the beginning of the request. If the request was answered
    /// without waiting, and is not logged, this is an estimate.
    #[inline]
    fn request_us(&self) -> u64 {
        let Worker {
            clock,
            quick_durations,
            ..
        } = &*self.worker;
        match self.line.is_none() && clock.is_recent(self.began_us) {
            true => quick_durations.of(clock, self.began_us),
            false => clock.read_us().saturating_sub(self.began_us),
        }
    }

    /// Returns the reason of the request for the counters and the log.
    #[inline]
    fn named_reason(&self) -> Option<Reason> {
        self.reason.or(self.cache.and_then(|cache| cache.detail))
    }

    /// Returns the reason for which a cache forwarded the request.
    #[inline]
    fn forwarded(&self) -> Option<Fwd> {
        match self.cache.map(|cache| cache.outcome) {
            Some(Outcome::Fwd(fwd)) => Some(fwd),
            Some(Outcome::Hit | Outcome::Own) => None,
            None => self.failed_fwd,
        }
    }

    /// Returns the status to log.
    fn logged_status(&self) -> Status {
        match (self.status, self.reason) {
            (0, Some(Reason::ClientGone)) => CLIENT_GONE,
            // HTTP/2 resets a stream in place of the response.
            (0, Some(reason)) => reason.status().unwrap_or(0),
            (status, _) => status,
        }
    }

    fn log(&self, line: &LogLine, request_us: u64) {
        let Some(log) = &self.serving.log else { return };
        if let Some(selection) = &line.selection
            && !selection.takes(self.logged_status(), request_us)
        {
            return;
        }
        let text =
            |range: &Range<usize>| std::str::from_utf8(&line.text[range.clone()]).unwrap_or("");
        let value = |range: &Option<Range<usize>>| range.clone().map(|range| &line.text[range]);
        let header = |i: usize| value(&line.headers[i]);
        let more: SmallVec<[Option<&[u8]>; 4]> = line.more.iter().map(value).collect();
        let sent = self.upstream.as_ref();
        let sent = sent.and_then(|upstream| upstream.request_id.borrow().clone());
        let sent = sent.filter(|id| Some(id) != self.request_id.as_ref());
        let trace = self.trace.as_ref();
        let trace = trace.map(|trace| (trace.trace_id(), trace.span_id()));
        log.record(&AccessRecord {
            request_id: self.request_id.as_ref().map(RequestId::as_str),
            upstream_request_id: sent.as_ref().map(RequestId::as_str),
            trace: (trace.as_ref()).map(|(trace, span)| (trace.as_str(), span.as_str())),
            time_unix_ms: line.time_unix_ms,
            client: line.peer.client,
            peer: line.peer.address,
            scheme: line.peer.scheme.as_str(),
            tls: line.peer.tls.map(|session| AccessTls {
                version: session.version(),
                cipher: session.cipher(),
                group: session.group(),
                resumed: session.resumed(),
                certificate: line
                    .certificate
                    .as_ref()
                    .map(|its| (&*its.subject, &*its.fingerprint)),
            }),
            method: text(&line.method),
            authority: text(&line.authority),
            target: text(&line.target),
            version: line.version,
            refused_line: &line.text[line.refused_line.clone()],
            status: self.logged_status(),
            body_bytes: self.body_bytes(),
            referer: header(0),
            user_agent: header(1),
            range: header(2),
            request_headers: &more,
            cache: (self.cache.map(|cache| cache.word())).or(self.failed_fwd.map(Fwd::as_str)),
            reason: self.named_reason(),
            request_us,
            upstream: self.upstream.as_ref().map(|upstream| AccessUpstream {
                server: upstream.server.get(),
                tries: upstream.tries.get(),
                status: upstream.status.get(),
                connect_us: upstream.connect_us.get(),
                header_us: upstream.header_us.get(),
                response_us: upstream.response_us.get(),
                redirects: upstream.followed.get().count,
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
        line.certificate = head.certificate.clone();
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
            certificate: None,
            time_unix_ms: worker.clock.unix_ms(),
            version: "",
            text: Vec::with_capacity(256),
            method: 0..0,
            authority: 0..0,
            target: 0..0,
            refused_line: 0..0,
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
