//! Certificates from authorities by ACME (RFC 8555): accounts, orders, challenges, renewal.

mod authority;
mod challenges;
pub mod dns;
mod http_client;
mod key;
mod manager;
mod options;
mod order;
mod record;
mod schedule;
mod storage;

pub use challenges::Challenges;
pub use manager::{Manager, State, Wanted};
pub use options::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Options,
};
pub use storage::in_folder;
