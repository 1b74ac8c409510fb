//! Lints: configurations that can run and are hardly meant, or dangerous.

pub mod plan;
pub mod rules;
