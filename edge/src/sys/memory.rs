//! What the kernel is told about this process's memory.

/// Keeps memory in pages of 4 KiB. Huge ones, which the allocator would be given for the asking,
/// stay resident when a corner of them is in use: the process would outgrow its ledger by a third.
pub fn small_pages() {
    // Refused by a kernel without huge pages, where there is nothing to keep off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
