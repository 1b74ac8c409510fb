//! Records which exchange uses which connection, for the admin API.
//!
//! Each pool has a `Recorder`. A connection has a `ConnectionRecord`, which notes the close when it is dropped, and an
//! exchange has an `ExchangeRecording`, which notes the result when it is dropped.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::http::Status;
use crate::reason::Reason;
use crate::sys::Clock;
use crate::telemetry::{ClosedBy, ConnectionFacts, ExchangeEnd, ExchangeResult, ExchangeRing};

/// Number of connections to servers that were opened so far in this process.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The recorder of one worker's exchanges with the servers of an upstream.
#[derive(Clone)]
pub(super) struct Recorder {
    ring: Arc<ExchangeRing>,
    clock: Clock,
}

/// A connection whose exchanges are recorded. Dropping this records that the connection is closed.
pub(super) struct ConnectionRecord(Rc<Recorded>);

struct Recorded {
    recorder: Recorder,
    facts: ConnectionFacts,
    /// Number of exchanges so far.
    exchanges: Cell<u32>,
    /// Position of the last exchange in the ring.
    last: Cell<Option<u64>>,
    is_ended_by_server: Cell<bool>,
}

/// An exchange in progress. Dropping this records the result.
pub(super) struct ExchangeRecording {
    connection: Rc<Recorded>,
    position: u64,
    /// Bytes of content received.
    bytes: u64,
    /// Status of the response, and the time until its head in microseconds.
    head: Option<(Status, u32)>,
    /// Time of the end of the response.
    ended_us: Option<u64>,
    failure: Option<Reason>,
}

impl Recorder {
    pub(super) fn new(ring: Arc<ExchangeRing>, clock: Clock) -> Recorder {
        Recorder { ring, clock }
    }

    /// Records the exchanges of a connection that was just opened to the server with this id. `began_us`: the time at which
    /// opening it began; `tls`: the duration of the handshake.
    pub(super) fn opened(
        &self,
        server: u64,
        began_us: u64,
        tls: Option<Duration>,
        is_http2: bool,
    ) -> ConnectionRecord {
        let opened_us = self.clock.monotonic_us();
        let facts = ConnectionFacts {
            number: OPENED.fetch_add(1, Ordering::Relaxed) + 1,
            server,
            opened_us,
            connect_us: short(opened_us.saturating_sub(began_us)),
            // A handshake is limited by `connect_timeout`, so its microseconds fit.
            tls_us: tls.map(|tls| short(tls.as_micros() as u64)),
            is_http2,
        };
        ConnectionRecord(Rc::new(Recorded {
            recorder: self.clone(),
            facts,
            exchanges: Cell::new(0),
            last: Cell::new(None),
            is_ended_by_server: Cell::new(false),
        }))
    }

    /// Returns the current time.
    pub(super) fn now_us(&self) -> u64 {
        self.clock.monotonic_us()
    }
}

impl ConnectionRecord {
    /// Records an exchange whose request, with this target, is sent at the time `began_us`.
    pub(super) fn begin(&self, target: &str, began_us: u64) -> ExchangeRecording {
        let Recorded {
            recorder,
            facts,
            exchanges,
            last,
            ..
        } = &*self.0;
        exchanges.set(exchanges.get().saturating_add(1));
        let ring = &recorder.ring;
        let position = ring.begin(facts, exchanges.get(), began_us, target.as_bytes());
        last.set(Some(position));
        ExchangeRecording {
            connection: self.0.clone(),
            position,
            bytes: 0,
            head: None,
            ended_us: None,
            failure: None,
        }
    }

    /// Notes that the server has closed the connection, or announced that it will.
    pub(super) fn note_server_ends(&self) {
        self.0.is_ended_by_server.set(true);
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        let by = match self.0.is_ended_by_server.get() {
            true => ClosedBy::Server,
            false => ClosedBy::Sluice,
        };
        if let Some(last) = self.0.last.get() {
            let recorder = &self.0.recorder;
            recorder.ring.close(last, recorder.now_us(), by);
        }
    }
}

impl ExchangeRecording {
    /// Notes the status of the response, and the time from sending the request to the head, in microseconds.
    pub(super) fn note_head(&mut self, status: Status, head_us: u64) {
        self.head = Some((status, short(head_us)));
    }

