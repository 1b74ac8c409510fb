//! The streams of a connection, and the states of RFC 9113 5.1 as far as they have to be known.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::http2::malformed::ContentCount;
use crate::http2::priority::Priority;
use crate::http2::window::{ReceiveWindow, Window};

/// Most streams reset by this side whose ids are remembered, so that frames that were on their way are ignored.
const ABANDONED_MAX: usize = 128;

/// An open stream. It is closed and forgotten when the response is complete, or when it is reset.
#[derive(Debug)]
pub(in crate::http2) struct Stream {
    pub(in crate::http2) id: u32,
    /// Whether the peer may still send.
    pub(in crate::http2) receives: bool,
    pub(in crate::http2) content: ContentCount,
    /// The peer's window.
    pub(in crate::http2) window: ReceiveWindow,
    /// Growth of the peer's window.
    pub(in crate::http2) grown: u32,
    /// Bytes that the reader has taken since `since_ms`.
    pub(in crate::http2) consumed: u32,
    pub(in crate::http2) since_ms: u64,
    /// Received bytes that still count against the windows of stream and connection.
    pub(in crate::http2) held: u32,
    /// This side's window.
    pub(in crate::http2) send_window: Window,
    pub(in crate::http2) priority: Priority,
    /// The stream's place among those of its urgency.
    pub(in crate::http2) place: u64,
    /// Whether this side has content that could be sent.
    pub(in crate::http2) has_content: bool,
}

impl Stream {
    /// Whether content could be sent as far as this stream is concerned.
    pub(in crate::http2) fn can_send(&self) -> bool {
        self.has_content && self.send_window.available() > 0
    }
}

/// State of a stream that a frame names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http2) enum State {
    /// The stream has not begun, or is one that only a server could begin, which never happens.
    Idle,
    /// The stream is open, in this slot.
    Open(usize),
    /// This side has reset the stream, so frames on it may still be on their way.
    Abandoned,
    /// The stream has ended otherwise.
    Closed,
}

/// The streams of one connection.
#[derive(Debug, Default)]
pub(in crate::http2) struct Streams {
    open: Slab<Stream>,
    /// Ids of the open streams with their slots, in the order of the ids.
    ids: Vec<(u32, u32)>,
    /// The last streams that this side has reset, the newest last.
    abandoned: VecDeque<u32>,
    /// The highest id of a stream that has begun.
    last: u32,
    /// The stream that was closed last without a reset by this side.
    last_closed: u32,
}

impl Streams {
    /// Returns the number of open streams.
    #[inline]
    pub(in crate::http2) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the highest id of a stream that has begun, 0 if none has.
    pub(in crate::http2) fn last(&self) -> u32 {
        self.last
    }

    /// Returns the stream that was closed last without a reset by this side.
    pub(in crate::http2) fn last_closed(&self) -> u32 {
        self.last_closed
    }

    /// Returns the state of a stream.
    #[inline]
    pub(in crate::http2) fn state(&self, id: u32) -> State {
        if id > self.last || id.is_multiple_of(2) {
            return State::Idle;
        }
        match self.ids.binary_search_by_key(&id, |entry| entry.0) {
            Ok(at) => State::Open(self.ids[at].1 as usize),
            Err(_) if self.abandoned.contains(&id) => State::Abandoned,
            Err(_) => State::Closed,
        }
    }

    /// Returns the slot of an open stream with a higher id than this one.
    pub(in crate::http2) fn first_after(&self, id: u32) -> Option<usize> {
        let at = self.ids.partition_point(|entry| entry.0 <= id);
        self.ids.get(at).map(|entry| entry.1 as usize)
    }

    /// Notes that a stream, whose id must be the highest so far, has begun. It counts as closed until it is opened.
    #[inline]
    pub(in crate::http2) fn begin(&mut self, id: u32) {
        self.last = id;
    }

    /// Opens the stream that has begun last, and returns its slot.
    #[inline]
    pub(in crate::http2) fn open(&mut self, stream: Stream) -> usize {
        let id = stream.id;
        let slot = self.open.insert(stream);
        self.ids.push((id, slot as u32));
        slot
    }

    /// Returns the stream in a slot, if there is one.
    #[inline]
    pub(in crate::http2) fn get_mut(&mut self, slot: usize) -> Option<&mut Stream> {
        self.open.get_mut(slot)
    }

    /// Returns the stream in a slot, if there is one.
    #[inline]
    pub(in crate::http2) fn get(&self, slot: usize) -> Option<&Stream> {
        self.open.get(slot)
    }

    /// Returns all open streams with their slots.
    pub(in crate::http2) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Stream)> {
        self.open.iter_mut()
    }

    /// Returns the open streams.
    pub(in crate::http2) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.iter().map(|(_, stream)| stream)
    }

    /// Closes a stream.
    pub(in crate::http2) fn close(&mut self, slot: usize) -> Option<Stream> {
        let stream = self.open.try_remove(slot)?;
        if let Ok(at) = self.ids.binary_search_by_key(&stream.id, |entry| entry.0) {
            self.ids.remove(at);
        }
        self.last_closed = stream.id;
        Some(stream)
    }

    /// Remembers that this side has reset a stream.
    pub(in crate::http2) fn abandon(&mut self, id: u32) {
        if self.abandoned.len() == ABANDONED_MAX {
            self.abandoned.pop_front();
        }
        self.abandoned.push_back(id);
    }

    /// Frees memory that is not needed while no stream is open. Forgets streams that were reset.
    pub(in crate::http2) fn shrink(&mut self) {
        self.open.shrink_to_fit();
        self.ids.shrink_to_fit();
        self.abandoned = VecDeque::new();
    }

    /// Returns the heap memory in bytes.
    pub(in crate::http2) fn memory(&self) -> usize {
        // A slot of the slab also says whether it is free.
        self.open.capacity() * (size_of::<Stream>() + 8)
            + self.ids.capacity() * size_of::<(u32, u32)>()
            + self.abandoned.capacity() * size_of::<u32>()
    }
}

impl Index<usize> for Streams {
    type Output = Stream;

    #[inline]
    fn index(&self, slot: usize) -> &Stream {
        &self.open[slot]
    }
}

impl IndexMut<usize> for Streams {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Stream {
        &mut self.open[slot]
    }
}
