//! Routing: chooses a handler by host and path.

mod covering;
mod glob;
mod index;
mod lazy;
mod matcher;
mod router;
#[cfg(test)]
mod tests;

pub use covering::Covering;
pub use lazy::Routes;
pub use matcher::Matcher;
pub use router::{Router, Site};
