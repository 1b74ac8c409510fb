//! A place for a value on the heap that is created at its first use, half as large as a `OnceLock` of a box.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a value on the heap that is created at its first use and stays until the place is dropped.
pub struct OnceBox<T> {
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

impl<T> Default for OnceBox<T> {
    fn default() -> OnceBox<T> {
        OnceBox {
            value: AtomicPtr::new(ptr::null_mut()),
            owned: PhantomData,
        }
    }
}

impl<T: Send + Sync> OnceBox<T> {
    /// Returns the value, if it was created.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the pointer is null, or that of a box that lives as long as this place: nothing replaces it.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, which `create` makes if there is none. If two threads create it at once, one of the values is
    /// dropped.
    pub fn get_or_create(&self, create: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let created = Box::into_raw(Box::new(create()));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = self
            .value
            .compare_exchange(ptr::null_mut(), created, success, failure);
        match swapped {
            // SAFETY: the box now belongs to this place, and lives as long.
            Ok(_) => unsafe { &*created },
            Err(other) => {
                // SAFETY: no other thread has seen the box.
                drop(unsafe { Box::from_raw(created) });
                // SAFETY: as in `get`.
                unsafe { &*other }
            }
        }
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: the box belongs to this place, and nothing refers to it any more.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_value_is_created_once_and_dropped() {
        let value = Arc::new(7);
        let place = OnceBox::default();
        assert!(place.get().is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(**place.get_or_create(|| value.clone()), 7));
            }
        });
        assert_eq!(place.get(), Some(&value));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(size_of::<OnceBox<[u64; 64]>>(), 8);
    }
}
