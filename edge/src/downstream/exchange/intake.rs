//! The intake of a request body: from the protocol, which decodes it, to the handler, which reads
//! it, with limits and back-pressure.
//!
//! The protocol fills a small queue, and the handler empties it, possibly in another task of the
//! same worker. Each of the two wakes the other. Bytes that wait in the queue are gathered in large
//! frames, so that a client that sends single bytes does not cause a frame for each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::downstream::Refusal;
use crate::handler::{BodyStream, Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;

/// Number of waiting bytes from which on the queue takes no more.
const QUEUED_BYTES_MAX: usize = 64 << 10;
/// Largest frame that is gathered of smaller pieces, in bytes.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// Refuses a body whose declared length is over `limit` (0: no limit).
///
/// # Errors
///
/// A refusal with status 413.
#[inline]
pub fn check_declared(length: u64, limit: u64) -> Result<(), Refusal> {
    match limit > 0 && length > limit {
        true => Err(Refusal::BODY_TOO_LARGE),
        false => Ok(()),
    }
}

/// The protocol's end of a request body's queue. If it is dropped before the body's end, the reader
/// gets a fault.
pub struct Intake {
    queue: Rc<RefCell<Queue>>,
    received: u64,
    /// Longest body in bytes. 0: no limit.
    limit: u64,
}

/// The handler's end of a request body's queue.
struct IntakeBody {
    queue: Rc<RefCell<Queue>>,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// The bytes after `frames`.
    gathered: Vec<u8>,
    /// Number of waiting bytes.
    bytes: usize,
    /// Number of bytes that have left the queue since the last call of `poll_taken`.
    taken: usize,
    /// Bytes still to arrive, if the length is declared.
    left: Option<u64>,
    ended: bool,
    fault: Option<Fault>,
    /// Whether the reader has polled, and so wants the body.
    wanted: bool,
    /// Whether the reader has dropped the body.
    abandoned: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

impl Intake {
    /// Creates both ends of a body's queue. The body has `declared` bytes if its length is known,
    /// and at most `limit` bytes (0: no limit).
    pub fn new(declared: Option<u64>, limit: u64) -> (Intake, impl BodyStream) {
        let queue = Rc::new(RefCell::new(Queue {
            left: declared,
            ..Queue::default()
        }));
        let intake = Intake {
            queue: queue.clone(),
            received: 0,
            limit,
        };
        (intake, IntakeBody { queue })
    }

    /// Returns the fault that ended the body early, if there is one.
    pub fn fault(&self) -> Option<Fault> {
        self.queue.borrow().fault
    }

    /// Ready if the queue has room and the reader wants more. If not, `cx` is woken when
    /// that may have changed.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.queue.borrow_mut();
        let stopped = queue.ended || queue.fault.is_some() || queue.abandoned;
        if !stopped && queue.wanted && queue.bytes < QUEUED_BYTES_MAX {
            return Poll::Ready(());
        }
        queue.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the reader has polled, and so wants the body.
    pub fn is_wanted(&self) -> bool {
        self.queue.borrow().wanted
    }

    /// Returns the number of bytes that wait for the reader.
    pub fn queued(&self) -> usize {
        self.queue.borrow().bytes
    }

    /// Whether the reader waits for content and none is there.
    pub fn is_starved(&self) -> bool {
        let queue = self.queue.borrow();
        queue.wanted && queue.bytes == 0 && !queue.abandoned && queue.fault.is_none()
    }

    /// Returns the number of bytes that the reader has taken or dropped since the last call. `cx` is woken when it takes
    /// more, when it begins to read, and when it drops the body.
    pub fn poll_taken(&self, cx: &mut Context<'_>) -> usize {
        let mut queue = self.queue.borrow_mut();
        queue.connection = Some(cx.waker().clone());
        std::mem::take(&mut queue.taken)
    }

    /// Whether the reader has dropped the body.
    pub fn is_abandoned(&self) -> bool {
        self.queue.borrow().abandoned
    }

    /// Counts received bytes of the body against the limit.
    ///
    /// # Errors
    /// The body is over the limit.
    pub fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        self.received += bytes as u64;
        match self.limit > 0 && self.received > self.limit {
            true => Err(Reason::RequestBodyTooLarge.into()),
            false => Ok(()),
        }
    }

    /// Queues bytes of the body for the reader, and wakes it.
    pub fn push(&mut self, data: &[u8]) {
        let mut queue = self.queue.borrow_mut();
        if queue.abandoned {
            queue.taken += data.len();
            return;
        }
        queue.bytes += data.len();
        queue.left = queue
            .left
            .map(|left| left.saturating_sub(data.len() as u64));
        if queue.gathered.len() + data.len() > GATHERED_BYTES_MAX {
            queue.end_frame();
        }
        queue.gathered.extend_from_slice(data);
        queue.wake_reader();
    }

    /// Ends the body, with its trailers if there are some.
    pub fn end(&mut self, trailers: Option<Fields>) {
        let mut queue = self.queue.borrow_mut();
        queue.end_frame();
        queue.frames.extend(trailers.map(Frame::Trailers));
        queue.ended = true;
        queue.wake_reader();
    }

    /// Ends the body with a fault, unless it has already ended.
    pub fn fail(&self, fault: Fault) {
        let mut queue = self.queue.borrow_mut();
        if !queue.ended {
            queue.fault.get_or_insert(fault);
        }
        queue.wake_reader();
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.fail(Reason::ClientGone.into());
    }
}

impl Queue {
    /// Makes a frame of the gathered bytes, if there are some.
    fn end_frame(&mut self) {
        if !self.gathered.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.gathered));
            self.frames.push_back(Frame::Data(bytes));
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Wakes the connection, for which the reader has changed something. A poll that finds nothing must not wake it: in
    /// HTTP/2 the connection itself polls the reader, and would be woken for ever.
    fn wake_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.wake();
        }
    }
}

