//! The scheduling priority of threads.

use std::io;

/// Nice value of low-priority threads. With it, a thread has about a tenth of the normal weight: other threads are hardly slowed, and the
/// thread still progresses if all cores are busy. The lowest priority (19) would leave a sixtieth.
const LOW: i32 = 10;

/// Lowers the priority of the calling thread.
///
/// # Errors
///
/// The kernel refused.
pub fn lower() -> io::Result<()> {
    // On Linux, this call changes only the calling thread, not the process.
    Ok(rustix::process::setpriority_process(None, LOW)?)
}
