//! Certificates from authorities by ACME (RFC 8555): accounts, orders, challenges, renewal; and those of the local
//! authority, which needs no other.

mod attempt;
mod authority;
mod challenges;
mod demanded;
pub mod dns;
mod failure;
mod http_client;
mod internal;
mod key;
mod manager;
mod on_demand;
mod operator;
mod options;
mod order;
mod probe;
mod record;
mod revocation;
mod root;
mod schedule;
mod shared;
mod state;
mod state_folder;
mod storage;
mod stored;
mod window;

pub use challenges::Challenges;
pub use internal::{Hosts, Internal};
pub use manager::Manager;
pub use operator::Refused;
pub use options::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, OnDemand, Options,
};
pub use probe::{ProbeError, probe};
pub use revocation::Reason;
pub use root::Root;
pub use shared::Wanted;
pub use state::State;
pub use state_folder::state_folder;
pub use storage::{Storage, in_folder, read_only};
pub use stored::stored;
