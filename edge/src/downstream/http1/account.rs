//! What is remembered of a request until its end: for framing, counting and the log line.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::downstream::worker::{Serving, Worker};
use crate::handler::{Head, Peer, Response, UpstreamTimings};
use crate::http::{CacheStatus, Fwd, Outcome, Status};
use crate::reason::Reason;
use crate::telemetry::{AccessLog, AccessRecord, AccessUpstream, Selection};

use super::render::Asked;

/// One request's account. It is closed, counted and logged when it is dropped, however that comes.
pub struct Account {
    worker: Rc<Worker>,
    /// What the request was received under.
    pub serving: Rc<Serving>,
    /// What decides over the response's framing.
    pub asked: Asked,
    /// Whether another request may follow on this connection.
    pub keep: bool,
    /// Whether the client may still be sending when the connection closes.
    pub lingers: bool,
    /// Whether the request asked for another protocol.
    pub upgrade: bool,
    /// Content bytes sent.
    pub body_bytes: u64,
    /// Whether the response was sent whole.
    pub complete: bool,
    /// Why it was not answered as it might have been.
    pub reason: Option<Reason>,
    status: Status,
    cache: Option<CacheStatus>,
    upstream: Option<Rc<UpstreamTimings>>,
    note: Option<Box<Note>>,
    closed: bool,
}

/// What the log needs of the request. Made only where there is a log.
pub struct Note {
    peer: Peer,
    time_unix_ms: u64,
    began_us: u64,
    version: &'static str,
    text: Vec<u8>,
    method: Range<usize>,
    authority: Range<usize>,
    target: Range<usize>,
    fields: [Option<Range<usize>>; 3],
    /// Those that the log asks for beside them.
    more: SmallVec<[Option<Range<usize>>; 4]>,
    /// Which requests of its route are logged; `None`: all.
    selection: Option<Rc<Selection>>,
}

/// Fields that the log shows.
const LOGGED: [&str; 3] = ["referer", "user-agent", "range"];

impl Account {
    /// Of a request that is about to be answered.
    pub fn new(
        worker: &Rc<Worker>,
        serving: Rc<Serving>,
        asked: Asked,
        note: Option<Box<Note>>,
    ) -> Account {
        worker.counters.requests_now.add(1);
        Account {
            worker: worker.clone(),
            serving,
            asked,
            keep: false,
            lingers: true,
            upgrade: false,
            body_bytes: 0,
            complete: false,
            reason: None,
            status: 0,
            cache: None,
            upstream: None,
            note,
            closed: false,
        }
    }

    /// This is what the client gets to see.
    #[inline]
    pub fn answered(&mut self, response: &mut Response) {
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

    /// Its handler has been called: what that said about the log holds for this request.
    #[inline]
    pub fn handed_over(&mut self) {
        if let (Some(note), Some(log)) = (&mut self.note, &self.serving.log) {
            note.selection = log.take_selection();
        }
    }

    /// Counts and logs; once, however often it is called.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let counters = &self.worker.counters;
        counters.requests_now.sub(1);
        if !self.complete {
            counters.responses_cut.add(1);
        }
        if let Some(note) = self.note.take() {
            self.record(&note);
        }
    }

    fn record(&self, note: &Note) {
        let Some(log) = &self.serving.log else { return };
        let now_us = self.worker.clock.monotonic_us();
        let request_us = now_us.saturating_sub(note.began_us);
        if let Some(selection) = &note.selection
            && !selection.takes(self.status, request_us)
        {
            return;
        }
        let text =
            |range: &Range<usize>| std::str::from_utf8(&note.text[range.clone()]).unwrap_or("");
        let value = |range: &Option<Range<usize>>| range.clone().map(|range| &note.text[range]);
        let field = |i: usize| value(&note.fields[i]);
        let more: SmallVec<[Option<&[u8]>; 4]> = note.more.iter().map(value).collect();
        log.record(&AccessRecord {
            time_unix_ms: note.time_unix_ms,
            client: note.peer.client,
            peer: note.peer.address,
            scheme: note.peer.scheme.as_str(),
            method: text(&note.method),
            authority: text(&note.authority),
            target: text(&note.target),
            version: note.version,
            status: self.status,
            body_bytes: self.body_bytes,
            referer: field(0),
            user_agent: field(1),
            range: field(2),
            request_fields: &more,
            cache: self.cache.map(|cache| cache.word()),
            reason: self.reason.or(self.cache.and_then(|cache| cache.detail)),
            request_us,
            upstream: self.upstream.as_ref().map(|exchange| AccessUpstream {
                server: exchange.server.get(),
                status: exchange.status.get(),
                connect_us: exchange.connect_us.get(),
                header_us: exchange.header_us.get(),
                response_us: exchange.response_us.get(),
            }),
            cut: !self.complete,
        });
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}

impl Note {
    /// Of a correct request; `target` as received.
    pub fn of(
        worker: &Worker,
        log: &AccessLog,
        peer: Peer,
        head: &Head,
        target: &[u8],
    ) -> Box<Note> {
        let mut note = Note::new(worker, peer);
        note.version = head.version.as_str();
        note.method = note.add(head.method.as_str().as_bytes());
        note.authority = note.add(head.authority.as_bytes());
        note.target = note.add(target);
        for (i, name) in LOGGED.iter().enumerate() {
            note.fields[i] = head.fields.get(name).map(|value| note.add(value));
        }
        for name in log.request_fields() {
            let value = head.fields.get(name).map(|value| note.add(value));
            note.more.push(value);
        }
        note
    }

    /// Of a request that was refused: its method and target, if the line has so much.
    pub fn of_refused(worker: &Worker, peer: Peer, input: &[u8]) -> Box<Note> {
        const SHOWN_MAX: usize = 1024;
        let mut note = Note::new(worker, peer);
        let end = memchr::memchr2(b'\r', b'\n', input).unwrap_or(input.len());
        let line = &input[..end.min(SHOWN_MAX)];
        if line.iter().all(|b| matches!(b, b' '..=b'~')) {
            let mut words = line.split(|&b| b == b' ');
            note.method = note.add(words.next().unwrap_or_default());
            note.target = note.add(words.next().unwrap_or_default());
        }
        note
    }

    fn new(worker: &Worker, peer: Peer) -> Box<Note> {
        Box::new(Note {
            peer,
            time_unix_ms: worker.clock.unix_ms(),
            began_us: worker.clock.monotonic_us(),
            version: "",
            text: Vec::with_capacity(256),
            method: 0..0,
            authority: 0..0,
            target: 0..0,
            fields: [const { None }; 3],
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
