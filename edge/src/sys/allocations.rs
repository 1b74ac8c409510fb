//! Counts the allocations of each thread, for tests of code that must not allocate.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use super::allocator::Allocator;

#[global_allocator]
static COUNTED: Counted = Counted;

thread_local! {
    /// Number of blocks that this thread has allocated or enlarged.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of the program, with a count per thread.
struct Counted;

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: all calls are passed on to the program's allocator. The thread's count is a plain number that is neither
// allocated nor dropped.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the allocator needs.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as for `alloc`.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { Allocator.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `alloc`.
        unsafe { Allocator.realloc(block, layout, size) }
    }
}

/// Calls a function, and returns how many blocks this thread allocated meanwhile.
pub fn during(function: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    function();
    COUNT.with(Cell::get) - before
}

#[test]
fn allocations_of_this_thread_are_counted() {
    let allocated = during(|| {
        let mut list = Vec::with_capacity(1);
        list.extend(0..1000);
        std::thread::spawn(move || drop(list.clone()))
            .join()
            .expect("no panic");
    });
    assert!((2..20).contains(&allocated), "{allocated}");
    assert_eq!(during(|| {}), 0);
}
