//! Real-time priority for threads that must run at a given time, even if the machine is busy.

/// Lets the calling thread run before all threads of ordinary priority. Threads and processes that it starts have
/// ordinary priority. Returns false if that is not permitted (CAP_SYS_NICE is needed).
///
/// Such a thread must wait most of the time, since it could keep a core from all others.
pub(super) fn raise_priority() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel only reads the parameter, which lives until the call returns. The id 0 stands for the calling
    // thread.
    unsafe { libc::sched_setscheduler(0, policy, &parameter) == 0 }
}
