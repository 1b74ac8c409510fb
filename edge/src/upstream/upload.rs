//! Sends the content of a request to the origin.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::hop;
use super::route_headers::RouteHeaders;
use crate::handler::{Body, Fault, Frame};

/// Most bytes of content that are kept so that they can be sent again, with their places in memory. The content fits
/// that a stream may send at first (64 KiB, RFC 9113 6.9.2), so a server that refuses the stream has received no more.
const KEPT_MAX: u64 = 96 << 10;

/// A request's content, shared by the connection that sends it and by the request, which may have
/// to be sent again. Cheap to clone; all clones share one content.
#[derive(Clone, Default)]
pub(super) struct Upload(Option<Rc<State>>);

struct State {
    body: RefCell<Body>,
    route: Rc<RouteHeaders>,
    touched: Cell<bool>,
    fault: Cell<Option<Fault>>,
    /// The frames taken since `keep` was called; `None` if they are not kept.
    kept: RefCell<Option<Kept>>,
    /// Frames that `rewind` has put back.
    again: RefCell<VecDeque<Frame>>,
    /// Whether the content has ended.
    ended: Cell<bool>,
}

/// Content that can be sent again.
#[derive(Default)]
struct Kept {
    frames: VecDeque<Frame>,
    /// Bytes of the frames, and of their places in memory.
    bytes: u64,
}

impl Kept {
    /// Adds a frame. Returns false if it cannot be kept.
    fn add(&mut self, frame: &Frame) -> bool {
        self.bytes += frame.length() + size_of::<Frame>() as u64;
        let copy = match frame {
            Frame::Data(bytes) => Frame::Data(bytes.clone()),
            Frame::Trailers(fields) => Frame::Trailers(fields.clone()),
            Frame::File(_) => return false,
        };
        self.frames.push_back(copy);
        self.bytes <= KEPT_MAX
    }
}

impl Upload {
    /// Creates the upload of a body. The headers that `route` removes are removed from trailers.
    pub(super) fn new(body: Body, route: &Rc<RouteHeaders>) -> Upload {
        Upload((!body.is_empty()).then(|| {
            Rc::new(State {
                body: RefCell::new(body),
                route: route.clone(),
                touched: Cell::default(),
                fault: Cell::default(),
                kept: RefCell::default(),
                again: RefCell::default(),
                ended: Cell::default(),
            })
        }))
    }

    /// Whether none of the content has been taken, so that it can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        self.0.as_ref().is_none_or(|state| !state.touched.get())
    }

    /// Keeps the content that is taken from now on, up to `KEPT_MAX` bytes, so that it can be sent again.
    pub(super) fn keep(&self) {
        if let Some(state) = &self.0
            && !state.touched.get()
        {
            *state.kept.borrow_mut() = Some(Kept::default());
        }
    }

    /// Keeps no content any more.
    pub(super) fn forget(&self) {
        if let Some(state) = &self.0 {
            *state.kept.borrow_mut() = None;
        }
    }

    /// Puts the kept content back, so that it is sent again. Returns whether none of the content is missing.
    pub(super) fn rewind(&self) -> bool {
        let Some(state) = &self.0 else { return true };
        if let Some(mut kept) = state.kept.take() {
            let mut again = state.again.borrow_mut();
            kept.frames.append(&mut again);
            *again = kept.frames;
            state.touched.set(false);
        }
        !state.touched.get()
    }

    /// Notes a frame that was taken.
    fn note(state: &State, frame: &Frame) {
        let mut kept = state.kept.borrow_mut();
        if kept.as_mut().is_some_and(|kept| !kept.add(frame)) {
            *kept = None;
        }
    }

    /// Whether the request has no content.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the fault with which the content ended early, if it did: the client left or was too
    /// slow.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.as_ref().and_then(|state| state.fault.get())
    }

    /// Returns the bytes of content still to be received, if known.
    pub(super) fn length(&self) -> Option<u64> {
        let Some(state) = &self.0 else { return Some(0) };
        let again: u64 = state.again.borrow().iter().map(Frame::length).sum();
        state.body.borrow().length().map(|length| length + again)
    }

    /// Returns the next frame, or `None` at the end. After a fault every call returns that fault,
    /// so that truncated content never seems complete.
    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(state) = &self.0 else {
            return Poll::Ready(None);
        };
        if let Some(fault) = state.fault.get() {
            return Poll::Ready(Some(Err(fault)));
        }
        state.touched.set(true);
        let put_back = state.again.borrow_mut().pop_front();
        if let Some(frame) = put_back {
            Upload::note(state, &frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        if state.ended.get() {
            return Poll::Ready(None);
        }
        let mut body = state.body.borrow_mut();
        let mut frame = ready!(body.poll_frame(cx));
        if let Some(Ok(Frame::Trailers(fields))) = &mut frame {
            fields.retain(|name, _| hop::may_trail(name) && !state.route.removes(name));
        }
        if let Some(Err(fault)) = &frame {
            state.fault.set(Some(*fault));
        }
        match &frame {
            Some(Ok(frame)) => Upload::note(state, frame),
            Some(Err(_)) => {}
            None => state.ended.set(true),
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Fields;
    use bytes::Bytes;

    /// Takes everything, as text.
    fn taken(upload: &Upload) -> String {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut text = String::new();
        while let Poll::Ready(Some(Ok(frame))) = upload.poll_frame(&mut cx) {
            match frame {
                Frame::Data(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Frame::Trailers(_) => text.push_str(" trailers"),
                Frame::File(_) => panic!("no file"),
            }
        }
        text
    }

    /// A body without a declared length, which ends with trailers, and must not be polled after its end.
    struct Chunks(Vec<Frame>, bool);

    impl crate::handler::BodyStream for Chunks {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
            assert!(!self.1, "polled after its end");
            let next = (!self.0.is_empty()).then(|| Ok(self.0.remove(0)));
            self.1 = next.is_none();
            Poll::Ready(next)
        }

        fn length(&self) -> Option<u64> {
            None
        }
    }

    fn chunks(bytes: Vec<Bytes>) -> Upload {
        let mut frames: Vec<Frame> = bytes.into_iter().map(Frame::Data).collect();
        frames.push(Frame::Trailers(Fields::new()));
        Upload::new(Body::stream(Chunks(frames, false)), &Rc::default())
    }

    #[test]
    fn kept_content_is_sent_again_and_longer_content_is_not() {
        let body = Body::Bytes(Bytes::from_static(b"abc"));
        let upload = Upload::new(body, &Rc::default());
        upload.keep();
        assert_eq!((upload.length(), taken(&upload)), (Some(3), "abc".into()));
        assert!(!upload.is_whole() && upload.rewind() && upload.is_whole());
        assert_eq!((upload.length(), taken(&upload)), (Some(3), "abc".into()));
        assert!(!upload.rewind(), "nothing was kept the second time");

        let upload = chunks(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")]);
        upload.keep();
        let all = "ab trailers";
        assert_eq!(taken(&upload), all);
        assert!(upload.rewind());
        upload.keep();
        assert_eq!(taken(&upload), all);
        upload.forget();
        assert!(!upload.rewind());

        let upload = chunks(vec![
            Bytes::from(vec![b'x'; KEPT_MAX as usize]),
            Bytes::new(),
        ]);
        upload.keep();
        taken(&upload);
        assert!(!upload.rewind());
        let upload = chunks(vec![Bytes::from_static(b"x"); 5000]);
        upload.keep();
        taken(&upload);
        assert!(!upload.rewind(), "small frames take memory, too");
        assert!(Upload::default().rewind());
    }
}
