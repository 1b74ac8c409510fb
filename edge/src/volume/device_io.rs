//! Reads and writes of whole blocks, for what is not a record.

use std::io;

use bytes::Bytes;

use super::format::{BLOCK, up};
use crate::sys::buffer::Buffer;
use crate::sys::disk::device::{Device, How};

/// Writes these bytes from a block's beginning on; the rest of the last block becomes zeros.
pub fn write_aligned(device: &dyn Device, place: u64, bytes: &[u8]) -> io::Result<()> {
    let mut buffer = Buffer::new(up(bytes.len() as u64, BLOCK) as usize);
    buffer.append(bytes);
    pad(&mut buffer);
    device.write(place, &[buffer.filled()])
}

/// Fills a buffer with zeros to the end of the block that it is filled to.
pub fn pad(buffer: &mut Buffer) {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let filled = buffer.filled().len() as u64;
    buffer.append(&ZEROS[..(up(filled, BLOCK) - filled) as usize]);
}

/// Reads a block.
pub fn read_block(device: &dyn Device, place: u64) -> io::Result<Buffer> {
    read_exactly(device, place, BLOCK as usize)
}

/// Reads so many bytes, past the page cache where place and length are those of blocks.
pub fn read_exactly(device: &dyn Device, place: u64, length: usize) -> io::Result<Buffer> {
    let mut buffer = Buffer::new(length);
    let read = device.read(place, &mut [&mut buffer.spare()[..length]], How::Direct)?;
    if read != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: `read` has written to so many bytes.
    unsafe { buffer.set_filled(length) };
    Ok(buffer)
}

/// A buffer, to be shared.
pub fn shared(buffer: Buffer) -> Bytes {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.filled()
        }
    }
    Bytes::from_owner(Owner(buffer))
}
