//! The program `sluice`: sets the allocator and runs the command line.

use std::process::ExitCode;

/// The allocator is mimalloc: it needs little memory when idle and is fast for the workers. See
/// `docs/decisions/0006`.
#[global_allocator]
static ALLOCATOR: sluice::Allocator = sluice::Allocator;

fn main() -> ExitCode {
    sluice::run()
}
