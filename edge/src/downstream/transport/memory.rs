//! A connected pair of transports in memory, for tests that control every byte and every pause.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// One end of a connected pair of transports. Dropping it closes both directions.
pub struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
}

/// Unread bytes of one direction, at most `capacity`.
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    writer_closed: bool,
    reader_closed: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn new(capacity: usize) -> Rc<RefCell<Pipe>> {
        Rc::new(RefCell::new(Pipe {
            bytes: VecDeque::new(),
            capacity,
            writer_closed: false,
            reader_closed: false,
            reset: false,
            reader: None,
            writer: None,
        }))
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }
}

/// Creates a pair of ends with buffers of `capacity` bytes in each direction.
pub fn pair(capacity: usize) -> (End, End) {
    let (a, b) = (Pipe::new(capacity), Pipe::new(capacity));
    let one = End {
        incoming: a.clone(),
        outgoing: b.clone(),
    };
    let other = End {
        incoming: b,
        outgoing: a,
    };
    (one, other)
}

impl End {
    /// Reads like `recv(2)`: returns 0 after the other end has closed its direction.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.incoming.borrow_mut();
        if pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.bytes.is_empty() && !pipe.writer_closed {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = buf.len().min(pipe.bytes.len());
        for (to, from) in buf.iter_mut().zip(pipe.bytes.drain(..n)) {
            *to = from;
        }
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(n))
    }

    /// Reads like `poll_read`, but never waits. Returns `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let has_arrived = {
            let pipe = self.incoming.borrow();
            pipe.reset || pipe.writer_closed || !pipe.bytes.is_empty()
        };
        let mut cx = Context::from_waker(Waker::noop());
        match has_arrived.then(|| self.poll_read(&mut cx, buf)) {
            Some(Poll::Ready(read)) => read.map(Some),
            _ => Ok(None),
        }
    }

    /// Waits until the other end has closed its direction, even if unread bytes are left.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.borrow_mut();
        if pipe.reset || pipe.writer_closed {
            return Poll::Ready(Ok(()));
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Writes like `writev(2)`: takes as many bytes as there is room for.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.reader_closed || pipe.writer_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = pipe.capacity - pipe.bytes.len();
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = pipe.bytes.len();
        pipe.bytes
            .extend(slices.iter().flat_map(|s| s.iter()).take(room).copied());
        let n = pipe.bytes.len() - before;
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(n))
    }

    /// Closes the direction in which this end writes.
    pub fn shutdown_write(&mut self) {
        let mut pipe = self.outgoing.borrow_mut();
        pipe.writer_closed = true;
        pipe.wake();
    }

    /// Closes both directions so that the other end sees an error instead of an end of file.
    pub fn reset(&mut self) {
        self.outgoing.borrow_mut().reset = true;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shutdown_write();
        let mut pipe = self.incoming.borrow_mut();
        pipe.reader_closed = true;
        pipe.wake();
    }
}
