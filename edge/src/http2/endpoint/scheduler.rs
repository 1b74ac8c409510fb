//! Decides which stream sends next (RFC 9218 10).
//!
//! Streams of higher urgency come first. Streams of the same urgency send in the order of their requests. An incremental
//! response goes to the back after each turn, so such responses share the connection; another one keeps its place until
//! it has been sent. A stream that cannot send is not here, so it holds no other one up.

use crate::http2::priority::Priority;

use super::streams::Stream;

/// The streams that can send.
#[derive(Debug, Default)]
pub(in crate::http2) struct Scheduler {
    ready: Vec<Candidate>,
    /// The place after all others.
    back: u64,
}

/// A stream that can send.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: u32,
    urgency: u8,
    incremental: bool,
    place: u64,
}

impl Scheduler {
    /// Returns the place of a new stream, after all others of its urgency.
    pub(in crate::http2) fn new_place(&mut self) -> u64 {
        self.back += 1;
        self.back
    }

    /// Adds a stream, with the place that it had before. Must not be called if the stream is there.
    pub(in crate::http2) fn add(&mut self, slot: u32, priority: Priority, place: u64) {
        self.ready.push(Candidate {
            slot,
            urgency: priority.urgency,
            incremental: priority.incremental,
            place,
        });
    }

    /// Adds or removes a stream of which something has changed. `could_send`: whether it was there before.
    #[inline]
    pub(in crate::http2) fn update(&mut self, slot: usize, stream: &Stream, could_send: bool) {
        match (could_send, stream.can_send()) {
            (true, false) => self.remove(slot as u32),
            (false, true) => self.add(slot as u32, stream.priority, stream.place),
            _ => {}
        }
    }

    /// Removes a stream if it is there.
    pub(in crate::http2) fn remove(&mut self, slot: u32) {
        if let Some(at) = self.ready.iter().position(|other| other.slot == slot) {
            self.ready.swap_remove(at);
        }
    }

    /// Returns the stream that sends next. There are few streams, so a scan costs less than an order.
    #[inline]
    pub(in crate::http2) fn next(&self) -> Option<u32> {
        let first = |it: &&Candidate| (it.urgency, it.place);
        self.ready.iter().min_by_key(first).map(|it| it.slot)
    }

    /// Notes that a stream has sent a part of its content. Returns the new place of the stream.
    #[inline]
    pub(in crate::http2) fn sent(&mut self, slot: u32) -> Option<u64> {
        let candidate = self.ready.iter_mut().find(|it| it.slot == slot)?;
        if candidate.incremental {
            self.back += 1;
            candidate.place = self.back;
        }
        Some(candidate.place)
    }

    /// Changes the priority of a stream, if it is there.
    pub(in crate::http2) fn set_priority(&mut self, slot: u32, priority: Priority) {
        if let Some(candidate) = self.ready.iter_mut().find(|it| it.slot == slot) {
            candidate.urgency = priority.urgency;
            candidate.incremental = priority.incremental;
        }
    }

    /// Returns the heap memory in bytes.
    pub(in crate::http2) fn memory(&self) -> usize {
        self.ready.capacity() * size_of::<Candidate>()
    }

    /// Frees memory that is not needed.
    pub(in crate::http2) fn shrink(&mut self) {
        self.ready.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority {
            urgency,
            incremental,
        }
    }

    /// Returns the streams that send in the next turns.
    fn turns(scheduler: &mut Scheduler, count: usize) -> Vec<u32> {
        let turn = |_| {
            let slot = scheduler.next().expect("a stream");
            scheduler.sent(slot);
            slot
        };
        (0..count).map(turn).collect()
    }

    fn with(streams: &[(u8, bool)]) -> Scheduler {
        let mut scheduler = Scheduler::default();
        for (slot, (urgency, incremental)) in streams.iter().enumerate() {
            let place = scheduler.new_place();
            scheduler.add(slot as u32, priority(*urgency, *incremental), place);
        }
        scheduler
    }

    #[test]
    fn urgent_streams_come_first_and_incremental_ones_share() {
        let mut scheduler = with(&[(3, false), (3, false), (1, true), (1, true), (7, false)]);
        assert_eq!(turns(&mut scheduler, 4), [2, 3, 2, 3]);
        scheduler.remove(2);
        scheduler.remove(3);
        assert_eq!(turns(&mut scheduler, 3), [0, 0, 0]);
        scheduler.set_priority(4, priority(0, false));
        assert_eq!(turns(&mut scheduler, 2), [4, 4]);
        scheduler.remove(4);
        scheduler.set_priority(0, priority(3, true));
        assert_eq!(turns(&mut scheduler, 3), [0, 1, 1]);
        scheduler.remove(0);
        scheduler.remove(1);
        assert_eq!(scheduler.next(), None);
    }

    #[test]
    fn a_stream_that_was_blocked_keeps_its_place() {
        let mut scheduler = Scheduler::default();
        let places: Vec<u64> = (0..2).map(|_| scheduler.new_place()).collect();
        scheduler.add(1, priority(3, false), places[1]);
        assert_eq!(scheduler.next(), Some(1));
        scheduler.add(0, priority(3, false), places[0]);
        assert_eq!(scheduler.next(), Some(0));
    }

    proptest! {
        #[test]
        fn the_most_urgent_streams_share_as_they_declare(
            streams in prop::collection::vec((0u8..8, any::<bool>()), 1..20),
        ) {
            let mut scheduler = with(&streams);
            let most = streams.iter().map(|(urgency, _)| *urgency).min().unwrap_or(0);
            let sent = turns(&mut scheduler, 200);
            let mut counts = BTreeMap::<u32, i32>::new();
            for slot in sent {
                prop_assert_eq!(streams[slot as usize].0, most);
                *counts.entry(slot).or_default() += 1;
            }
            let first = (0..).zip(&streams).find(|(_, it)| it.0 == most && !it.1);
            match first {
                // The first response that is not incremental is sent as soon as those before it have had a turn.
                Some((slot, _)) => prop_assert!(counts[&slot] >= 200 - streams.len() as i32),
                None => {
                    let (least, most) = (counts.values().min(), counts.values().max());
                    prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1);
                }
            }
        }
    }
}
