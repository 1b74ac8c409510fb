//! Certificates from authorities by ACME (RFC 8555): accounts, orders, challenges, renewal.

mod authority;
mod challenges;
mod http_client;
mod key;
mod manager;
mod operator;
mod options;
mod order;
mod probe;
mod record;
mod revocation;
mod schedule;
mod storage;
mod stored;

pub use challenges::Challenges;
pub use manager::{Manager, State, Wanted};
pub use operator::Refused;
pub use options::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Options,
};
pub use probe::{ProbeError, probe};
pub use revocation::Reason;
pub use storage::in_folder;
pub use stored::stored;
