//! Control of the memory allocator.

/// Returns memory that this thread has freed to the kernel. The allocator does that only during
/// further allocations, so an idle process would keep its memory after a busy period.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and any thread may call this function at any time; it affects
    // only unused memory.
    unsafe { mi_collect(true) }
}