    /// Notes bytes of content that were received.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Notes that the response is complete since the time `now_us`, unless that is known.
    pub(super) fn note_end(&mut self, now_us: u64) {
        self.ended_us.get_or_insert(now_us);
    }

    /// Notes that the exchange failed.
    pub(super) fn note_failure(&mut self, reason: Reason) {
        self.failure = Some(reason);
    }
}

impl Drop for ExchangeRecording {
    fn drop(&mut self) {
        let (status, head_us) = self.head.unwrap_or_default();
        let recorder = &self.connection.recorder;
        let end = match (self.failure, self.ended_us) {
            (Some(_), _) => ExchangeEnd::Failed,
            (None, Some(_)) => ExchangeEnd::Complete,
            // A tunnel has no other end than that of the connection.
            (None, None) if status == 101 => ExchangeEnd::Complete,
            (None, None) => ExchangeEnd::Cancelled,
        };
        let result = ExchangeResult {
            ended_us: self.ended_us.unwrap_or_else(|| recorder.now_us()),
            status,
            head_us,
            bytes: self.bytes,
            end,
            reason: self.failure,
        };
        recorder.ring.end(self.position, &result);
    }
}

/// Returns a duration of at most 71 minutes.
fn short(us: u64) -> u32 {
    // The greatest value says that there is none.
    u32::try_from(us).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ExchangeRecord;

    fn recorder() -> (Recorder, Clock, Arc<ExchangeRing>) {
        let (clock, ring) = (Clock::manual(1), Arc::<ExchangeRing>::default());
        (Recorder::new(ring.clone(), clock.clone()), clock, ring)
    }

    fn end(record: &ExchangeRecord) -> (ExchangeEnd, u16, u64) {
        let result = record.result.expect("an exchange that has ended");
        (result.end, result.status, result.ended_us)
    }

    #[test]
    fn exchanges_of_a_connection_are_counted_and_its_close_is_noted() {
        let (recorder, clock, ring) = recorder();
        let tls = Some(Duration::from_micros(200));
        let connection = recorder.opened(7, 999_000, tls, false);
        let mut first = connection.begin("/a", 1_000_100);
        first.note_head(200, 50);
        first.note_bytes(10);
        first.note_bytes(20);
        first.note_end(1_000_300);
        drop(first);
        clock.advance_us(500);
        let second = connection.begin("/b", 1_000_500);
        assert_eq!(ring.read()[1].result, None);
        clock.advance_us(500);
        drop(second);
        connection.note_server_ends();
        drop(connection);
        let all = ring.read();
        let facts = all[0].connection;
        assert_eq!(
            (
                facts.server,
                facts.opened_us,
                facts.connect_us,
                facts.tls_us
            ),
            (7, 1_000_000, 1000, Some(200))
        );
        assert_eq!((all[0].nth, all[1].nth), (1, 2));
        assert_eq!(all[1].connection, facts);
        assert_eq!(end(&all[0]), (ExchangeEnd::Complete, 200, 1_000_300));
        assert_eq!(end(&all[1]), (ExchangeEnd::Cancelled, 0, 1_001_000));
        assert_eq!(
            all[0].result.map(|one| (one.bytes, one.head_us)),
            Some((30, 50))
        );
        assert_eq!(all[1].closed, Some((1_001_000, ClosedBy::Server)));
    }

    #[test]
    fn a_failure_is_noted_with_its_reason() {
        let (recorder, _, ring) = recorder();
        let connection = recorder.opened(1, 0, None, true);
        let mut exchange = connection.begin("/", 1_000_000);
        exchange.note_failure(Reason::BodyCut);
        drop(connection);
        drop(exchange);
        let all = ring.read();
        assert_eq!(
            all[0].result.and_then(|one| one.reason),
            Some(Reason::BodyCut)
        );
        assert_eq!(end(&all[0]).0, ExchangeEnd::Failed);
        assert_eq!(all[0].closed.map(|(_, by)| by), Some(ClosedBy::Sluice));
        assert!(all[0].connection.is_http2);
    }

    #[test]
    fn each_connection_has_another_number() {
        let (recorder, _, _) = recorder();
        let number = || recorder.opened(1, 0, None, false).0.facts.number;
        assert_ne!(number(), number());
    }
}
