//! Slice: fetches only the wanted blocks, beginning with the first wanted byte, with several
//! concurrent flights.
//!
//! The rest of a wanted block is fetched after its wanted bytes, and then the read-ahead. If a
//! flight would deliver a wanted byte too late, another flight takes over its far part.

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use super::common::{Filling, View, begin, begin_all};
use super::policy::{Flight, Options, Plan, ReadAhead};
use crate::ranges::Ranges;

/// If the first missing byte is at most this many bytes before the wanted ones, the fetch begins
/// there.
const NEAR: u64 = 64 << 10;

/// Time that the next wanted byte may take to arrive before another flight is started for it.
const PATIENCE_NOW: Duration = Duration::from_millis(100);
/// The same for later bytes within the same block of a flight.
const PATIENCE_WITHIN: Duration = Duration::from_millis(500);
/// The same for all bytes after that block.
const PATIENCE_AHEAD: Duration = Duration::from_secs(1);

/// First delay after which a flight with an unknown rate is checked again. The delay grows with the
/// flight's age, up to `LATER`.
const YOUNG: Duration = Duration::from_millis(50);
/// Delay after which more flights may be permitted.
const WIDER: Duration = Duration::from_millis(100);
/// Delay after which a sufficiently fast flight is checked again.
const LATER: Duration = Duration::from_secs(1);

pub(super) struct Slice {
    block: u64,
    read_ahead: ReadAhead,
}

impl Slice {
    pub(super) fn new(options: &Options) -> Slice {
        Slice {
            block: options.block,
            read_ahead: options.read_ahead,
        }
    }
}

impl Filling for Slice {
    fn block(&self) -> u64 {
        self.block
    }

    fn first(&self, view: &View<'_>) -> Plan {
        let block = block_of(view.want.start, self.block);
        let wanted = view.want.start..view.want.end.min(block.end);
        let all = front(&wanted, block.start)..block.end;
        match size(&all) - size(&wanted) <= view.situation.spare {
            true => begin(all),
            false => begin(wanted),
        }
    }

    fn more(&self, view: &View<'_>) -> Plan {
        let mut draft = Draft::new(view, self.block, self.read_ahead);
        let done = draft.next_byte();
        if draft.wanted_blocks(done) {
            draft.rest_of_blocks();
            draft.ahead_of_want(self.read_ahead);
        }
        begin_all(draft.ranges, draft.again)
    }
}

/// The block that contains this byte.
fn block_of(byte: u64, block: u64) -> Range<u64> {
    let start = byte - byte % block;
    start..start.saturating_add(block)
}

fn size(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The start of a fetch of `wanted` if bytes from `start` on are missing too.
fn front(wanted: &Range<u64>, start: u64) -> u64 {
    match wanted.start - start < NEAR {
        true => start,
        false => wanted.start,
    }
}

/// How a byte that is not stored will arrive.
enum Way {
    /// No flight delivers it.
    None,
    /// A flight delivers it in time, and all bytes up to this position.
    Flying(u64),
    /// This flight delivers it in its far part, too late.
    Late(usize),
}

/// A plan under construction.
struct Draft<'a> {
    view: &'a View<'a>,
    block: u64,
    /// The blocks that concern this want now: those wanted soon, and the read-ahead.
    near: Range<u64>,
    /// The wanted bytes in these blocks.
    wanted: Range<u64>,
    /// The flights in these blocks, as they will be after the plan.
    flights: SmallVec<[Flight; 16]>,
    ranges: SmallVec<[Range<u64>; 2]>,
    busy: usize,
    spare: u64,
    again: Option<Duration>,
}

