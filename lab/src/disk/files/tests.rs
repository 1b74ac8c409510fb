//! Tests of files on a slow disk.

use proptest::prelude::*;

use super::*;

const TOP: INodeNo = INodeNo(ROOT);

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

#[test]
fn a_file_is_removed_when_it_has_neither_name_nor_user() {
    let mut files = Files::new(1 << 20);
    let file = files.create(TOP, name("a"), 0o600, false).expect("made");
    files.write(file.ino, 0, &[1; 5000]).expect("room");
    assert_eq!(files.room(), (2, 256));
    files
        .rename((TOP, name("a")), (TOP, name("b")))
        .expect("renamed");
    assert!(files.lookup(TOP, name("a")).is_err());
    files.remove(TOP, name("b"), false).expect("removed");
    assert_eq!(files.read(file.ino, 4999, 10).expect("held"), [1]);
    files.forget(file.ino, 1);
    assert!(files.read(file.ino, 0, 1).is_err());
    assert_eq!((files.room().0, files.count()), (0, 1));
}

#[test]
fn reserved_space_counts_once() {
    let mut files = Files::new(256 << 10);
    let file = files.create(TOP, name("a"), 0o600, false).expect("made");
    files.reserve(file.ino, 0, 200 << 10, false).expect("room");
    assert_eq!(files.attributes(file.ino).expect("there").size, 200 << 10);
    assert_eq!(files.room().0, 50);
    files.write(file.ino, 100, &[7; 8000]).expect("its room");
    assert_eq!(files.room().0, 50);
    let full = files.reserve(file.ino, 200 << 10, 57 << 10, false);
    assert_eq!(full.map_err(|errno| errno.code()), Err(28));
    files.resize(file.ino, 4097).expect("shorter");
    assert_eq!(files.room().0, 2);
    files.resize(file.ino, 9000).expect("longer");
    assert_eq!(files.read(file.ino, 4096, 3).expect("bytes"), [7, 0, 0]);
    assert_eq!(files.room().0, 2);
}

#[test]
fn folders_contain_the_files_created_in_them() {
    let mut files = Files::new(1 << 20);
    let folder = files.create(TOP, name("d"), 0o700, true).expect("made");
    let inner = folder.ino;
    files
        .create(inner, name("f"), 0o600, false)
        .expect("made there");
    assert!(files.create(inner, name("f"), 0o600, false).is_err());
    assert!(files.remove(TOP, name("d"), true).is_err());
    assert!(files.remove(TOP, name("d"), false).is_err());
    files
        .rename((inner, name("f")), (TOP, name("g")))
        .expect("moved");
    let names = |list: Vec<(u64, FileType, OsString)>| {
        let names = list.into_iter().map(|(_, kind, name)| (kind, name));
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        names(files.list(TOP, 0).expect("a folder")),
        [
            (FileType::Directory, "d".into()),
            (FileType::RegularFile, "g".into())
        ]
    );
    assert_eq!(files.list(TOP, 1).expect("a folder").len(), 1);
    files.remove(TOP, name("d"), true).expect("empty");
}

proptest! {
    /// Reads return the latest writes, and the used space is the number of blocks that were touched.
    #[test]
    fn a_file_contains_the_latest_writes(
        writes in prop::collection::vec((0u64..200_000, 1usize..70_000, any::<u8>()), 1..12),
        cut in 0u64..250_000,
    ) {
        let mut files = Files::new(1 << 20);
        let file = files.create(TOP, name("a"), 0o600, false).expect("made").ino;
        let mut model: Vec<u8> = Vec::new();
        let mut blocks = std::collections::BTreeSet::new();
        for (at, length, byte) in writes {
            files.write(file, at, &vec![byte; length]).expect("room");
            let end = at as usize + length;
            model.resize(model.len().max(end), 0);
            model[at as usize..end].fill(byte);
            blocks.extend(at / BLOCK..(end as u64).div_ceil(BLOCK));
        }
        prop_assert_eq!(files.room().0, blocks.len() as u64);
        files.resize(file, cut).expect("a file");
        model.resize(cut as usize, 0);
        blocks.retain(|block| *block < cut.div_ceil(BLOCK));
        prop_assert_eq!(files.read(file, 0, 1 << 20).expect("a file"), model);
        prop_assert_eq!(files.room().0, blocks.len() as u64);
    }
}
