//! Sends the content of a request to the origin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::hop;
use super::route_headers::RouteHeaders;
use crate::handler::{Body, Fault, Frame};

/// A request's content, shared by the connection that sends it and by the request, which may have
/// to be sent again. Cheap to clone; all clones share one content.
#[derive(Clone, Default)]
pub(super) struct Upload(Option<Rc<State>>);

struct State {
    body: RefCell<Body>,
    route: Rc<RouteHeaders>,
    touched: Cell<bool>,
    fault: Cell<Option<Fault>>,
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
            })
        }))
    }

    /// Whether none of the content has been taken, so that it can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        self.0.as_ref().is_none_or(|state| !state.touched.get())
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
        self.0
            .as_ref()
            .map_or(Some(0), |state| state.body.borrow().length())
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
        let mut body = state.body.borrow_mut();
        let mut frame = ready!(body.poll_frame(cx));
        if let Some(Ok(Frame::Trailers(fields))) = &mut frame {
            fields.retain(|name, _| hop::may_trail(name) && !state.route.removes(name));
        }
        if let Some(Err(fault)) = &frame {
            state.fault.set(Some(*fault));
        }
        Poll::Ready(frame)
    }
}
