//! The program `sluice`.
fn main() {}
