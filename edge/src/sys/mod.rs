//! Interfaces to the system: clock, randomness, files, sockets. No other code uses these directly.

pub mod address;
#[cfg(test)]
pub mod allocations;
mod allocator;
pub mod buffer;
pub mod clock;
pub mod connect;
pub mod disk;
mod host_name;
pub mod limits;
pub mod listen_address;
pub mod listen_options;
pub mod listener;
pub mod memory;
pub mod net;
pub mod once_box;
pub mod port;
pub mod priority;
pub mod program;
pub mod random;
pub mod root;
pub mod sandbox;
pub mod socket_file;
mod socket_option;
pub mod usage;
pub mod user;
mod watch;

pub use address::Address;
pub use allocator::Allocator;
pub use clock::Clock;
pub use host_name::host_name;
pub use listen_address::ListenAddress;
pub use random::Random;
