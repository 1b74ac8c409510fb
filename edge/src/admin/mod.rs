//! The admin API: status, the objects of a URL, explanations of requests, fetches, purges, orders about servers, reload,
//! metrics. It runs on a separate thread and uses the rest of the edge through the trait `Inspect` only.

mod access;
mod background;
mod certificate_state;
mod certificates;
mod change;
mod change_in_progress;
mod connections;
mod dashboard;
mod explain;
mod explanation;
mod fetch_order;
mod guard;
mod headers;
mod history;
mod inspect;
mod live;
mod metrics;
mod notice_feed;
mod object;
mod observed;
mod openapi;
mod page_query;
mod peer;
mod price;
mod purge;
mod server;
mod server_connections;
mod server_exchanges;
mod server_order;
mod servers;
mod settings;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod tokens;
mod tries;
mod what_if;
mod what_if_state;

pub use certificate_state::{
    CertificateAction, CertificateOrder, CertificateSource, CertificateState, Certificates, Ordered,
};
pub use change::Change;
pub use connections::AdminSocket;
pub use explanation::{AnswerState, Explanation, GateState, KeyState, PolicyState, Question};
pub use fetch_order::{FetchOrder, Fetched, Fetching};
pub use headers::ADMIN_HEADER;
pub use inspect::{Inspect, UrlObjects};
pub use object::{
    DecisionState, FlightState, FreshnessState, ObjectPhase, ObjectState, OnVolume, Span, UrlState,
};
pub use price::Price;
pub use purge::{Order, PurgeLogged, Purging, Refusal};
pub use server::Admin;
pub use server_exchanges::ServerExchanges;
pub use server_order::{ServerOrder, ServerSet};
pub use status::{
    FilesState, ReloadState, ServerState, ServerTotal, Status, UpstreamState, VolumeState,
    VolumeUse,
};
pub use tokens::{Role, TOKENS_MAX, TokenForm, Tokens, first_token};
pub use what_if_state::{CacheWhatIf, HitRatios, SizeRatios, WhatIf};
