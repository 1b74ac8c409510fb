//! Resolution of the names of servers, by DNS and the hosts file.
//!
//! One thread resolves all names of the process, and each of them again when its answer expires (`watch`). `lookup`
//! resolves a name once.

mod lookup;
mod watch;

pub use lookup::{Answer, Name, Target};
pub use watch::{Event, Failure, watch};
