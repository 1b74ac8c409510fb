//! Writing: what of an object is handed to its volumes, and when.
//!
//! A block is handed over when all of it has come, a head with the first block, or with the end
//! where others can't bring what is missing. Until it is written it stays in memory, so that what
//! waits is served like anything else.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Keep, Volumes, meta};
use crate::store::head::Head;
use crate::store::object::{Object, Phase, State};
use crate::store::page::PAGE;
use crate::store::{Place, Store};
use crate::volume::{Content, Id, Source, Volume};

/// About what a head takes while it waits.
const HEAD_BYTES: u64 = 1024;
/// Blocks handed over at once at most; more would not fit into any queue.
const AT_ONCE: usize = 256;

/// What is to be written of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Its head; all of its content, where that is small.
    Head,
    /// One block.
    Block(u64, Range<u64>),
}

/// One record that waits to be written.
struct Keeping {
    store: Arc<Store>,
    volume: Arc<Volume>,
    object: Arc<Object>,
    place: Place,
    id: Id,
    what: What,
    bytes: u64,
    born_seq: u64,
    told: bool,
}

impl Source for Keeping {
    fn id(&self) -> Id {
        self.id
    }

    fn born_seq(&self) -> u64 {
        self.born_seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record(&mut self) -> Option<Content> {
        if !self.store.holds(self.place, &self.object) {
            return None;
        }
        let head = match self.object.phase() {
            Phase::Open(head) => head,
            _ => return None,
        };
        if self.store.is_gone(self.place.primary, &self.object, &head) {
            return None;
        }
        let state = self.object.lock();
        match &self.what {
            What::Head => {
                let keep = state.keep.as_ref()?;
                let object = &self.object;
                let (key, blocks) = (&*object.key, (keep.block, keep.since));
                let length = head.length.or(state.length);
                let meta = meta::encode((key, object.born_seq), blocks, &head, length);
                let small = state.length.is_some_and(|length| length <= PAGE);
                let data = match small {
                    true => state.pieces(0..state.length?)?,
                    false => SmallVec::new(),
                };
                Some(Content { meta, data })
            }
            What::Block(_, range) => Some(Content {
                meta: Vec::new(),
                data: state.pieces(range.clone())?,
            }),
        }
    }

    fn done(mut self: Box<Self>, written: bool) {
        self.tell(written);
    }
}

impl Keeping {
    fn tell(&mut self, written: bool) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        if let Some(keep) = &mut self.object.lock().keep {
            keep.settle(&self.what, written);
        }
        if self.what != What::Head {
            return;
        }
        // Not written: the head that it was to replace says what does not hold any more. Written, but
        // taken out meanwhile: it does not hold itself, unless that is another's by now.
        let obsolete = match self.store.holds(self.place, &self.object) {
            true => !written,
            false => written && !self.store.keeps_another(self.place),
        };
        if obsolete {
            self.volume.forget(&self.id);
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.tell(false);
    }
}

impl Keep {
    /// A record was written, or was not.
    fn settle(&mut self, what: &What, written: bool) {
        match what {
            What::Head => self.head &= written,
            What::Block(_, range) => {
                let waiting = self.queued.iter().position(|queued| queued == range);
                if let Some(waiting) = waiting {
                    self.queued.swap_remove(waiting);
                }
                if written {
                    self.there.insert(range.clone());
                    self.known.insert(range.clone());
                }
            }
        }
    }

    /// Whether volumes have any of its blocks, which nobody finds without its head.
    fn has_any(&self) -> bool {
        !self.there.is_empty() || !self.aside.is_empty()
    }

    /// Whether this block need not be handed over: it waits, or is there.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let is_there = self.there.covers(range) || self.aside.covers(range);
        is_there || self.queued.iter().any(|queued| queued == range)
    }
}

impl State {
    /// What is to be handed over, now that bytes of this range have come.
    fn due(&mut self, come: &Range<u64>) -> SmallVec<[What; 2]> {
        let mut due = SmallVec::new();
        let complete = self.is_complete();
        let length = self.length;
        let (Some(keep), Phase::Open(head)) = (&mut self.keep, &self.phase) else {
            return due;
        };
        if !keep.admitted || self.windowed || !keep.volumes.admits(length, come.end) {
            return due;
        }
        if length.is_some_and(|length| length <= PAGE) {
            if complete && !keep.head {
                keep.head = true;
                due.push(What::Head);
            }
            return due;
        }
        let first = come.start / keep.block;
        let last = come.end.saturating_sub(1) / keep.block;
        for number in (first..=last).take(AT_ONCE) {
            let range = keep.range_of(number, length.unwrap_or(u64::MAX));
            if !range.is_empty() && self.present.covers(&range) && !keep.has(&range) {
                due.push(What::Block(number, range));
            }
        }
        // What others can't complete is of no use before it is all there.
        let useful = complete || head.joinable && !due.is_empty();
        if useful && !keep.head {
            keep.head = true;
            due.push(What::Head);
        }
        due
    }

