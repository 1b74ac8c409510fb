//! The fill policy `slice`: fetches only the wanted blocks, beginning with the first wanted byte,
//! with several concurrent flights.
//!
//! The rest of a wanted block is fetched after the wanted bytes in it, and then the read-ahead. If
//! a flight would deliver a wanted byte too late, another flight takes over the far part of its
//! range.

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use super::common::{FillRules, View, begin, begin_all};
use super::policy::{Flight, Options, Plan, ReadAhead};
use crate::ranges::Ranges;

/// Distance in bytes that counts as near. A fetch also includes missing bytes that begin this near
/// before the wanted ones. A flight that is this near to a byte is left to deliver the byte.
const NEAR: u64 = 64 << 10;

/// Longest estimated time until a flight delivers the byte that the client waits for. If the
/// estimate is longer, another flight is started.
const WAIT_MAX_NOW: Duration = Duration::from_millis(100);
/// Longest estimated time until a flight of one block delivers a byte of that block. If the estimate is
/// longer, another flight is started.
const WAIT_MAX_WITHIN_BLOCK: Duration = Duration::from_millis(500);
/// Longest estimated time until a flight delivers a wanted byte that the client does not wait for yet. If
/// the estimate is longer, another flight is started.
const WAIT_MAX_AHEAD: Duration = Duration::from_secs(1);

/// First delay after which a flight with an unknown rate is checked again. The delay grows up to
/// `RECHECK_MAX` with the time for which the flight receives nothing.
const RECHECK_MIN: Duration = Duration::from_millis(50);
/// Delay before the policy is consulted again because all permitted flights are in use: more may be
/// permitted then.
const RECHECK_WIDTH: Duration = Duration::from_millis(100);
/// Longest delay after which a flight that is fast enough is checked again.
const RECHECK_MAX: Duration = Duration::from_secs(1);

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

impl FillRules for Slice {
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

/// Returns the range of the block that contains this byte.
fn block_of(byte: u64, block: u64) -> Range<u64> {
    let start = byte - byte % block;
    start..start.saturating_add(block)
}

fn size(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Returns the start of a fetch for the range `wanted`, where the bytes from `start` on are missing
/// too: `start` if it is near, otherwise the start of the wanted range.
fn front(wanted: &Range<u64>, start: u64) -> u64 {
    match wanted.start - start < NEAR {
        true => start,
        false => wanted.start,
    }
}

/// The way in which a byte that is not stored is going to arrive.
enum Arrival {
    /// No flight will deliver the byte.
    None,
    /// A flight will deliver the byte in time, and also all bytes up to this position.
    InTime(u64),
    /// The flight at this index will deliver the byte too late.
    Late(usize),
}

/// A plan under construction.
struct Draft<'a> {
    view: &'a View<'a>,
    block: u64,
    /// The blocks to consider now: those that the client reads soon, and the read-ahead.
    near: Range<u64>,
    /// The wanted bytes within the range `near`.
    wanted: Range<u64>,
    /// The flights that overlap the range `near`, with ends as changed by the plan.
    flights: SmallVec<[Flight; 16]>,
    ranges: SmallVec<[Range<u64>; 2]>,
    busy: usize,
    spare: u64,
    again: Option<Duration>,
}

impl<'a> Draft<'a> {
    fn new(view: &'a View<'a>, block: u64, read_ahead: ReadAhead) -> Draft<'a> {
        let (situation, want) = (view.situation, &view.want);
        // The plan covers twice as many blocks as flights are permitted: while one flight is slow,
        // others continue after it.
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

