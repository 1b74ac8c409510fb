//! The seams to the outside: clock, randomness, sockets. Nothing else reads them directly.

pub mod clock;
pub mod connect;
pub mod random;

pub use clock::Clock;
