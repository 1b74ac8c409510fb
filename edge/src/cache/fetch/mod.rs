//! Fetches: a flight brings bytes from the origin, and its outcome is told to all that ride it.

pub(in crate::cache) mod flight;
pub(in crate::cache) mod launch;
pub(in crate::cache) mod leader_result;
mod outcome;
mod revalidation;
