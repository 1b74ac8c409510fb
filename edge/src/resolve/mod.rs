//! Resolution of the names of servers, by DNS and the hosts file.
//!
//! One thread resolves all names of the process, and each of them again when its answer expires (`watch`). `lookup`
//! resolves a name once, by questions to name servers (`dns`), and completes an answer of which a part is missing
//! (`hosts`).

mod dns;
mod hosts;
mod lookup;
mod watch;

pub use hosts::{Failure, Hosts};
pub use lookup::{Answer, Name, Target};
pub use watch::{Event, watch};