    /// The bytes of a range as the pages they are in; `None` if one of them is not there, or not full.
    fn pieces(&self, range: Range<u64>) -> Option<SmallVec<[bytes::Bytes; 16]>> {
        let mut pieces = SmallVec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = self.slice(at, range.end)?;
            at += piece.len() as u64;
            let whole = piece.len() as u64 == PAGE || at == range.end;
            if !whole {
                return None;
            }
            pieces.push(piece);
        }
        Some(pieces)
    }
}

impl Store {
    /// Hands over to volumes what is due, now that bytes of this range have come. Never waits: what
    /// the volumes have no room for is not written.
    pub(in crate::store) fn keep(
        self: &Arc<Self>,
        place: Place,
        object: &Arc<Object>,
        come: Range<u64>,
    ) {
        let mut state = object.lock();
        let due = state.due(&come);
        let Some(keep) = state.keep.as_ref().filter(|_| !due.is_empty()) else {
            return;
        };
        let volumes = keep.volumes.clone();
        drop(state);
        for what in due {
            self.hand_over(&volumes, place, object, what);
        }
    }

    /// Whether what stands here has handed its own head over.
    fn keeps_another(self: &Arc<Self>, place: Place) -> bool {
        let all = self.enter(place.primary, |locked| locked.all());
        let mut here = all.iter().filter(|(variant, _)| *variant == place.variant);
        here.any(|(_, object)| object.lock().keep.as_ref().is_some_and(|keep| keep.head))
    }

    /// The object has another head: that is kept from now on.
    pub(in crate::store) fn keep_head(self: &Arc<Self>, place: Place, object: &Arc<Object>) {
        let mut state = object.lock();
        let (complete, length) = (state.is_complete(), state.length);
        let wanted = |keep: &&mut Box<Keep>| {
            let worth = keep.head || complete || keep.has_any();
            keep.admitted && worth && keep.volumes.admits(length, 0)
        };
        let Some(keep) = state.keep.as_mut().filter(wanted) else {
            return;
        };
        keep.head = true;
        let volumes = keep.volumes.clone();
        drop(state);
        self.hand_over(&volumes, place, object, What::Head);
    }

    /// It was asked for again: now it may be written, and what of it has come is handed over.
    pub(in crate::store) fn admit(self: &Arc<Self>, place: Place, object: &Arc<Object>) {
        let mut state = object.lock();
        let Some(keep) = &mut state.keep else {
            return;
        };
        keep.admitted = true;
        let come: SmallVec<[_; 2]> = state.present.iter().collect();
        drop(state);
        for range in come {
            self.keep(place, object, range);
        }
    }

    fn hand_over(
        self: &Arc<Self>,
        volumes: &Arc<Volumes>,
        place: Place,
        object: &Arc<Object>,
        what: What,
    ) {
        let (id, bytes) = {
            let mut state = object.lock();
            let small = state.length.filter(|length| *length <= PAGE);
            let Some(keep) = &mut state.keep else {
                return;
            };
            match &what {
                What::Head => {
                    let head = Place {
                        variant: keep.place.variant,
                        ..place
                    };
                    let content = small.unwrap_or(0);
                    (volumes.head_id(head), HEAD_BYTES + content)
                }
                What::Block(number, range) => {
                    let Some(id) = keep.block_id(*number) else {
                        return;
                    };
                    (id, range.end - range.start)
                }
            }
        };
        let homes = volumes.homes(&id);
        if homes.is_empty()
            && let Some(keep) = &mut object.lock().keep
        {
            keep.settle(&what, false);
        }
        for number in homes {
            if let (What::Block(_, range), Some(keep)) = (&what, &mut object.lock().keep) {
                keep.queued.push(range.clone());
            }
            let keeping = Box::new(Keeping {
                store: self.clone(),
                volume: volumes.volumes[number].clone(),
                object: object.clone(),
                place,
                id,
                what: what.clone(),
                bytes,
                born_seq: object.born_seq,
                told: false,
            });
            // Given back, it is dropped, which tells the object.
            let _ = volumes.volumes[number].put(keeping);
        }
    }

    /// Whether a purge covers an object, so that it is not to be written.
    fn is_gone(&self, primary: u128, object: &Object, head: &Head) -> bool {
        !self.purges.is_settled(object) && self.purges.covers(primary, object, head)
    }
}
