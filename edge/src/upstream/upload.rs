//! A request's content on its way to the origin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::handler::{Body, Fault, Frame};

/// The content, for the connection to send and for the exchange to know how far it has come. Cheap
/// to clone; all clones are the same content.
#[derive(Clone, Default)]
pub(super) struct Upload(Option<Rc<State>>);

struct State {
    body: RefCell<Body>,
    touched: Cell<bool>,
    done: Cell<bool>,
    fault: Cell<Option<Fault>>,
}

impl Upload {
    pub(super) fn new(body: Body) -> Upload {
        Upload((!body.is_empty()).then(|| {
            Rc::new(State {
                body: RefCell::new(body),
                touched: Cell::default(),
                done: Cell::default(),
                fault: Cell::default(),
            })
        }))
    }

    /// Whether all of it was taken.
    pub(super) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.done.get())
    }

    /// Whether all of it is still there, so that it can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        self.0.as_ref().is_none_or(|state| !state.touched.get())
    }

    /// Why it ended early, if it did: the client went away or was too slow.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.as_ref().and_then(|state| state.fault.get())
    }

    /// How much is still to come, when known.
    pub(super) fn length(&self) -> Option<u64> {
        self.0
            .as_ref()
            .map_or(Some(0), |state| state.body.borrow().length())
    }

    /// The next frame; `None` at the end. Not polled again once it is done.
    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(state) = &self.0 else {
            return Poll::Ready(None);
        };
        state.touched.set(true);
        let mut body = state.body.borrow_mut();
        let frame = ready!(body.poll_frame(cx));
        // What has a declared length is not polled beyond it.
        state.done.set(frame.is_none() || body.length() == Some(0));
        if let Some(Err(fault)) = &frame {
            state.fault.set(Some(*fault));
        }
        Poll::Ready(frame)
    }
}
