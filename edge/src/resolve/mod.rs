//! Resolution of the names of servers, by DNS and the hosts file.
//!
//! One thread resolves all names of the process, and each of them again when its answer expires (`watch`). `lookup`
//! resolves a name once, by questions to name servers (`dns`), and completes an answer of which a part is missing
//! (`hosts`). `once` does so for a command.

mod dns;
mod hosts;
mod lookup;
mod once;
mod watch;

pub use hosts::{Failure, Hosts};
pub use lookup::{Answer, Name, Target};
pub use once::addresses;
pub use watch::{Event, watch};
