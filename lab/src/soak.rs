//! The length of tests that can try more cases than the test command has time for.

/// The environment variable with the factor.
const VARIABLE: &str = "SLUICE_SOAK";

/// Returns how many times as many cases such a test tries as usual: the number in `SLUICE_SOAK`, or
/// 1. `cargo xtask soak` sets the variable.
pub fn factor() -> u32 {
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().expect("SLUICE_SOAK is a number"),
        Err(_) => 1,
    }
}
