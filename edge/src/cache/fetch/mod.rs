//! Fetches: a flight fetches bytes from the origin, and all its riders learn the outcome.

pub(in crate::cache) mod flight;
pub(in crate::cache) mod launch;
pub(in crate::cache) mod leader_result;
mod outcome;
mod rated_body;
mod receive;
mod revalidation;
mod unwanted;
