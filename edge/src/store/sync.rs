//! The locks of the store. With the feature `shuttle`, they are replaced by locks of the shuttle library, which tests every order in which
//! threads may run.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock};

#[cfg(feature = "shuttle")]
pub use explored::{Mutex, MutexGuard, RwLock};

#[cfg(feature = "shuttle")]
mod explored {
    //! The locks of the shuttle library with the interface of parking_lot.

    pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// A mutex at which shuttle may switch threads whenever it is locked.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    /// A reader-writer lock at which shuttle may switch threads.
    #[derive(Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0
                .write()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
