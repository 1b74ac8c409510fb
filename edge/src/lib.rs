//! Sluice: a caching reverse proxy that sends any byte of a file as soon as it has arrived.
//!
//! `ARCHITECTURE.md` describes the folders, the permitted imports and the invariants.

pub mod admin;
pub(crate) mod balance;
pub(crate) mod cache;
pub(crate) mod compress;
pub mod config;
pub mod downstream;
pub(crate) mod edit;
pub mod evict;
pub mod files;
pub(crate) mod fill;
pub mod gate;
pub mod handler;
pub mod http;
pub mod ranges;
pub mod reason;
pub mod route;
pub mod store;
pub mod sys;
pub mod telemetry;
pub(crate) mod upstream;
pub mod volume;
pub mod wiring;