impl BodyStream for IntakeBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut queue = self.queue.borrow_mut();
        if !std::mem::replace(&mut queue.wanted, true) {
            queue.wake_connection();
        }
        if queue.frames.is_empty() {
            queue.end_frame();
        }
        if let Some(frame) = queue.frames.pop_front() {
            if let Frame::Data(bytes) = &frame {
                queue.bytes -= bytes.len();
                queue.taken += bytes.len();
            }
            queue.wake_connection();
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(fault) = queue.fault {
            return Poll::Ready(Some(Err(fault)));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        queue.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn length(&self) -> Option<u64> {
        let queue = self.queue.borrow();
        queue.left.map(|left| left + queue.bytes as u64)
    }
}

impl Drop for IntakeBody {
    fn drop(&mut self) {
        let mut queue = self.queue.borrow_mut();
        queue.abandoned = true;
        queue.taken += std::mem::take(&mut queue.bytes);
        queue.frames.clear();
        queue.gathered = Vec::new();
        queue.wake_connection();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::handler::Body;

    /// A waker that counts.
    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_body_is_taken_only_as_its_reader_wants_it() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(Some(5), 0);
        let mut body = Body::stream(stream);
        assert!(intake.poll_room(&mut cx).is_pending(), "nobody has polled");
        assert!(body.poll_frame(&mut cx).is_pending());
        assert!(intake.poll_room(&mut cx).is_ready());
        intake.push(b"abcde");
        intake.end(None);
        assert_eq!(body.length(), Some(5));
        assert!(
            matches!(body.poll_frame(&mut cx), Poll::Ready(Some(Ok(Frame::Data(b)))) if b == "abcde")
        );
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn a_reader_that_finds_nothing_does_not_wake_the_connection() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let woken = || count.0.swap(0, Ordering::Relaxed);
        let mut connection = Context::from_waker(&waker);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(None, 0);
        let mut body = Body::stream(stream);
        assert_eq!(intake.poll_taken(&mut connection), 0);
        assert!(body.poll_frame(&mut cx).is_pending());
        assert_eq!(woken(), 1, "the reader has begun");
        for _ in 0..3 {
            assert_eq!(intake.poll_taken(&mut connection), 0);
            assert!(body.poll_frame(&mut cx).is_pending());
            assert_eq!(woken(), 0);
        }
        intake.push(b"abc");
        assert!(body.poll_frame(&mut cx).is_ready());
        assert_eq!(woken(), 1, "the reader has taken bytes");
        assert_eq!(intake.poll_taken(&mut connection), 3);
        drop(body);
        assert_eq!(woken(), 1, "the reader has dropped the body");
    }

    #[test]
    fn small_pieces_are_gathered_in_large_frames() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(None, 0);
        let mut body = Body::stream(stream);
        assert!(body.poll_frame(&mut cx).is_pending());
        let mut pushed = 0;
        while intake.poll_room(&mut cx).is_ready() {
            intake.push(b"x");
            pushed += 1;
        }
        assert_eq!(pushed, QUEUED_BYTES_MAX);
        let mut trailers = Fields::new();
        trailers.append("x-sum", "1");
        intake.end(Some(trailers));
        for _ in 0..QUEUED_BYTES_MAX / GATHERED_BYTES_MAX {
            let Poll::Ready(Some(Ok(Frame::Data(bytes)))) = body.poll_frame(&mut cx) else {
                panic!("all bytes have arrived");
            };
            assert_eq!(bytes.len(), GATHERED_BYTES_MAX);
        }
        let last = body.poll_frame(&mut cx);
        assert!(matches!(last, Poll::Ready(Some(Ok(Frame::Trailers(_))))));
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn an_intake_that_is_dropped_early_is_a_fault() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut intake, stream) = Intake::new(None, 4);
        let mut body = Body::stream(stream);
        assert_eq!(intake.count(3), Ok(()));
        intake.push(b"abc");
        assert_eq!(intake.count(2), Err(Reason::RequestBodyTooLarge.into()));
        drop(intake);
        assert!(body.poll_frame(&mut cx).is_ready());
        assert!(matches!(
            body.poll_frame(&mut cx),
            Poll::Ready(Some(Err(f))) if f.reason == Reason::ClientGone
        ));
    }
}
