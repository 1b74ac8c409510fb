//! Certificates from authorities by ACME (RFC 8555): accounts, orders, challenges, renewal.

mod attempt;
mod authority;
mod challenges;
mod failure;
mod http_client;
mod key;
mod manager;
mod on_demand;
mod options;
mod order;
mod record;
mod schedule;
mod shared;
mod state;
mod storage;
mod window;

pub use challenges::Challenges;
pub use manager::Manager;
pub use options::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, OnDemand, Options,
};
pub use shared::Wanted;
pub use state::State;
pub use storage::in_folder;
