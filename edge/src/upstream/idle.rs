//! Idle connections: closes those that have expired or that the server has closed, and shrinks those
//! that are idle for long.

use std::rc::Rc;
use std::time::Duration;

use super::connection::Connection;
use super::pool::Pool;

/// Time after which an idle connection frees the memory of exchanges, in microseconds, and the shortest
/// time between two sweeps. A connection that is used more often keeps the
/// memory, since allocating it for each request costs CPU time.
const SHRINK_US: u64 = 1_000_000;

impl Pool {
    /// Returns the time from `now_us` until an idle connection expires. One with exchanges in
    /// progress is not idle.
    pub(super) fn expires_in_us(&self, connection: &Connection, now_us: u64) -> u64 {
        let limit_us = self.limits.keepalive_timeout_us;
        let limit_us = limit_us.min(connection.idle_limit_us());
        limit_us.saturating_sub(connection.idle_us(now_us))
    }

    /// Notes that a connection has become idle.
    pub(super) fn note_idle(&self) {
        if !self.is_sweep_due.replace(true) {
            self.idle_events.notify_one();
        }
    }

    /// Closes idle connections that have expired or that the server has closed, and shrinks those
    /// that are idle for long. Returns the time until the next sweep.
    pub(super) fn sweep(&self) -> Duration {
        let now_us = self.clock.monotonic_us();
        let mut next_us = self.limits.keepalive_timeout_us;
        let (mut is_due, mut has_freed) = (false, false);
        let servers = self.slots.servers().clone();
        for server in servers {
            let all = server.available.take();
            for mut connection in all {
                let left_us = self.expires_in_us(&connection, now_us);
                if left_us == 0 || !connection.stays_usable(&self.idle_waker) {
                    has_freed = true;
                    continue;
                }
                next_us = next_us.min(left_us);
                match connection.idle_us(now_us) >= SHRINK_US {
                    true => has_freed |= connection.shrink(),
                    false => is_due = true,
                }
                server.put(connection);
            }
        }
        if has_freed {
            self.memory_freed.notify_one();
        }
        self.is_sweep_due.set(is_due);
        if is_due {
            next_us = next_us.min(SHRINK_US);
        }
        Duration::from_micros(next_us.max(1000))
    }

    /// Starts the task that runs `sweep` whenever an idle connection has an event, expires or can be
    /// shrunk, and takes over changed slots.
    pub(super) fn start_idle_task(self: &Rc<Pool>) {
        if self.idle_task.borrow().is_some() {
            return;
        }
        let (pool, events) = (Rc::downgrade(self), self.idle_events.clone());
        let rounds = async move {
            while let Some(pool) = pool.upgrade() {
                pool.refresh();
                pool.unpark_all();
                let next = pool.sweep();
                drop(pool);
                let _ = tokio::time::timeout(next, events.notified()).await;
            }
        };
        *self.idle_task.borrow_mut() = Some(tokio::task::spawn_local(rounds));
    }
}
