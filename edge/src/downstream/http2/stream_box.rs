//! Boxes of streams that each worker uses again, so that a request that is answered at once allocates none.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::stream::Stream;

/// Most boxes that each worker keeps.
const POOLED_MAX: usize = 64;

thread_local! {
    /// The emptied boxes of streams whose response was complete.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    static POOL: RefCell<Vec<Box<Option<Stream>>>> = const { RefCell::new(Vec::new()) };
}

/// A stream in a box, which is empty only in the pool.
pub struct StreamBox(Box<Option<Stream>>);

impl StreamBox {
    /// Moves a stream into a box.
    #[inline]
    pub fn new(stream: Stream) -> StreamBox {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        let mut empty = pooled.unwrap_or_default();
        *empty = Some(stream);
        StreamBox(empty)
    }

    /// Drops the stream and keeps the box.
    #[inline]
    pub fn recycle(mut self) {
        *self.0 = None;
        // While a thread ends, the thread-local pool may already have been destroyed.
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_MAX {
                pool.push(self.0);
            }
        });
    }
}

impl Deref for StreamBox {
    type Target = Stream;

    #[inline]
    fn deref(&self) -> &Stream {
        match &*self.0 {
            Some(stream) => stream,
            None => unreachable!("empty boxes are in the pool"),
        }
    }
}

impl DerefMut for StreamBox {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        match &mut *self.0 {
            Some(stream) => stream,
            None => unreachable!("empty boxes are in the pool"),
        }
    }
}
