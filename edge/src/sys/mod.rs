//! Interfaces to the system: clock, randomness, files, sockets. No other code uses these directly.

pub mod address;
pub mod buffer;
pub mod clock;
pub mod connect;
pub mod disk;
pub mod limits;
pub mod listen_options;
pub mod memory;
pub mod net;
pub mod priority;
pub mod random;
pub mod root;
pub mod sandbox;
pub mod user;

pub use address::Address;
pub use clock::Clock;
pub use random::Random;
