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
    fault: Cell<Option<Fault>>,
}

impl Upload {
    pub(super) fn new(body: Body) -> Upload {
        Upload((!body.is_empty()).then(|| {
            Rc::new(State {
                body: RefCell::new(body),
                touched: Cell::default(),
                fault: Cell::default(),
            })
        }))
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

    /// The next frame; `None` at the end. A fault stays: what follows it is no content, and no end
    /// either.
    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(state) = &self.0 else {
            return Poll::Ready(None);
        };
        if let Some(fault) = state.fault.get() {
            return Poll::Ready(Some(Err(fault)));
        }
        state.touched.set(true);
        let mut body = state.body.borrow_mut();
        let frame = ready!(body.poll_frame(cx));
        if let Some(Err(fault)) = &frame {
            state.fault.set(Some(*fault));
        }
        Poll::Ready(frame)
    }
}
