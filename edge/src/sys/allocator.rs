//! The memory allocator of the program.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

use mimalloc::MiMalloc;

/// Largest alignment in bytes that each of mimalloc's blocks has, if it has at least that size
/// (`MI_MAX_ALIGN_SIZE` in mimalloc/types.h).
const ALIGN_MAX: usize = 16;

unsafe extern "C" {
    fn mi_malloc(size: usize) -> *mut c_void;
    fn mi_zalloc(size: usize) -> *mut c_void;
    fn mi_realloc(block: *mut c_void, size: usize) -> *mut c_void;
}

/// mimalloc. Its bindings ask for an alignment with every block, which takes mimalloc several times
/// as long for blocks of more than 1 KiB, although nearly all alignments are those that every block
/// has. So this allocator asks only for larger ones, as Rust's own does (`MIN_ALIGN` in
/// std/src/sys/alloc).
pub struct Allocator;

/// Whether every block of the size has the alignment.
fn is_aligned_anyway(layout: Layout) -> bool {
    layout.align() <= ALIGN_MAX && layout.align() <= layout.size()
}

// SAFETY: all memory comes from mimalloc, whose blocks have at least the requested size. A block of
// mi_malloc and its variants is aligned to 16 bytes, or to 8 if it is smaller than 16, so that
// layouts for which `is_aligned_anyway` holds need no more. Its functions neither unwind nor call
// this allocator, and accept blocks of each other.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_aligned_anyway(layout) {
            // SAFETY: any size is permitted.
            true => unsafe { mi_malloc(layout.size()) }.cast(),
            // SAFETY: the caller's promises are those that `MiMalloc` needs.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_aligned_anyway(layout) {
            // SAFETY: any size is permitted.
            true => unsafe { mi_zalloc(layout.size()) }.cast(),
            // SAFETY: the caller's promises are those that `MiMalloc` needs.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is mimalloc's.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() <= ALIGN_MAX && layout.align() <= size {
            // SAFETY: the block is mimalloc's, and the new block is aligned by the same rule.
            true => unsafe { mi_realloc(block.cast(), size) }.cast(),
            // SAFETY: the caller's promises are those that `MiMalloc` needs.
            false => unsafe { MiMalloc.realloc(block, layout, size) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_requested_alignment_and_keep_their_content()
    -> Result<(), std::alloc::LayoutError> {
        for size in (1..100).chain([1000, 1024, 5000, 8192, 100_000, 3 << 20]) {
            for align in [1, 2, 4, 8, 16, 32, 64, 128, 4096] {
                let layout = Layout::from_size_align(size, align)?;
                // SAFETY: the size is not zero. Each block is used within its size, and freed once
                // with its own layout.
                unsafe {
                    let blocks = [Allocator.alloc(layout), Allocator.alloc_zeroed(layout)];
                    for block in blocks {
                        assert!(!block.is_null() && block.addr() % align == 0, "{layout:?}");
                    }
                    assert!(
                        std::slice::from_raw_parts(blocks[1], size)
                            .iter()
                            .all(|&b| b == 0)
                    );
                    for block in blocks {
                        block.write_bytes(7, size);
                        let larger = Allocator.realloc(block, layout, size + 9);
                        assert!(
                            !larger.is_null() && larger.addr() % align == 0,
                            "{layout:?}"
                        );
                        let kept = std::slice::from_raw_parts(larger, size);
                        assert!(kept.iter().all(|&b| b == 7));
                        Allocator.dealloc(larger, Layout::from_size_align(size + 9, align)?);
                    }
                }
            }
        }
        Ok(())
    }
}
