//! A descriptor that joins the reactor only when its owner first has to wait.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// A descriptor that is registered with the reactor when it first has to wait.
pub(super) enum Watch {
    Unregistered(OwnedFd),
    Registered(AsyncFd<OwnedFd>),
    /// The descriptor has been taken out; only during the registration.
    Gone,
}

impl Watch {
    /// Returns the reactor's handle, and registers the descriptor before if necessary.
    pub(super) fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        if let Watch::Unregistered(_) = self
            && let Watch::Unregistered(fd) = std::mem::replace(self, Watch::Gone)
        {
            // SAFETY: the `OwnedFd` keeps the descriptor open and unchanged for as long as the `AsyncFd` owns it. No code here takes it out
            // or replaces it.
            match unsafe { AsyncFd::register(fd) } {
                Ok(watched) => *self = Watch::Registered(watched),
                Err(refused) => {
                    let (fd, error) = refused.into_parts();
                    *self = Watch::Unregistered(fd);
                    return Err(error);
                }
            }
        }
        match self {
            Watch::Registered(fd) => Ok(fd),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(super) fn fd(&self) -> io::Result<&OwnedFd> {
        match self {
            Watch::Unregistered(fd) => Ok(fd),
            Watch::Registered(fd) => Ok(fd.get_ref()),
            Watch::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
