//! The limit of file descriptors, and a descriptor that is reserved for the case that they run out.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::disk::read_text;

/// Raises the limit of file descriptors from the soft to the hard limit (RLIMIT_NOFILE). Returns the new limit; `usize::MAX` if there is
/// none.
pub fn raise_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If raising fails, the limit stays as it was, and `descriptors` returns it.
    let _ = setrlimit(Resource::Nofile, raised);
    descriptors()
}

/// Returns the soft limit of file descriptors; `usize::MAX` if there is none.
pub fn descriptors() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Returns the hard limit of file descriptors; `usize::MAX` if there is none.
pub fn hard_descriptors() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    hard.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Returns the maximum length of the accept queue of a listening socket (`net.core.somaxconn`).
pub fn somaxconn() -> Option<u32> {
    let text = read_text(Path::new("/proc/sys/net/core/somaxconn"), 64).ok()?;
    text.trim().parse().ok()
}

/// A reserved descriptor. When no other one is available, the reserve is released, so that a waiting connection can be accepted and closed
/// instead of waiting for a timeout.
pub struct Reserve(Option<OwnedFd>);

impl Default for Reserve {
    /// Reserves a descriptor if one is available.
    fn default() -> Reserve {
        Reserve(take().ok())
    }
}

impl Reserve {
    /// Releases the reserved descriptor while `with` runs, and reserves one again. Returns `None` if none is reserved. If another thread
    /// takes the released descriptor, one is reserved again as soon as one is available.
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

/// Opens a descriptor without a file, because a sandboxed process may open only few files.
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
