//! The seams to the outside: clock, randomness, sockets. Nothing else reads them directly.

pub mod clock;
pub mod memory_pipe;
pub mod net;
pub mod random;

pub use clock::Clock;
