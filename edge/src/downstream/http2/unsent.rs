//! The output that is queued and not written, as far as streams have to know when it is.

use std::collections::VecDeque;

use super::stream_box::StreamBox;

/// Most frames of content that are noted. Further ones are queued when these have been written.
const CONTENT_MAX: usize = 256;

/// Responses that are queued and not written.
#[derive(Default)]
pub struct Unsent {
    /// Frames of content after which more content follows, in the order of the output.
    content: VecDeque<UnsentContent>,
    /// Streams whose response is complete, with the number of bytes that are written when it is sent.
    finished: VecDeque<(u64, StreamBox)>,
}

/// The content of a queued frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentContent {
    /// Number of bytes that are written to the connection when the frame is sent.
    pub until: u64,
    /// Slot of the stream.
    pub slot: usize,
    /// Number of the request, since another one may use the slot by then.
    pub number: u64,
    /// Bytes of content.
    pub bytes: usize,
}

impl Unsent {
    /// Whether no more content may be queued for now.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.content.len() >= CONTENT_MAX
    }

    /// Adds content that was queued last.
    #[inline]
    pub fn add_content(&mut self, content: UnsentContent) {
        self.content.push_back(content);
    }

    /// Adds a stream whose response is complete when `until` bytes have been written to the connection.
    #[inline]
    pub fn add_finished(&mut self, until: u64, stream: StreamBox) {
        self.finished.push_back((until, stream));
    }

    /// Removes the next content that was sent with the first `written` bytes of the connection.
    #[inline]
    pub fn next_content(&mut self, written: u64) -> Option<UnsentContent> {
        let is_sent = self.content.front()?.until <= written;
        is_sent.then(|| self.content.pop_front()).flatten()
    }

    /// Removes the next stream whose response was sent with the first `written` bytes of the connection.
    #[inline]
    pub fn next_finished(&mut self, written: u64) -> Option<StreamBox> {
        let is_sent = self.finished.front()?.0 <= written;
        is_sent.then(|| self.pop()).flatten()
    }

    /// Whether all complete responses have been written.
    pub fn is_finished(&self) -> bool {
        self.finished.is_empty()
    }

    /// Removes a stream whose response is complete.
    pub fn pop(&mut self) -> Option<StreamBox> {
        self.finished.pop_front().map(|(_, stream)| stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_sent_when_its_last_byte_is_written() {
        let mut unsent = Unsent::default();
        let content = |until| UnsentContent {
            until,
            slot: 1,
            number: 7,
            bytes: 10,
        };
        unsent.add_content(content(10));
        unsent.add_content(content(25));
        assert_eq!(unsent.next_content(9), None);
        assert_eq!(unsent.next_content(24), Some(content(10)));
        assert_eq!(unsent.next_content(24), None);
        assert_eq!(unsent.next_content(25), Some(content(25)));
        assert_eq!(unsent.next_content(25), None);
        for n in 0..CONTENT_MAX {
            assert!(!unsent.is_full());
            unsent.add_content(content(n as u64));
        }
        assert!(unsent.is_full());
    }
}
