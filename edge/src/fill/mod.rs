//! Fill policies decide which ranges of an object to fetch from the origin now.

use common::Common;

mod auto;
mod common;
#[cfg(test)]
mod laws;
mod lock;
mod pace;
mod policy;
#[cfg(test)]
mod race;
mod slice;
mod whole;

pub use pace::Pace;
pub use policy::{
    Flight, Joinable, Kind, OPEN, Options, Plan, Policy, ReadAhead, Situation, Unsettled,
};

/// Builds the fill policy for these options.
pub fn build(options: &Options) -> Box<dyn Policy + Send + Sync> {
    match options.kind {
        Kind::Whole => Box::new(Common(whole::Whole::new(options))),
        Kind::Lock => Box::new(Common(lock::Lock::new(options))),
        Kind::Slice => Box::new(Common(slice::Slice::new(options))),
        Kind::Auto => Box::new(Common(auto::Auto::new(options))),
    }
}
