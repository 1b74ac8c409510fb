//! The scheduling priority of threads.

use std::io;

/// Nice value of low-priority threads: a tenth of the normal weight, so other threads hardly notice
/// them, and they still progress if all cores are busy. The lowest priority (19) would give them a
/// sixtieth.
const LOW: i32 = 10;

/// Lowers the priority of the calling thread.
///
/// # Errors
/// The kernel refused.
pub fn lower() -> io::Result<()> {
    // On Linux this affects the calling thread only.
    Ok(rustix::process::setpriority_process(None, LOW)?)
}
