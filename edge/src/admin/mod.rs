//! The admin API: status, what is stored of a URL, purges, reload, metrics. It runs on a thread of
//! its own and sees the rest of the edge through one trait, `Inspect`.

mod inspect;
mod metrics;
mod object;
mod purge;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub use inspect::Inspect;
pub use object::{DecisionState, FlightState, ObjectPhase, ObjectState, OnVolume, Span, UrlState};
pub use purge::{Order, PurgeLogged, Purging, Refusal};
pub use server::Admin;
pub use status::{
    FilesState, ReloadState, ServerState, Status, UpstreamState, VolumeState, VolumeUse,
};
