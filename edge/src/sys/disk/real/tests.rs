//! Tests of devices that are real files.

use super::super::open_device as open;
use super::super::tests::read;
use super::*;

fn block(byte: u8) -> Buffer {
    let mut buffer = Buffer::new(ALIGNED);
    buffer.append(&[byte; ALIGNED]);
    buffer
}

/// Returns temporary folders on the default file system and, if available, on one in memory.
fn folders() -> Vec<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm");
    std::iter::once(tempfile::tempdir().expect("a folder"))
        .chain(memory.ok())
        .collect()
}

#[test]
fn a_file_gets_exactly_its_size_and_keeps_its_content() {
    for folder in folders() {
        let path = folder.path().join("volume");
        let size = 1 << 20;
        {
            let opened = open(&path).expect("opened");
            assert!(opened.fresh && !opened.is_block);
            opened.device.set_size(size).expect("room");
            let found = std::fs::metadata(&path).expect("there");
            assert_eq!((found.len(), found.blocks() * 512), (size, size));
            assert_eq!(found.mode() & 0o777, 0o600);
            let (a, b) = (block(1), block(2));
            let device = &*opened.device;
            // Writes both aligned and unaligned data.
            device.write(8192, &[a.filled(), b.filled()]).expect("room");
            device.write(5, &[b"abc", b"", b"defg"]).expect("room");
            device.sync().expect("synced");
        }
        let opened = open(&path).expect("opened again");
        assert!(!opened.fresh);
        let device = &*opened.device;
        assert_eq!(device.size(), size);
        for how in [ReadMode::Wait, ReadMode::Direct] {
            let all = read(device, 0, 16384, how).expect("read");
            assert_eq!(&all[..13], b"\0\0\0\0\0abcdefg\0");
            assert_eq!(&all[8192..12288], [1; 4096]);
            assert_eq!(&all[12288..], [2; 4096]);
        }
        // The data was just read through the page cache, so it is in memory. Some file systems can't tell.
        read(device, 5, 7, ReadMode::Wait).expect("read");
        match read(device, 5, 7, ReadMode::Cached) {
            Ok(bytes) => assert_eq!(bytes, b"abcdefg"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
        assert_eq!(
            read(device, size - 3, 10, ReadMode::Wait)
                .expect("the end")
                .len(),
            3
        );
    }
}

#[test]
fn many_pieces_are_written_and_read_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = open(&folder.path().join("volume")).expect("opened");
    let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    let pieces: Vec<&[u8]> = bytes.chunks(2).collect();
    opened.device.write(3, &pieces).expect("room");
    let mut memory = vec![MaybeUninit::<u8>::uninit(); 5000];
    let mut into: Vec<&mut [MaybeUninit<u8>]> = memory.chunks_mut(3).collect();
    let n = opened
        .device
        .read(3, &mut into, ReadMode::Wait)
        .expect("read");
    assert_eq!(n, 5000);
    // SAFETY: `read` has written to all bytes of `memory`.
    let read: Vec<u8> = memory.iter().map(|b| unsafe { b.assume_init() }).collect();
    assert_eq!(read, bytes);
}

#[test]
fn a_file_is_locked_and_not_changed_by_opening_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("volume");
    std::fs::write(&path, b"something else").expect("written");
    let first = open(&path).expect("opened");
    let second = open(&path).err().expect("in use");
    assert!(
        matches!(&second, OpenError::Refused(text) if text.contains("another volume of this process"))
    );
    drop(first);
    assert_eq!(std::fs::read(&path).expect("read"), b"something else");
    let opened = open(&path).expect("unlocked");
    opened.device.set_size(9).expect("shorter");
    assert_eq!(std::fs::read(&path).expect("read"), b"something");
    opened.device.set_size(12).expect("longer");
    assert_eq!(std::fs::read(&path).expect("read"), b"something\0\0\0");
}

#[test]
fn a_path_that_cannot_be_a_volume_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).expect("a pipe");
    let socket = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    for path in [folder.path(), &pipe, &socket, Path::new("/dev/null")] {
        let error = open(path).err().expect("refused");
        assert!(matches!(&error, OpenError::Refused(_)), "{error}");
        assert!(error.to_string().starts_with(path.to_str().expect("UTF-8")));
    }
    let error = open(&folder.path().join("no/such")).err().expect("failed");
    assert!(matches!(&error, OpenError::Failed(text) if text.contains("create the folder")));
}

// The size is less than the largest possible file, so only the comparison with the free space prevents an allocation that fills the
// disk for a moment.
#[test]
fn no_space_is_allocated_for_a_file_larger_than_the_free_space() {
    for folder in folders() {
        let free = super::super::path_info::look(folder.path())
            .expect("there")
            .free;
        let path = folder.path().join("volume");
        let opened = open(&path).expect("opened");
        let device = opened.device;
        let error = device
            .set_size(free + (64 << 30))
            .expect_err("too little space");
        assert!(error.to_string().contains("are free"), "{error}");
        assert_eq!(std::fs::metadata(&path).expect("there").blocks(), 0);
        drop(device);
        assert!(!path.exists(), "the empty file is removed");
        // A file that existed before is kept.
        std::fs::write(&path, "").expect("written");
        let opened = open(&path).expect("opened");
        opened.device.set_size(1 << 60).expect_err("too much");
        drop(opened);
        assert!(path.exists());
    }
}

#[test]
fn a_file_without_enough_space_releases_what_it_allocated() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("volume");
    let opened = open(&path).expect("opened");
    let error = opened
        .device
        .set_size(1 << 60)
        .expect_err("so much there is not");
    assert!(error.to_string().contains("make `size` smaller"), "{error}");
    assert_eq!(std::fs::metadata(&path).expect("there").blocks(), 0);
}
