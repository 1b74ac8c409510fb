//! Receives the content of a response from the origin.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::forward::Forward;
use super::inbound::{SLOW_US, Step};
use super::lease::Lease;
use super::resume::{Resume, Resumed};
use crate::handler::{BodyStream, Fault, Frame, Piece};
use crate::reason::Reason;
use crate::sys::Clock;

/// The content still to be received, and the connection from which it is read. If this is dropped
/// before the content's end, the connection is closed.
pub(super) struct Download {
    /// The request.
    pub(super) forward: Box<Forward>,
    pub(super) lease: Option<Lease>,
    /// Content that was received together with the head.
    pub(super) first: Option<Bytes>,
    /// Bytes of content still to be received, if the response has Content-Length.
    pub(super) left: Option<u64>,
    /// The ability to continue the content on another server.
    pub(super) resume: Option<Box<Resume>>,
    /// Times at which the first request for the content was sent, and the one on `lease`, in
    /// microseconds of the upstream's clock.
    pub(super) began_us: u64,
    pub(super) sent_us: u64,
    client: ClientPace,
}

/// The times that the client's side takes between two pieces of content.
#[derive(Default)]
struct ClientPace {
    /// Time at which the last piece was taken, in microseconds of the upstream's clock, unless more
    /// was wanted since.
    taken_us: Option<u64>,
    /// Whether the server once had to wait long.
    was_slow: bool,
}

impl ClientPace {
    fn note_wanted(&mut self, now_us: u64) {
        let since_us = self.taken_us.take().unwrap_or(now_us);
        self.was_slow |= now_us.saturating_sub(since_us) >= SLOW_US;
    }

    fn note_taken(&mut self, now_us: u64) {
        self.taken_us = Some(now_us);
    }
}

/// The reason why no content can be read from a connection any more.
enum End {
    Complete,
    Failed(Fault),
    /// The rest of the content was requested from another server.
    Resumed,
}

impl Download {
    /// Creates the download of the response to a request that was sent at the time `sent_us`.
    pub(super) fn new(forward: Box<Forward>, lease: Lease, sent_us: u64) -> Download {
        Download {
            forward,
            lease: Some(lease),
            first: None,
            left: None,
            resume: None,
            began_us: sent_us,
            sent_us,
            client: ClientPace::default(),
        }
    }

