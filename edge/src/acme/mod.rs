//! Certificates from authorities by ACME (RFC 8555): accounts, orders, challenges, renewal; and those of the local
//! authority, which needs no other.

mod authority;
mod challenges;
mod http_client;
mod internal;
mod key;
mod manager;
mod options;
mod order;
mod record;
mod root;
mod schedule;
mod state_folder;
mod storage;

pub use challenges::Challenges;
pub use internal::{Hosts, Internal};
pub use manager::{Manager, State, Wanted};
pub use options::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Options,
};
pub use root::Root;
pub use state_folder::state_folder;
pub use storage::{Storage, in_folder, read_only};
