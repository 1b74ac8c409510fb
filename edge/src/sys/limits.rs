//! How many descriptors this process may have, and one kept for when it has them all.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::disk::read_text;

/// Raises the limit of descriptors as far as an ordinary process may (RLIMIT_NOFILE, from soft to
/// hard); says what it is then, `usize::MAX` where there is none.
pub fn raise_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused, it stays as it is, and what depends on it is asked for below.
    let _ = setrlimit(Resource::Nofile, raised);
    descriptors()
}

/// Descriptors that this process may have open, `usize::MAX` where there is no limit.
pub fn descriptors() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Descriptors that it may raise its limit to, `usize::MAX` where there is no limit.
pub fn hard_descriptors() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    hard.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Connections that may wait at one listening socket, at most (`net.core.somaxconn`).
pub fn somaxconn() -> Option<u32> {
    let text = read_text(Path::new("/proc/sys/net/core/somaxconn"), 64).ok()?;
    text.trim().parse().ok()
}

/// A descriptor that is given up when there is no other, so that a waiting connection can be
/// accepted and ended rather than left without a word.
pub struct Reserve(Option<OwnedFd>);

impl Default for Reserve {
    /// One, if there is one to be had.
    fn default() -> Reserve {
        Reserve(take().ok())
    }
}

impl Reserve {
    /// Lets go of it for as long as `with` runs; `None` where it is not there. Another thread may
    /// get the descriptor meanwhile: it is then taken again the next time that there is one.
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

/// One that no file is needed for: a confined process may open but few.
fn take() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_lent_and_taken_back() {
        let mut reserve = Reserve::default();
        for round in 0..3 {
            assert_eq!(reserve.lend(|| round), Some(round));
        }
        assert!(descriptors() > 16);
    }
}
