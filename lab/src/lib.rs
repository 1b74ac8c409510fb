//! The lab: a test origin that can misbehave, a client that verifies every byte, a load generator, and rival servers.
//!
//! The lab does not use Sluice's code. Experiments see a server as its clients and origins do: over sockets, as a
//! process, and by its output.

pub mod access_log;
pub mod all;
pub mod bench;
pub mod bind;
pub mod budget;
pub mod byte_range;
pub mod caches;
pub mod caching;
pub mod certificates;
pub mod client;
pub mod configurations;
pub mod disk;
pub mod dns;
pub mod figures;
pub mod front;
pub mod hostile_http2;
#[cfg(feature = "lab")]
pub mod keepalive;
pub mod load;
pub mod noise;
pub mod offset;
pub mod origin;
pub mod pauses;
pub mod pebble;
#[cfg(feature = "lab")]
pub mod placement;
pub mod process;
pub mod purge;
pub mod ramp;
pub mod raw_http2;
pub mod raw_tls;
pub mod report;
pub mod rivals;
pub mod roles;
pub mod scratch;
pub mod slow_clients;
pub mod soak;
pub mod spread;
pub mod static_files;
pub mod storm;
#[cfg(feature = "lab")]
pub mod wan;
pub mod zipf;

pub use roles::entry;

/// Core of the servers in experiments on two cores.
const SERVER_CORE: usize = 0;

/// Core of the clients and origins in experiments on two cores.
const LOAD_CORE: usize = 1;
