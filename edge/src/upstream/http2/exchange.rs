//! One exchange: the parts of its request that were not sent, and of its response that were not taken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

use tokio::time::Instant;

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use crate::http::Fields;
use crate::upstream::inbound::{Failure, Received};
use crate::upstream::pace::Pace;

/// Most interim heads (1xx) of one exchange.
const INTERIM_MAX: usize = 64;

/// An exchange that the connection and its user share.
pub(super) type Shared = Rc<RefCell<Exchange>>;

/// An exchange, from when room was taken for it.
#[derive(Default)]
pub(super) struct Exchange {
    /// The slot of the stream, from the request's head until the response has ended or failed.
    pub(super) slot: Option<usize>,
    /// Whether the request has been begun.
    pub(super) has_begun: bool,
    /// Whether other exchanges began on the connection before.
    pub(super) is_reused: bool,
    /// Whether the request is HEAD.
    pub(super) head_only: bool,
    pub(super) outgoing: Outgoing,
    /// Position of the end of the request's head among all bytes sent, and the connection's number of answers before.
    pub(super) head_end: u64,
    pub(super) answers_before: u64,
    /// Heads that were received and not taken.
    heads: VecDeque<Received>,
    /// Number of interim heads so far, and the bytes of all heads.
    interim: usize,
    head_bytes: usize,
    /// Whether the final head has arrived.
    pub(super) has_head: bool,
    /// Whether the content has a declared length.
    pub(super) is_sized: bool,
    pub(super) incoming: Incoming,
    /// Number of bytes that were taken last, by which the window has not been opened.
    pub(super) taken: usize,
    /// The part of `incoming` by which the windows of other streams grow less, after the end of the stream.
    pub(super) kept: u32,
    pub(super) trailers: Option<Fields>,
    /// The end of the response, if it has ended or failed.
    pub(super) end: Option<Result<(), Failure>>,
    waker: Option<Waker>,
    pub(super) awaits: Awaits,
    /// Time at which the event in `awaits` is late.
    pub(super) deadline: Option<Instant>,
    pub(super) pace: Pace,
    /// Whether content without a declared length has to arrive at the minimum rate, too.
    pub(super) is_rated: bool,
}

/// The event for which an exchange waits, which determines the timeout that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Awaits {
    #[default]
    Nothing,
    /// The server reads on. The number counts the bytes that it had read when the wait began.
    Room(u64),
    /// The server opens the stream's window. The number counts the bytes of content that were sent when the wait began.
    Window(u64),
    /// The client sends more content. Downstream limits this time.
    Client,
    Head,
    Body,
}

impl Exchange {
    /// Creates an exchange. `is_reused`: others began on the connection before.
    pub(super) fn new(is_reused: bool) -> Exchange {
        Exchange {
            is_reused,
            ..Exchange::default()
        }
    }

    /// Adds a received head with this many bytes of fields. Returns false, without adding it, if there are too many interim
    /// ones, or all heads of the response together have more than `most` bytes.
    pub(super) fn add_head(&mut self, head: Received, bytes: usize, most: usize) -> bool {
        let is_final = head.status >= 200;
        self.interim += usize::from(!is_final);
        self.head_bytes += bytes;
        if self.interim > INTERIM_MAX || self.head_bytes > most {
            return false;
        }
        if is_final {
            self.has_head = true;
            self.outgoing.upload().forget();
        }
        if head.status != 100 {
            // A 100 is not passed on, since downstream itself handles Expect.
            self.heads.push_back(head);
        }
        true
    }

    /// Takes the next head.
    pub(super) fn take_head(&mut self) -> Option<Received> {
        self.heads.pop_front()
    }

    /// Whether all of the response has been taken.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.end, Some(Ok(()))) && self.incoming.is_empty() && self.trailers.is_none()
    }

    /// Whether something has arrived after the head: content, trailers, the end or a fault.
    pub(super) fn has_event(&self) -> bool {
        !self.incoming.is_empty() || self.trailers.is_some() || self.end.is_some()
    }

    /// Has the task of `cx` woken at the next event.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Returns the waker to be woken for an event.
    pub(super) fn event(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Notes the end of the response. Content that has arrived is kept.
    pub(super) fn finish(&mut self, end: Result<(), Failure>) {
        self.slot = None;
        self.deadline = None;
        self.end.get_or_insert(end);
    }
}
