//! What is counted: one set of counters per worker, written without contention, merged on reading.

mod access;
mod counters;

pub use access::{AccessLog, AccessRecord, AccessUpstream};
pub use counters::{Counter, Counters, Telemetry};
