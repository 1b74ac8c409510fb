//! Timeouts of a worker's connections: one slot each and one sweep for all, instead of a timer per
//! connection.
//!
//! Setting a deadline only stores a number. A sweep every tick wakes the connections whose deadline
//! has passed, a few at a time, and each connection then checks its own deadline.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Duration;

use slab::Slab;

/// Length of a tick, and thus the resolution of every timeout.
pub const TICK: Duration = Duration::from_millis(100);

/// Number of ticks since the worker began.
pub type Tick = u32;

/// Deadline of a connection that has none.
pub const NEVER: Tick = Tick::MAX;

/// Most late connections that are woken at a time. Thousands may be late in the same tick, and the
/// other connections must not wait for all of them.
const WOKEN_MAX: usize = 16;

/// The deadlines of all connections of one worker.
#[derive(Default)]
pub struct Deadlines {
    now: Cell<Tick>,
    /// Index of the slot at which the sweep continues.
    cursor: Cell<usize>,
    slots: RefCell<Slab<Slot>>,
}

struct Slot {
    deadline: Tick,
    /// Whether the connection is idle: it waits only for its next request.
    idle: bool,
    /// Tick at which the deadline was last set.
    since: Tick,
    waker: Option<Waker>,
}

/// Returns the number of ticks after which at least `duration` has passed, even if the current tick
/// is nearly over.
pub fn ticks(duration: Duration) -> Tick {
    let ticks = duration.as_millis().div_ceil(TICK.as_millis()) + 1;
    Tick::try_from(ticks).unwrap_or(NEVER / 2)
}

impl Deadlines {
    /// Returns the current tick, as set by the last `pass`.
    #[inline]
    pub fn now(&self) -> Tick {
        self.now.get()
    }

    /// Adds a slot without a deadline and returns its index.
    pub fn add(&self) -> usize {
        self.slots.borrow_mut().insert(Slot {
            deadline: NEVER,
            idle: false,
            since: self.now(),
            waker: None,
        })
    }

    /// Removes a slot.
    pub fn remove(&self, slot: usize) {
        self.slots.borrow_mut().try_remove(slot);
    }

    /// Sets the task that is woken when this slot's deadline passes. Called at each poll; only the
    /// first call stores a waker.
    #[inline]
    pub fn watch(&self, slot: usize, cx: &Context<'_>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            match &slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => slot.waker = Some(cx.waker().clone()),
            }
        }
    }

    /// Sets a slot's deadline. `idle` marks a connection that may be closed to make room.
    #[inline]
    pub fn set(&self, slot: usize, deadline: Tick, idle: bool) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            slot.deadline = deadline;
            slot.idle = idle;
            slot.since = self.now();
        }
    }

    /// Sets a slot's deadline to `duration` from now.
    #[inline]
    pub fn set_in(&self, slot: usize, duration: Duration, idle: bool) {
        self.set(slot, self.now().saturating_add(ticks(duration)), idle);
    }

    /// Returns the tick at which a slot's deadline was last set.
    pub fn since(&self, slot: usize) -> Tick {
        let slots = self.slots.borrow();
        slots.get(slot).map_or(self.now(), |slot| slot.since)
    }

    /// Whether a slot's deadline has passed.
    #[inline]
    pub fn expired(&self, slot: usize) -> bool {
        let slots = self.slots.borrow();
        slots
            .get(slot)
            .is_some_and(|slot| slot.deadline <= self.now())
    }

    /// Makes a slot's deadline pass now, and wakes its connection.
    pub fn expire(&self, slot: usize) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            slot.deadline = 0;
            slot.wake();
        }
    }

    /// Sets the current tick.
    pub fn pass(&self, now: Tick) {
        self.now.set(now);
    }

    /// Continues the sweep: wakes a limited number of late connections. Returns whether more may be
    /// late; if not, the next call begins a new sweep.
    pub fn sweep(&self) -> bool {
        let slots = self.slots.borrow();
        let mut woken = 0;
        for key in self.cursor.get()..slots.capacity() {
            if let Some(slot) = slots.get(key)
                && slot.deadline <= self.now()
            {
                slot.wake();
                woken += 1;
                if woken == WOKEN_MAX {
                    self.cursor.set(key + 1);
                    return true;
                }
            }
        }
        self.cursor.set(0);
        false
    }

    /// Returns the earliest deadline of all connections, `NEVER` if none has one.
    pub fn earliest(&self) -> Tick {
        let slots = self.slots.borrow();
        let deadlines = slots.iter().map(|(_, slot)| slot.deadline);
        deadlines.min().unwrap_or(NEVER)
    }

    /// Wakes every connection, so that each one notices that the worker drains.
    pub fn wake_all(&self) {
        self.slots.borrow().iter().for_each(|(_, slot)| slot.wake());
    }

    /// Makes the deadlines of the `n` connections that have been idle longest pass now. Returns the
    /// number of such connections.
    pub fn expire_idle(&self, n: usize) -> usize {
        let mut slots = self.slots.borrow_mut();
        let mut idle: Vec<(Tick, usize)> = slots
            .iter()
            .filter(|(_, slot)| slot.idle && slot.deadline > self.now())
            .map(|(key, slot)| (slot.since, key))
            .collect();
        if idle.len() > n {
            // The `n` oldest are selected without sorting, since sorting many connections would
            // take milliseconds.
            idle.select_nth_unstable(n);
            idle.truncate(n);
        }
        for &(_, key) in &idle {
            slots[key].deadline = 0;
            slots[key].wake();
        }
        idle.len()
    }
}

impl Slot {
    /// `wake_by_ref` only schedules the task, so no slot changes while the slots are borrowed.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn the_connections_idle_for_longest_make_room_whatever_their_deadline() {
        let deadlines = Deadlines::default();
        let (a, b, c) = (deadlines.add(), deadlines.add(), deadlines.add());
        deadlines.set(a, 90, true);
        deadlines.set(c, 2, false);
        deadlines.pass(4);
        deadlines.set(b, 9, true);
        assert!(deadlines.expired(c) && !deadlines.expired(a) && !deadlines.expired(b));
        assert_eq!(deadlines.expire_idle(1), 1);
        assert!(deadlines.expired(a) && !deadlines.expired(b));
        assert_eq!(deadlines.expire_idle(2), 1);
    }

    struct Woken(AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_sweep_wakes_every_late_connection_once_and_a_few_at_a_time() {
        let deadlines = Deadlines::default();
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let late = 10 * WOKEN_MAX + 1;
        for i in 0..2 * late {
            let slot = deadlines.add();
            deadlines.watch(slot, &Context::from_waker(&waker));
            deadlines.set(slot, if i % 2 == 0 { 3 } else { 4 }, true);
        }
        deadlines.pass(3);
        for step in 1..=10 {
            assert!(deadlines.sweep());
            assert_eq!(woken.0.load(Ordering::Relaxed), step * WOKEN_MAX);
        }
        assert!(!deadlines.sweep());
        assert_eq!(woken.0.load(Ordering::Relaxed), late);
    }
}
