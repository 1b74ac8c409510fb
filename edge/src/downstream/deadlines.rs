//! Timeouts of a worker's connections: one slot each, one sweep for all, no timer per connection.
//!
//! A deadline is a plain store. A sweep every tick wakes those whose deadline has passed, some at a
//! time, and the connection then finds out itself.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Duration;

use slab::Slab;

/// Length of a tick, and so the fineness of every timeout here.
pub const TICK: Duration = Duration::from_millis(100);

/// Ticks since the worker began.
pub type Tick = u32;

/// No deadline.
pub const NEVER: Tick = Tick::MAX;

/// Connections that are woken at once because they are late. Thousands may be in the same tick, and
/// whoever is not must not wait for all of them.
const WOKEN_MAX: usize = 16;

/// All slots of one worker.
#[derive(Default)]
pub struct Deadlines {
    now: Cell<Tick>,
    /// Where the sweep goes on.
    cursor: Cell<usize>,
    slots: RefCell<Slab<Slot>>,
}

struct Slot {
    deadline: Tick,
    /// Whether the connection waits for nothing but its next request.
    idle: bool,
    /// When it last was told what to wait for.
    since: Tick,
    waker: Option<Waker>,
}

/// A number of ticks that is at least this long: a part of a tick more is gone already.
pub fn ticks(duration: Duration) -> Tick {
    let ticks = duration.as_millis().div_ceil(TICK.as_millis()) + 1;
    Tick::try_from(ticks).unwrap_or(NEVER / 2)
}

impl Deadlines {
    /// The current tick, as of the last sweep.
    #[inline]
    pub fn now(&self) -> Tick {
        self.now.get()
    }

    /// A new slot, without a deadline.
    pub fn add(&self) -> usize {
        self.slots.borrow_mut().insert(Slot {
            deadline: NEVER,
            idle: false,
            since: self.now(),
            waker: None,
        })
    }

    /// Gives a slot back.
    pub fn remove(&self, slot: usize) {
        self.slots.borrow_mut().try_remove(slot);
    }

