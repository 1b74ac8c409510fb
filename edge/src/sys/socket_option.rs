//! Options of sockets for which the libraries have no function.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void};

/// Sets an option whose value is a number.
pub(super) fn set(socket: impl AsFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the pointer is to a `c_int` of the given length, which the call only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