impl<'a> Draft<'a> {
    fn new(view: &'a View<'a>, block: u64, read_ahead: ReadAhead) -> Draft<'a> {
        let (situation, want) = (view.situation, &view.want);
        // Twice the range of the flights: while one flight is slow, others continue after it.
        let far = (situation.width as u64)
            .saturating_mul(2)
            .saturating_mul(block);
        let start = block_of(want.start, block).start;
        let next = block_of(view.next.unwrap_or(want.start), block);
        let horizon = start.saturating_add(far).max(next.end);
        let wanted = want.start..want.end.min(horizon);
        let mut near = start..block_of(wanted.end - 1, block).end.min(view.end);
        if wanted.end == want.end {
            near = match read_ahead {
                ReadAhead::Whole if !view.too_large() => 0..view.end,
                ReadAhead::Window(size) => {
                    let last = want.end.saturating_add(size).saturating_sub(1);
                    start..block_of(last.max(want.end - 1), block).end.min(view.end)
                }
                ReadAhead::None | ReadAhead::Whole => near,
            };
        }
        let flights: SmallVec<[Flight; 16]> = situation
            .flights
            .iter()
            .filter(|flight| {
                let span = view.span(flight);
                !span.is_empty() && span.start < near.end && near.start < span.end
            })
            .copied()
            .collect();
        Draft {
            busy: flights.len(),
            spare: situation.spare,
            ranges: SmallVec::new(),
            again: None,
            view,
            block,
            near,
            wanted,
            flights,
        }
    }

    /// Makes sure that the next missing byte arrives; returns the position from which the further
    /// bytes must be planned.
    fn next_byte(&mut self) -> u64 {
        let Some(next) = self.view.next else {
            return self.wanted.end;
        };
        let patience = match next == self.view.want.start {
            true => PATIENCE_NOW,
            false => PATIENCE_AHEAD,
        };
        let block = block_of(next, self.block);
        let start = match self.way(next, patience) {
            Way::Flying(until) => return until.min(block.end),
            Way::Late(flight) => {
                self.flights[flight].end = next;
                next
            }
            Way::None => front(&(next..block.end), self.clear_before(next, block.start)),
        };
        let end = self.clear_after(next, block.end);
        let wanted = next..end.min(self.view.want.end);
        let unwanted = size(&(start..end)) - size(&wanted);
        let range = match unwanted <= self.spare {
            true => {
                self.spare -= unwanted;
                start..end
            }
            false => wanted,
        };
        let done = range.end;
        self.push(range);
        done
    }

    /// Plans fetches of the wanted blocks from `from` on; returns whether all of them are arriving
    /// then.
    fn wanted_blocks(&mut self, from: u64) -> bool {
        let mut at = from.max(self.wanted.start);
        loop {
            let mut gaps = self.view.situation.have.gaps(at..self.wanted.end.max(at));
            let Some(gap) = gaps.next() else {
                return true;
            };
            at = gap.start;
            let block_end = block_of(at, self.block).end;
            let way = self.way(at, PATIENCE_AHEAD);
            if let Way::Flying(until) = way {
                at = until.min(block_end);
                continue;
            }
            if self.busy >= self.view.situation.width {
                self.ask_again(WIDER);
                return false;
            }
            let mut range = at..self.clear_after(at, block_end);
            if size(&range) > self.spare {
                range.end = range.end.min(self.wanted.end);
            }
            if size(&range) > self.spare {
                return false;
            }
            if let Way::Late(flight) = way {
                self.flights[flight].end = at;
            }
            self.spare -= size(&range);
            at = range.end;
            self.push(range);
        }
    }

    /// Plans the rest of the first and the last wanted block.
    fn rest_of_blocks(&mut self) {
        let first = block_of(self.wanted.start, self.block).start;
        self.extra(first..self.wanted.start);
        let last = block_of(self.wanted.end - 1, self.block).end;
        self.extra(self.wanted.end..last.min(self.near.end));
    }

    /// Plans the read-ahead, first after the want.
    fn ahead_of_want(&mut self, read_ahead: ReadAhead) {
        if read_ahead == ReadAhead::None || self.wanted.end != self.view.want.end {
            return;
        }
        self.extra(self.wanted.end..self.near.end);
        self.extra(self.near.start..self.wanted.start);
    }

    /// Plans a fetch of bytes that are not wanted, within the budget.
    fn extra(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut coming: Ranges = self.view.situation.have.within(range.clone()).collect();
        let flying = self.flights.iter().map(|flight| self.view.span(flight));
        coming.extend(flying.chain(self.ranges.iter().cloned()));
        for gap in coming.gaps(range) {
            let affordable = gap.start.saturating_add(self.spare);
            let end = match affordable >= gap.end {
                true => gap.end,
                false => affordable - affordable % self.block,
            };
            if self.busy >= self.view.situation.width || end <= gap.start {
                return;
            }
            self.spare -= end - gap.start;
            self.push(gap.start..end);
        }
    }

    /// Determines how a byte that is not stored will arrive. If that may take too long, the draft
    /// also records when to check again.
    fn way(&mut self, byte: u64, patience: Duration) -> Way {
        if let Some(range) = self.ranges.iter().find(|range| range.contains(&byte)) {
            return Way::Flying(range.end);
        }
        let over = |flight: &Flight| self.view.span(flight).contains(&byte);
        let Some(index) = self.flights.iter().position(over) else {
            return Way::None;
        };
        let flight = self.flights[index];
        let span = self.view.span(&flight);
        // A flight of one block finishes soon unless it is very slow, and so does a flight that has
        // almost reached the byte.
        let short = size(&span) < self.block.saturating_mul(2);
        if byte - span.start < NEAR || (short && patience > PATIENCE_NOW) {
            return Way::Flying(span.end);
        }
        let patience = if short { PATIENCE_WITHIN } else { patience };
        match time_to(&flight, byte) {
            Some(time) if time > patience => return Way::Late(index),
            Some(_) => self.ask_again(patience.max(WIDER).min(LATER)),
            None => self.ask_again(flight.idle.clamp(YOUNG, LATER)),
        }
        Way::Flying(span.end)
    }

    /// The lowest position from `start` on, from which all bytes up to `byte` are missing and in no
    /// flight.
    fn clear_before(&self, byte: u64, start: u64) -> u64 {
        let stored = self.view.situation.have.within(start..byte);
        let flying = self.flights.iter().map(|flight| self.view.span(flight));
        stored
            .chain(flying)
            .map(|range| range.end)
            .filter(|end| *end <= byte)
            .fold(start, u64::max)
    }

    /// The position up to which, from `byte` on, all bytes are missing and in no flight, at most
    /// `end`.
    fn clear_after(&self, byte: u64, end: u64) -> u64 {
        let end = end.min(self.view.end);
        let stored = self.view.situation.have.within(byte..end);
        let flying = self.flights.iter().map(|flight| self.view.span(flight));
        // A flight that covers `byte` is shortened to end there.
        stored
            .chain(flying)
            .map(|range| range.start)
            .filter(|start| *start > byte)
            .fold(end, u64::min)
    }

    fn push(&mut self, range: Range<u64>) {
        self.busy += 1;
        self.ranges.push(range);
    }

    fn ask_again(&mut self, time: Duration) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// Estimated time until a flight delivers this byte; `None` for a flight that has stalled.
fn time_to(flight: &Flight, byte: u64) -> Option<Duration> {
    if flight.idle >= PATIENCE_AHEAD {
        return Some(Duration::MAX);
    }
    let distance = (byte - flight.at) as f64;
    match flight.rate? {
        0 => Some(Duration::MAX),
        rate => Duration::try_from_secs_f64(distance / rate as f64).ok(),
    }
}
