//! Reads and writes of whole blocks, for everything except records.

use std::io;

use bytes::Bytes;

use super::format::{BLOCK, up};
use crate::sys::buffer::Buffer;
use crate::sys::disk::device::{Device, ReadMode};

/// Writes these bytes at an offset that is a multiple of a block, and pads the last block with zeros.
pub fn write_aligned(device: &dyn Device, place: u64, bytes: &[u8]) -> io::Result<()> {
    let mut buffer = Buffer::new(up(bytes.len() as u64, BLOCK) as usize);
    buffer.append(bytes);
    pad(&mut buffer);
    device.write(place, &[buffer.filled()])
}

/// Pads a buffer with zeros to the end of its last block.
pub fn pad(buffer: &mut Buffer) {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let filled = buffer.filled().len() as u64;
    buffer.append(&ZEROS[..(up(filled, BLOCK) - filled) as usize]);
}

/// Reads the block at an offset of the device.
pub fn read_block(device: &dyn Device, place: u64) -> io::Result<Buffer> {
    read_exactly(device, place, BLOCK as usize)
}

/// Reads exactly `length` bytes. If offset and length are multiples of a block, the read bypasses the page cache.
pub fn read_exactly(device: &dyn Device, place: u64, length: usize) -> io::Result<Buffer> {
    let mut buffer = Buffer::new(length);
    let read = device.read(
        place,
        &mut [&mut buffer.spare()[..length]],
        ReadMode::Direct,
    )?;
    if read != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: `read` has written to `length` bytes.
    unsafe { buffer.set_filled(length) };
    Ok(buffer)
}

/// Converts a buffer into shared bytes without a copy.
pub fn shared(buffer: Buffer) -> Bytes {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.filled()
        }
    }
    Bytes::from_owner(Owner(buffer))
}
