//! Control of the memory allocator.

/// Returns memory that this thread has freed to the kernel. The allocator does so only during further allocations, so without this call an
/// idle process would keep its memory after a busy period.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and any thread may call `mi_collect` at any time: it affects only unused memory.
    unsafe { mi_collect(true) }
}
