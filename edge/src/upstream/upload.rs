//! A request's content on its way to the origin.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http_body::SizeHint;

use super::hop;
use crate::handler::{Body, Fault, Frame};
use crate::http::Fields;

/// The content, for hyper to poll and for the exchange to know how far it has come. Cheap to
/// clone; all clones are the same content.
#[derive(Clone)]
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
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Fault>>> {
        let Some(state) = &self.0 else {
            return Poll::Ready(None);
        };
        state.touched.set(true);
        let mut body = state.body.borrow_mut();
        let frame = ready!(body.poll_frame(cx));
        // hyper does not poll beyond the declared length.
        state.done.set(frame.is_none() || body.length() == Some(0));
        Poll::Ready(frame.map(|frame| match frame {
            Ok(Frame::Data(bytes)) => Ok(http_body::Frame::data(bytes)),
            Ok(Frame::Trailers(fields)) => Ok(http_body::Frame::trailers(trailers(&fields))),
            Err(fault) => {
                state.fault.set(Some(fault));
                Err(fault)
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|state| state.body.borrow().is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        self.length()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Trailers may not hold what would have to be known before the content (RFC 9110 6.5.1).
fn trailers(fields: &Fields) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| hop::may_trail(name)) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            // Bounded far below the map's own limit by whoever read them.
            let _ = map.try_append(name, value);
        }
    }
    map
}
