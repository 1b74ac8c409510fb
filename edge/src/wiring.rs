//! Builds a running server from a plan: the only place that connects all parts.
//!
//! Everything that outlives a reload (stores, upstream statistics, the log writer) belongs to a
//! `Snapshot`. Each worker builds its handlers from the newest snapshot and replaces them between
//! two requests.

mod admin_socket;
mod certificate_states;
mod certificates;
mod compression;
mod edge;
mod encryption;
mod expiry;
mod fetches;
mod fetching;
mod handlers;
mod inspect;
mod listeners;
mod logged;
mod numbers;
mod observed;
mod obtained;
mod preview;
mod privileges;
mod purge;
mod purge_logs;
mod rewritten;
mod running;
mod servers;
mod signals;
mod snapshot;
mod upstreams;
mod volumes;
mod what_if;
mod worker;

pub use certificate_states::stored as stored_certificates;
pub use edge::Source;
pub use obtained::directory_tls;
pub use preview::explain_plan;
pub use running::{Running, start};
pub use signals::{AllSignals, Signals};
