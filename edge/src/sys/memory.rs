//! What the kernel is told about this process's memory.

/// Keeps memory in pages of 4 KiB. Huge ones, which the allocator would be given for the asking,
/// stay resident when a corner of them is in use: the process would outgrow its ledger by a third.
pub fn small_pages() {
    // Refused by a kernel without huge pages, where there is nothing to keep off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Gives memory that this thread has freed back to the kernel. The allocator does that by itself
/// only while it is asked for more: after a busy time a quiet process would keep it.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc is linked in, and this function of it may be called by any thread at any
    // time; it touches only memory that is not in use.
    unsafe { mi_collect(false) }
}
