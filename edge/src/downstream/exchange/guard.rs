//! Catches panics, so that a panic in a handler or a body ends one request and not its worker.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::handler::Fault;
use crate::reason::Reason;
use crate::telemetry::Counters;

/// Runs `call`, which calls a handler, a body or a tunnel. A panic is counted and becomes a fault.
#[inline]
pub fn guarded<T>(counters: &Counters, call: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| {
        counters.panics.add(1);
        Reason::Panic.into()
    })
}
