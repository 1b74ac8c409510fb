//! The limit of file descriptors, and a reserved descriptor for when they run out.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::disk::read_text;

/// Raises the limit of file descriptors from the soft to the hard limit (RLIMIT_NOFILE). Returns
/// the new limit, `usize::MAX` if there is none.
pub fn raise_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If raising fails, the limit is unchanged and read below.
    let _ = setrlimit(Resource::Nofile, raised);
    descriptors()
}

/// The soft limit of file descriptors, `usize::MAX` if there is none.
pub fn descriptors() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The hard limit of file descriptors, `usize::MAX` if there is none.
pub fn hard_descriptors() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    hard.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Largest accept queue of a listening socket (`net.core.somaxconn`).
pub fn somaxconn() -> Option<u32> {
    let text = read_text(Path::new("/proc/sys/net/core/somaxconn"), 64).ok()?;
    text.trim().parse().ok()
}

/// A reserved descriptor, released when no other is available, so that a waiting connection can be
/// accepted and closed instead of waiting for a timeout.
pub struct Reserve(Option<OwnedFd>);

impl Default for Reserve {
    /// Reserves a descriptor if one is available.
    fn default() -> Reserve {
        Reserve(take().ok())
    }
}

impl Reserve {
    /// Releases the descriptor while `with` runs; `None` if there is none. If another thread takes
    /// it meanwhile, a descriptor is reserved again as soon as one is available.
    pub fn lend<T>(&mut self, with: impl FnOnce() -> T) -> Option<T> {
        if self.0.is_none() {
            self.0 = take().ok();
        }
        drop(self.0.take()?);
        let done = with();
        self.0 = take().ok();
        Some(done)
    }
}

/// Opens a descriptor that needs no file, because a sandboxed process may open only few files.
fn take() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_lent_and_restored() {
        let mut reserve = Reserve::default();
        for round in 0..3 {
            assert_eq!(reserve.lend(|| round), Some(round));
        }
        assert!(descriptors() > 16);
    }
}
