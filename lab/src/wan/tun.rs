//! TUN devices: network interfaces whose packets a program reads and writes.
//!
//! One ioctl is all that is needed, so no crate is: tun-rs without its address management is 7,000 lines, most of them
//! for segmentation offload, which would merge the packets that the emulator has to treat one by one.

use std::os::fd::OwnedFd;

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const PATH: &str = "/dev/net/tun";

/// The kernel's `TUNSETIFF`, declared with the type `int`, although its argument is an `ifreq`.
const SET_INTERFACE: Opcode = opcode::write::<i32>(b'T', 202);

/// The kernel's `IFF_TUN` (packets of IP, without Ethernet) and `IFF_NO_PI` (no header before each packet).
const FLAGS: i16 = 0x0001 | 0x1000;

/// Size of the kernel's `ifreq.ifr_name`, with the zero byte at its end.
const NAME: usize = 16;

/// The kernel's `ifreq` with `ifr_flags` as the member of its union: 40 bytes on 64-bit systems, where the largest
/// member has 24 bytes and the alignment of a pointer.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; NAME],
    flags: i16,
    rest: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

/// Creates a TUN device in the network namespace of the calling thread. Reads and writes of its descriptor do not wait.
/// Closing the descriptor, from any namespace, removes the device.
pub(super) fn create(name: &str) -> anyhow::Result<OwnedFd> {
    anyhow::ensure!(
        name.len() < NAME,
        "{name}: too long for a network interface"
    );
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = open(PATH, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            anyhow::anyhow!("there is no {PATH}; try: modprobe tun")
        }
        error => anyhow::anyhow!("can't open {PATH}: {error}"),
    })?;
    let mut request = InterfaceRequest {
        name: [0; NAME],
        flags: FLAGS,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: for TUNSETIFF, the kernel reads and writes an `ifreq`, whose layout and size `InterfaceRequest` has. All
    // bit patterns are valid for its fields, so the kernel may write any.
    let set = unsafe { Updater::<SET_INTERFACE, InterfaceRequest>::new(&mut request) };
    // SAFETY: the request, which `set` refers to, lives until the call returns, and the kernel keeps no reference.
    unsafe { ioctl(&device, set) }.with_context(|| format!("can't create the device {name}"))?;
    Ok(device)
}
