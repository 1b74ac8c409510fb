//! How urgent a thread's work is, for the kernel.

use std::io;

/// A tenth of what others weigh: they hardly notice it, and it still gets something done where all cores are
/// busy. With the least there is (19) it would get a sixtieth.
const LOW: i32 = 10;

/// From now on, what this thread does gives way to whatever else there is to do.
///
/// # Errors
/// The kernel's.
pub fn lower() -> io::Result<()> {
    // On Linux this is about the calling thread alone.
    Ok(rustix::process::setpriority_process(None, LOW)?)
}