    /// Who is to be woken; called at each poll, and does something at the first.
    #[inline]
    pub fn watch(&self, slot: usize, cx: &Context<'_>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            match &slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => slot.waker = Some(cx.waker().clone()),
            }
        }
    }

    /// Sets the deadline; `idle` marks a connection that may be closed to make room.
    #[inline]
    pub fn set(&self, slot: usize, deadline: Tick, idle: bool) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot) {
            slot.deadline = deadline;
            slot.idle = idle;
            slot.since = self.now();
        }
    }

    /// Sets the deadline to this long from now.
    #[inline]
    pub fn set_in(&self, slot: usize, duration: Duration, idle: bool) {
        self.set(slot, self.now().saturating_add(ticks(duration)), idle);
    }

    /// Whether the deadline has passed.
    #[inline]
    pub fn expired(&self, slot: usize) -> bool {
        let slots = self.slots.borrow();
        slots
            .get(slot)
            .is_some_and(|slot| slot.deadline <= self.now())
    }

    /// Moves the time on.
    pub fn pass(&self, now: Tick) {
        self.now.set(now);
    }

    /// Goes on with a sweep: wakes those that are late, a limited number of them. Says whether there
    /// may be more; if not, the next call begins a new sweep.
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

    /// Wakes everyone, so that each sees what the worker has been told.
    pub fn wake_all(&self) {
        self.slots.borrow().iter().for_each(|(_, slot)| slot.wake());
    }

    /// Ends the time of the `n` idle connections that have waited longest; says how many there were.
    pub fn expire_idle(&self, n: usize) -> usize {
        let mut slots = self.slots.borrow_mut();
        let mut idle: Vec<(Tick, usize)> = slots
            .iter()
            .filter(|(_, slot)| slot.idle && slot.deadline > self.now())
            .map(|(key, slot)| (slot.since, key))
            .collect();
        if idle.len() > n {
            // Those before the nth, in any order: sorting all of many would take milliseconds.
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
    /// Waking only schedules: no slot is touched by it.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// How fast one transfer goes, counting only the time that the other end was waited for. That time
/// runs up a debt of bytes at the least rate, which bytes pay off; they buy no credit beyond it, so
/// who was fast once may not be slow ever after.
#[derive(Default)]
pub struct Pace {
    since: Option<Tick>,
    /// In bytes, times the ticks of a second, so that a tick costs `rate_min`.
    debt: u64,
    rate_min: u64,
}

const TICKS_A_SECOND: u64 = 1000 / TICK.as_millis() as u64;

/// What a transfer has to keep to.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Longest pause.
    pub pause: Duration,
    /// Bytes a second; 0: any.
    pub rate_min: u64,
    /// How long it may be slower.
    pub grace: Duration,
}

impl Pace {
    /// Bytes went through.
    pub fn progress(&mut self, now: Tick, bytes: usize) {
        self.stop(now);
        let paid = (bytes as u64).saturating_mul(TICKS_A_SECOND);
        self.debt = self.debt.saturating_sub(paid);
    }

    /// The other end is not what is waited for.
    pub fn stop(&mut self, now: Tick) {
        if let Some(since) = self.since.take() {
            let cost = u64::from(now.saturating_sub(since)).saturating_mul(self.rate_min);
            self.debt = self.debt.saturating_add(cost);
        }
    }

    /// The other end is waited for: until when at most. The rate holds while no more is owed than
    /// `grace` costs.
    pub fn wait(&mut self, now: Tick, rule: &Rule) -> Tick {
        let since = *self.since.get_or_insert(now);
        let pause = since.saturating_add(ticks(rule.pause));
        self.rate_min = rule.rate_min;
        if rule.rate_min == 0 {
            return pause;
        }
        let owed = Tick::try_from(self.debt.div_ceil(rule.rate_min)).unwrap_or(NEVER);
        let left = ticks(rule.grace).saturating_sub(owed);
        pause.min(since.saturating_add(left))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const RULE: Rule = Rule {
        pause: Duration::from_secs(10),
        rate_min: 100,
        grace: Duration::from_secs(2),
    };

    #[test]
    fn a_trickle_is_cut_after_the_grace_and_a_stall_after_the_pause() {
        let mut pace = Pace::default();
        assert_eq!(
            pace.wait(0, &RULE),
            21,
            "two seconds and the tick that is under way"
        );
        let mut now = 0;
        while pace.wait(now, &RULE) > now {
            now += 9;
            pace.progress(now, 1);
        }
        assert!((20..=30).contains(&now), "a byte in 0.9 s: {now}");
    }

    #[test]
    fn who_was_fast_is_cut_no_later_when_slow() {
        let mut pace = Pace::default();
        let mut now = 0;
        for _ in 0..1_000 {
            pace.wait(now, &RULE);
            now += 1;
            pace.progress(now, 1_000);
        }
        let slow_from = now;
        while pace.wait(now, &RULE) > now + 9 {
            now += 10;
            pace.progress(now, 1);
        }
        let lasted = now - slow_from;
        assert!((10..=30).contains(&lasted), "{lasted} ticks of slowness");
    }

    #[test]
    fn who_keeps_the_rate_is_never_cut() {
        let mut pace = Pace::default();
        for second in 0..1_000 {
            let now = second * 10;
            assert!(pace.wait(now, &RULE) > now + 10, "after {second} s");
            pace.progress(now + 10, 100);
        }
    }

    #[test]
    fn only_time_waited_counts() {
        let mut pace = Pace::default();
        pace.wait(0, &RULE);
        pace.stop(10);
        assert_eq!(pace.wait(1_000, &RULE), 1_000 + 11);
    }

    #[test]
    fn room_is_made_by_those_that_are_idle_for_longest_whenever_their_time_ends() {
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
    fn a_sweep_wakes_all_that_are_late_once_and_few_at_a_time() {
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
