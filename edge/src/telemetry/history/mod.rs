//! The history of numbers: points of two bytes per number, in rings of fixed size, which are read over the admin API.
//!
//! Everything here receives the time and the readings as arguments. `wiring` takes the readings and saves the history.

mod code;
mod file;
mod layout;
mod layouts;
mod member;
mod members;
mod query;
mod restore;
mod ring;
mod saver;
mod scope;
mod shared;
#[cfg(test)]
mod tests;
mod tick;

pub use file::Damage;
#[cfg(test)]
pub use layout::Layout;
pub use layout::Series;
pub use layouts::{MEMORY_MAX, layouts, member_bytes};
pub use member::Values;
pub use members::History;
pub use query::{Answer, POINTS_MAX, POINTS_MIN, Period, Row};
pub use ring::RingSize;
pub use saver::Saver;
pub use scope::Scope;
pub use shared::SharedHistory;
pub use tick::{Moment, Tick};
