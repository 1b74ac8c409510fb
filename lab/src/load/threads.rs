//! A load on several threads: the division of a plan among them, their common start, and the sum of their results.

use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;

use super::engine::run_part;
use super::schedule::Turn;
use super::state::Outcome;
use super::{Live, LoadPlan, LoadResult};
use crate::process::permitted_cores;

/// Runs a load on this many threads, which share its connections, its rate and its requests. In an open loop, they take
/// turns with the requests. With `cores`, each thread is pinned to one of the cores that this process may use. If a
/// thread fails, the others end, too.
///
/// Errors: as for [`run`](super::run), and a thread that can't be created.
pub fn run_on_threads(
    plan: &LoadPlan,
    threads: usize,
    cores: bool,
    live: &Live,
) -> anyhow::Result<LoadResult> {
    let threads = threads.clamp(1, plan.connections.max(1));
    let permitted = match cores {
        true => permitted_cores()?,
        false => Vec::new(),
    };
    let (ready, all_ready) = channel::<()>();
    let began = OnceLock::new();
    let outcomes: Vec<anyhow::Result<Outcome>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|number| {
                let turn = Turn::new(number, threads);
                let mut plan = part(plan, turn);
                plan.core = plan.core.or_else(|| core(&permitted, number));
                let stop = StopOnFailure(live);
                let (ready, began) = (ready.clone(), &began);
                thread::Builder::new().spawn_scoped(scope, move || {
                    let begin = || {
                        drop(ready);
                        *began.wait()
                    };
                    let outcome = run_part(plan, turn, Some(live), begin)?;
                    stop.disarm();
                    Ok(outcome)
                })
            })
            .collect();
        drop(ready);
        // Receiving fails once each thread has prepared its part or has failed.
        let _ = all_ready.recv();
        began.get_or_init(Instant::now);
        let joined = started.into_iter().map(|started| {
            let joined = started.context("a thread can't be created")?.join();
            joined.unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))
        });
        joined.collect()
    });
    let mut sum: Option<Outcome> = None;
    for outcome in outcomes {
        let outcome = outcome?;
        match &mut sum {
            None => sum = Some(outcome),
            Some(sum) => sum.add(outcome),
        }
    }
    Ok(sum.map(Outcome::result).unwrap_or_default())
}

/// Returns the core of a thread. If there are more threads than cores, the cores are used in turn.
fn core(permitted: &[usize], number: usize) -> Option<usize> {
    permitted.iter().cycle().nth(number).copied()
}

/// Ends the load of all threads when it is dropped without having been disarmed.
struct StopOnFailure<'a>(&'a Live);

impl StopOnFailure<'_> {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOnFailure<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns the part of a plan that one thread runs. The rate remains that of the whole load, because the threads take
/// turns.
fn part(plan: &LoadPlan, turn: Turn) -> LoadPlan {
    let share = |whole: u64| share(whole, turn);
    LoadPlan {
        connections: share(plan.connections as u64).1 as usize,
        requests: plan.requests.map(|whole| turn.count(whole)),
        numbers: plan.numbers.map(|(first, count)| {
            let (before, own) = share(count);
            (first + before, own)
        }),
        ..plan.clone()
    }
}

/// Returns the number of consecutive items before a thread's share of `whole`, and its share.
fn share(whole: u64, turn: Turn) -> (u64, u64) {
    let Turn { number, threads } = turn;
    let (each, rest) = (whole / threads, whole % threads);
    (
        number * each + number.min(rest),
        each + u64::from(number < rest),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::load::{Choice, Replayed};

    #[test]
    fn threads_are_pinned_to_permitted_cores_in_turn() {
        let cores: Vec<_> = (0..4).map(|number| core(&[3, 6, 7], number)).collect();
        assert_eq!(cores, [Some(3), Some(6), Some(7), Some(3)]);
        assert_eq!(core(&[], 0), None);
    }

    #[test]
    fn threads_share_the_logged_requests() {
        let line = Replayed {
            target: "/".to_owned(),
            at: 0.0,
            range: None,
        };
        let plan = LoadPlan {
            choice: Choice::Replay(vec![line; 3].into()),
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        let part = part(&plan, Turn::new(0, 2));
        let (Choice::Replay(all), Choice::Replay(shared)) = (&plan.choice, &part.choice) else {
            panic!("the choice has changed: {:?}", part.choice);
        };
        assert!(Arc::ptr_eq(all, shared));
        let json = serde_json::to_string(&plan.choice).expect("JSON");
        let read: Choice = serde_json::from_str(&json).expect("a choice");
        assert_eq!(read, plan.choice);
    }

    #[test]
    fn the_parts_of_a_plan_add_up() {
        let plan = LoadPlan {
            connections: 10,
            requests: Some(101),
            rate: Some(30.0),
            numbers: Some((5, 100)),
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/{n}")
        };
        let parts: Vec<LoadPlan> = (0..3)
            .map(|number| part(&plan, Turn::new(number, 3)))
            .collect();
        let connections: Vec<usize> = parts.iter().map(|one| one.connections).collect();
        assert_eq!(connections, [4, 3, 3]);
        let requests: Vec<_> = parts.iter().filter_map(|one| one.requests).collect();
        assert_eq!(requests, [34, 34, 33]);
        assert!(parts.iter().all(|one| one.rate == Some(30.0)));
        let numbers: Vec<_> = parts.iter().filter_map(|one| one.numbers).collect();
        assert_eq!(numbers, [(5, 34), (39, 33), (72, 33)]);
    }
}
