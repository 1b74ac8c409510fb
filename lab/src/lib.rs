//! Sluice's harness: a test origin with every fault, a client that verifies every byte, a load generator, and rival servers.
//!
//! Nothing here knows Sluice's own code. The lab sees a server only as its clients and its origins see it: over sockets,
//! as a process, and through what it prints.

pub mod bench;
pub mod budget;
pub mod byte_range;
pub mod caches;
pub mod caching;
pub mod client;
pub mod disk;
pub mod figures;
pub mod load;
pub mod noise;
pub mod offset;
pub mod origin;
#[cfg(feature = "lab")]
pub mod placement;
pub mod process;
pub mod purge;
pub mod ramp;
pub mod rivals;
pub mod roles;
pub mod slow_clients;
pub mod storm;

pub use roles::entry;

/// Where experiments on two cores have their servers.
const SERVER_CORE: usize = 0;

/// Where they have their clients and origins.
const LOAD_CORE: usize = 1;
