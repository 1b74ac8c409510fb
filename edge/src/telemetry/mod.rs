//! What is counted: one set of counters per worker, written without contention, merged on reading.

mod counters;

pub use counters::{Counter, Counters, Telemetry};