    /// Returns the next frame if it has already been received. Ready with `None` at the end of the
    /// content, whose time `now_us` reads from the clock.
    fn poll_received(&mut self, now_us: fn(&Clock) -> u64) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(None);
        };
        match lease.stream.step() {
            Ok(Step::More) => Poll::Pending,
            Ok(Step::Frame(frame)) => {
                if let Frame::Data(bytes) = &frame {
                    self.note_bytes(bytes.len() as u64);
                }
                if self.has_ended() {
                    self.finish(now_us(&self.forward.upstream.clock));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(Step::End) => {
                self.finish(now_us(&self.forward.upstream.clock));
                Poll::Ready(None)
            }
            Err(fault) => {
                self.fail(fault);
                Poll::Ready(Some(Err(fault)))
            }
        }
    }

    /// Takes the content if all of it was received together with the head, which is usual for small
    /// content.
    pub(super) fn take_whole(&mut self) -> Result<Option<Bytes>, Fault> {
        // The clock was read when the head had arrived.
        let first = match self.poll_received(Clock::recent_us) {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => bytes,
            Poll::Ready(Some(Err(fault))) => return Err(fault),
            _ => return Ok(None),
        };
        if self.lease.is_none() {
            return Ok(Some(first));
        }
        self.first = Some(first);
        Ok(None)
    }

    /// After a read that returned no data: ready if the content has ended or failed.
    fn poll_end(&mut self, read: Poll<Result<usize, Fault>>) -> Poll<End> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(End::Complete);
        };
        let ended = match read {
            Poll::Ready(Ok(_)) => lease.stream.end_of_connection(),
            Poll::Ready(Err(fault)) => Err(fault),
            Poll::Pending => match lease.stream.watch_body(&self.forward.upstream.limits) {
                Some(late) => Err(late.into()),
                None => return Poll::Pending,
            },
        };
        let Err(fault) = ended else {
            self.finish(self.forward.upstream.clock.monotonic_us());
            return Poll::Ready(End::Complete);
        };
        let server = self.fail(fault);
        let resumed = match (server, &mut self.resume, self.left) {
            (Some(server), Some(resume), Some(left)) => {
                resume.begin(&self.forward, server, fault, left)
            }
            _ => false,
        };
        Poll::Ready(match resumed {
            true => End::Resumed,
            false => End::Failed(fault),
        })
    }

    /// Waits for the rest of the content if it was requested from another server.
    fn poll_resumed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Some(resume) = &mut self.resume else {
            return Poll::Ready(Ok(()));
        };
        Poll::Ready(match ready!(resume.poll(cx)) {
            None => Ok(()),
            Some(Ok(Resumed { lease, sent_us })) => {
                (self.lease, self.sent_us) = (Some(lease), sent_us);
                Ok(())
            }
            Some(Err(fault)) => Err(fault),
        })
    }

    /// Whether all content has been received and taken.
    fn has_ended(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.stream.has_ended())
    }

    fn note_bytes(&mut self, n: u64) {
        let record = &self.forward.record;
        record.body_bytes.set(record.body_bytes.get() + n);
        if let Some(lease) = &mut self.lease {
            lease.note_bytes(n);
        }
        self.forward
            .upstream
            .count_bytes(self.forward.options.counters(), n);
        self.left = self.left.map(|left| left.saturating_sub(n));
    }

    /// Returns the connection to the pool, since the content is complete.
    pub(super) fn finish(&mut self, now_us: u64) {
        if let Some(mut lease) = self.lease.take() {
            self.note_time(now_us);
            let took_us = now_us.saturating_sub(self.sent_us);
            lease.note_end(took_us, now_us);
            let upstream = &self.forward.upstream;
            upstream.count_end(self.forward.options.counters(), &mut lease, took_us, now_us);
            upstream.pool.give_back(lease, now_us);
        }
    }

    /// Closes the connection after a fault. Returns its server.
    fn fail(&mut self, fault: Fault) -> Option<usize> {
        let mut lease = self.lease.take()?;
        self.note_time(self.forward.upstream.clock.monotonic_us());
        // Servers limit the time for which a client may take nothing.
        if !(self.client.was_slow && fault.reason == Reason::BodyCut) {
            lease.note_failure(&fault);
        }
        self.forward.count_failure(lease.server(), &fault);
        Some(lease.server())
    }

    /// Notes the duration of the exchange, which ended at the time `now_us`.
    fn note_time(&self, now_us: u64) {
        let took_us = now_us.saturating_sub(self.began_us);
        self.forward.record.response_us.set(Some(took_us));
    }
}

impl Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::Data(first))));
        }
        loop {
            if let Err(fault) = ready!(self.poll_resumed(cx)) {
                return Poll::Ready(Some(Err(fault)));
            }
            if let Poll::Ready(frame) = self.poll_received(Clock::monotonic_us) {
                return Poll::Ready(frame);
            }
            let Some(lease) = &mut self.lease else {
                return Poll::Ready(None);
            };
            match lease.stream.poll_content(cx, None) {
                Poll::Ready(Ok(1..)) => {}
                read => match ready!(self.poll_end(read)) {
                    End::Complete => return Poll::Ready(None),
                    End::Failed(fault) => return Poll::Ready(Some(Err(fault))),
                    End::Resumed => {}
                },
            }
        }
    }

    fn poll_next_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        if self.first.is_none()
            && let Some(lease) = &mut self.lease
            && lease.stream.may_fill(room)
        {
            let read = lease.stream.poll_content(cx, Some(room));
            if let Poll::Ready(Ok(n @ 1..)) = read {
                self.note_bytes(n as u64);
                if self.has_ended() {
                    self.finish(self.forward.upstream.clock.monotonic_us());
                }
                return Poll::Ready(Some(Ok(Piece::Placed)));
            }
            match ready!(self.poll_end(read)) {
                End::Complete => return Poll::Ready(None),
                End::Failed(fault) => return Poll::Ready(Some(Err(fault))),
                End::Resumed => {}
            }
        }
        let polled = self.poll_next(cx);
        polled.map(|frame| frame.map(|frame| frame.map(Piece::Frame)))
    }
}

impl BodyStream for Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let now_us = self.forward.upstream.clock.recent_us();
        self.client.note_wanted(now_us);
        let polled = self.poll_next(cx);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.client.note_taken(now_us);
        }
        polled
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        let now_us = self.forward.upstream.clock.recent_us();
        self.client.note_wanted(now_us);
        let polled = self.poll_next_into(cx, room);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.client.note_taken(now_us);
        }
        polled
    }

    fn require_rate(&mut self) {
        // A body without a declared length is not continued on another connection.
        if let Some(lease) = &mut self.lease {
            lease.stream.require_rate();
        }
    }

    fn length(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        self.left.map(|left| left + first)
    }
}