    /// Plans a fetch of the next missing byte unless a flight delivers it in time. Returns the
    /// position from which further bytes must be planned.
    fn next_byte(&mut self) -> u64 {
        let Some(next) = self.view.next else {
            return self.wanted.end;
        };
        let wait_max = match next == self.view.want.start {
            true => WAIT_MAX_NOW,
            false => WAIT_MAX_AHEAD,
        };
        let block = block_of(next, self.block);
        let start = match self.arrival(next, wait_max) {
            Arrival::InTime(until) => return until.min(block.end),
            Arrival::Late(flight) => {
                self.flights[flight].end = next;
                next
            }
            Arrival::None => front(&(next..block.end), self.clear_before(next, block.start)),
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

    /// Plans fetches of the wanted blocks from position `from` on. Returns whether all of their
    /// wanted bytes are stored or will arrive in time.
    fn wanted_blocks(&mut self, from: u64) -> bool {
        let mut at = from.max(self.wanted.start);
        loop {
            let mut gaps = self.view.situation.have.gaps(at..self.wanted.end.max(at));
            let Some(gap) = gaps.next() else {
                return true;
            };
            at = gap.start;
            let block_end = block_of(at, self.block).end;
            let arrival = self.arrival(at, WAIT_MAX_AHEAD);
            if let Arrival::InTime(until) = arrival {
                at = until.min(block_end);
                continue;
            }
            if self.busy >= self.view.situation.width {
                self.ask_again(RECHECK_WIDTH);
                return false;
            }
            let mut range = at..self.clear_after(at, block_end);
            if size(&range) > self.spare {
                range.end = range.end.min(self.wanted.end);
            }
            if size(&range) > self.spare {
                return false;
            }
            if let Arrival::Late(flight) = arrival {
                self.flights[flight].end = at;
            }
            self.spare -= size(&range);
            at = range.end;
            self.push(range);
        }
    }

    /// Plans fetches of the rest of the first and of the last wanted block.
    fn rest_of_blocks(&mut self) {
        let first = block_of(self.wanted.start, self.block).start;
        self.extra(first..self.wanted.start);
        let last = block_of(self.wanted.end - 1, self.block).end;
        self.extra(self.wanted.end..last.min(self.near.end));
    }

    /// Plans fetches of the read-ahead: first the bytes after the want, then those before it.
    fn ahead_of_want(&mut self, read_ahead: ReadAhead) {
        if read_ahead == ReadAhead::None || self.wanted.end != self.view.want.end {
            return;
        }
        self.extra(self.wanted.end..self.near.end);
        self.extra(self.near.start..self.wanted.start);
    }

    /// Plans fetches of bytes that are not wanted, as far as the client's budget allows.
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

    /// Determines how a byte that is not stored is going to arrive. Unless that is certain to be
    /// soon, the draft also records when to consult the policy again.
    fn arrival(&mut self, byte: u64, wait_max: Duration) -> Arrival {
        if let Some(range) = self.ranges.iter().find(|range| range.contains(&byte)) {
            return Arrival::InTime(range.end);
        }
        let over = |flight: &Flight| self.view.span(flight).contains(&byte);
        let Some(index) = self.flights.iter().position(over) else {
            return Arrival::None;
        };
        let flight = self.flights[index];
        let span = self.view.span(&flight);
        // A flight of about one block finishes soon unless it is very slow, and a flight that has
        // almost reached the byte delivers it soon. Another flight would not be faster.
        let short = size(&span) < self.block.saturating_mul(2);
        if byte - span.start < NEAR || (short && wait_max > WAIT_MAX_NOW) {
            return Arrival::InTime(span.end);
        }
        let wait_max = if short {
            WAIT_MAX_WITHIN_BLOCK
        } else {
            wait_max
        };
        match time_to(&flight, byte) {
            Some(time) if time > wait_max => return Arrival::Late(index),
            Some(_) => self.ask_again(wait_max.max(RECHECK_WIDTH).min(RECHECK_MAX)),
            None => self.ask_again(flight.idle.clamp(RECHECK_MIN, RECHECK_MAX)),
        }
        Arrival::InTime(span.end)
    }

    /// Returns the lowest position, at least `start`, from which all bytes up to `byte` are missing
    /// and in no flight.
    fn clear_before(&self, byte: u64, start: u64) -> u64 {
        let stored = self.view.situation.have.within(start..byte);
        let flying = self.flights.iter().map(|flight| self.view.span(flight));
        stored
            .chain(flying)
            .map(|range| range.end)
            .filter(|end| *end <= byte)
            .fold(start, u64::max)
    }

    /// Returns the highest position, at most `end`, up to which all bytes from `byte` on are
    /// missing and in no flight.
    fn clear_after(&self, byte: u64, end: u64) -> u64 {
        let end = end.min(self.view.end);
        let stored = self.view.situation.have.within(byte..end);
        let flying = self.flights.iter().map(|flight| self.view.span(flight));
        // A flight whose range contains `byte` starts before it, and is not counted: the caller
        // shortens that flight to end at `byte`.
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

/// Estimates the time until a flight delivers this byte: `None` if its rate is unknown, and
/// `Duration::MAX` if it has stalled.
fn time_to(flight: &Flight, byte: u64) -> Option<Duration> {
    if flight.idle >= WAIT_MAX_AHEAD {
        return Some(Duration::MAX);
    }
    let distance = (byte - flight.at) as f64;
    match flight.rate? {
        0 => Some(Duration::MAX),
        rate => Duration::try_from_secs_f64(distance / rate as f64).ok(),
    }
}
