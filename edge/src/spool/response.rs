//! Reads the content of a response as fast as the origin sends it, while memory and disk have room.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::task::JoinHandle;

use super::buffer::Buffer;
use crate::handler::{Body, BodyStream, Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;

/// The content between the task that reads it and the client.
struct Queue {
    buffer: Buffer,
    trailers: Option<Fields>,
    /// The end of the content, once it is known: complete, or with a fault.
    end: Option<Result<(), Fault>>,
    /// The task that sends the content.
    reader: Option<Waker>,
    /// The task that reads the content, while it waits for room.
    filler: Option<Waker>,
}

/// The end at which the content is read by the client's task.
struct ReadAhead {
    queue: Rc<RefCell<Queue>>,
    /// Bytes that the client has not taken, if known.
    left: Option<u64>,
    filler: JoinHandle<()>,
}

/// The end at which content is added. If it is dropped before the content's end, the content ends with a fault.
struct Filler(Rc<RefCell<Queue>>);

/// Has a body read by a task of its own.
pub(super) fn read_ahead(body: Body, buffer: Buffer) -> Body {
    let queue = Rc::new(RefCell::new(Queue {
        buffer,
        trailers: None,
        end: None,
        reader: None,
        filler: None,
    }));
    let left = body.length();
    let filler = tokio::task::spawn_local(fill(body, Filler(queue.clone())));
    Body::stream(ReadAhead {
        queue,
        left,
        filler,
    })
}

async fn fill(mut body: Body, filler: Filler) {
    let end = loop {
        // Frames may be as small as a byte and need no wait, and other tasks of the worker must run.
        tokio::task::coop::consume_budget().await;
        match body.frame().await {
            None => break Ok(()),
            Some(Err(fault)) => break Err(fault),
            Some(Ok(Frame::Trailers(fields))) => filler.0.borrow_mut().trailers = Some(fields),
            // Responses of origins have no parts of files.
            Some(Ok(Frame::File(_))) => break Err(Reason::BadBody.into()),
            Some(Ok(Frame::Data(bytes))) => {
                poll_fn(|cx| filler.0.borrow_mut().poll_push(cx, &bytes)).await;
            }
        }
    };
    filler.0.borrow_mut().finish(end);
}

impl Queue {
    /// Adds bytes. Pending while there is no room for them, unless the client has taken everything. If the disk fails,
    /// the buffer has the room in memory only.
    fn poll_push(&mut self, cx: &mut Context<'_>, bytes: &bytes::Bytes) -> Poll<()> {
        if let Poll::Ready(Ok(())) = self.buffer.poll_push(cx, bytes, true) {
            self.wake_reader();
            return Poll::Ready(());
        }
        self.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    fn finish(&mut self, end: Result<(), Fault>) {
        self.end.get_or_insert(end);
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let mut queue = self.0.borrow_mut();
        if queue.end.is_none() {
            queue.finish(Err(Reason::Panic.into()));
        }
    }
}

impl BodyStream for ReadAhead {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut queue = self.queue.borrow_mut();
        if let Some(bytes) = ready!(queue.buffer.poll_pop(cx)) {
            if let Some(filler) = queue.filler.take() {
                filler.wake();
            }
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(reason) => return Poll::Ready(Some(Err(reason.into()))),
            };
            self.left = self
                .left
                .map(|left| left.saturating_sub(bytes.len() as u64));
            return Poll::Ready(Some(Ok(Frame::Data(bytes))));
        }
        match queue.end {
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(Err(fault)) => Poll::Ready(Some(Err(fault))),
            Some(Ok(())) => {
                let trailers = queue.trailers.take().map(Frame::Trailers);
                Poll::Ready(trailers.map(Ok))
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.left
    }
}

/// If the client leaves, the origin's response is abandoned.
impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.filler.abort();
    }
}
