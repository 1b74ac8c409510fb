//! How urgent a thread's work is, for the kernel.

use std::io;

/// The least there is.
const LEAST: i32 = 19;

/// From now on, what this thread does waits for whatever else there is to do.
///
/// # Errors
/// The kernel's.
pub fn lower() -> io::Result<()> {
    // On Linux this is about the calling thread alone.
    Ok(rustix::process::setpriority_process(None, LEAST)?)
}
