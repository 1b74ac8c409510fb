//! Lints: warn about configurations that are valid but hardly intended, or dangerous.

pub mod paths;
pub mod plan;
pub mod rules;
pub mod upstreams;
pub mod variables;
