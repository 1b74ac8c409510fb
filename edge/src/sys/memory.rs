//! What the allocator is told about this process's memory.

/// Gives memory that this thread has freed back to the kernel. The allocator does that by itself
/// only while it is asked for more: after a busy time a quiet process would keep it.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and this function of it may be called by any thread at any
    // time; it touches only memory that is not in use.
    unsafe { mi_collect(true) }
}
