//! The admin API: status, the objects of a URL, purges, orders about servers, reload, metrics. It runs on a separate
//! thread and uses the rest of the edge through the trait `Inspect` only.

mod certificate_state;
mod certificates;
mod connections;
mod dashboard;
mod guard;
mod inspect;
mod metrics;
mod object;
mod price;
mod purge;
mod server;
mod server_order;
mod servers;
mod settings;
mod status;
mod stream;
#[cfg(test)]
mod tests;

pub use certificate_state::{
    CertificateAction, CertificateOrder, CertificateSource, CertificateState, Certificates, Ordered,
};
pub use inspect::{Inspect, UrlObjects};
pub use object::{DecisionState, FlightState, ObjectPhase, ObjectState, OnVolume, Span, UrlState};
pub use price::Price;
pub use purge::{Order, PurgeLogged, Purging, Refusal};
pub use server::Admin;
pub use server_order::{ServerOrder, ServerSet};
pub use status::{
    FilesState, ReloadState, ServerState, ServerTotal, Status, UpstreamState, VolumeState,
    VolumeUse,
};
pub use stream::ADMIN_HEADER;
