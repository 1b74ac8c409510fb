//! Long work of a thread beside the workers, in turns.

use std::thread;

/// Counts the steps of long work. After each turn, a worker that waits for the core gets it; without that, its requests
/// would have to wait for the next tick of the kernel, up to 4 ms.
#[derive(Debug)]
pub struct Turns {
    /// Number of steps in a turn.
    length: usize,
    /// Number of steps left in this turn.
    left: usize,
}

impl Turns {
    /// Begins work whose turns have `length` steps, at least one. A turn should take about half a millisecond.
    pub fn of(length: usize) -> Turns {
        let length = length.max(1);
        Turns {
            length,
            left: length,
        }
    }

    /// Ends a step. Returns whether the turn ended with it.
    pub fn step(&mut self) -> bool {
        self.left -= 1;
        let has_ended = self.left == 0;
        if has_ended {
            self.left = self.length;
            thread::yield_now();
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_its_steps() {
        let mut turns = Turns::of(3);
        let ends: Vec<bool> = (0..7).map(|_| turns.step()).collect();
        assert_eq!(ends, [false, false, true, false, false, true, false]);
        assert!(Turns::of(0).step());
    }
}
