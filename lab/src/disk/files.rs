//! Files and folders in memory, which are the content of a slow disk. Ranges of a file that were never written use no
//! memory.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

/// Size in bytes of a chunk, the unit in which memory for files is allocated.
const CHUNK: u64 = 64 << 10;

/// Size in bytes of a block, the unit in which used space is counted.
pub(super) const BLOCK: u64 = 4 << 10;

/// Number of blocks per chunk, and of bits in a chunk's mask of used blocks.
const BLOCKS: u64 = CHUNK / BLOCK;

/// Maximum length of a file in bytes.
const LENGTH_MAX: u64 = 1 << 42;

/// All files and folders of a disk.
pub(super) struct Files {
    nodes: HashMap<u64, Node>,
    next: u64,
    /// Number of used blocks (`used`) and of all blocks of the disk (`blocks`).
    used: u64,
    blocks: u64,
}

struct Node {
    what: What,
    mode: u16,
    links: u32,
    /// Lookup count of FUSE: the number of lookups of this file that the kernel has not revoked with `forget`.
    known: u64,
    changed: SystemTime,
}

enum What {
    Folder(BTreeMap<OsString, u64>),
    File(Content),
}

#[derive(Default)]
struct Content {
    length: u64,
    chunks: Vec<Chunk>,
}

#[derive(Default)]
struct Chunk {
    /// Content of the chunk; `None` if it has only zeros.
    bytes: Option<Box<[u8]>>,
    /// Bit mask of the used blocks of the chunk. Used are blocks that were written or reserved.
    taken: u16,
}

/// Returns the bit mask of the blocks that the bytes `from` to `to` of a file touch in chunk number `chunk`.
fn mask(chunk: u64, from: u64, to: u64) -> u16 {
    let begin = (from.max(chunk * CHUNK) - chunk * CHUNK) / BLOCK;
    let end = (to.min((chunk + 1) * CHUNK) - chunk * CHUNK).div_ceil(BLOCK);
    let below = |blocks: u64| ((1u32 << blocks.min(BLOCKS)) - 1) as u16;
    below(end) & !below(begin)
}

impl Content {
    fn blocks(&self) -> u64 {
        let taken = self.chunks.iter().map(|chunk| chunk.taken.count_ones());
        u64::from(taken.sum::<u32>())
    }

    /// Returns the numbers of the chunks that overlap the bytes `from` to `to` of a file.
    fn touched(from: u64, to: u64) -> std::ops::Range<u64> {
        from / CHUNK..to.div_ceil(CHUNK)
    }

    /// Returns the number of blocks that must be allocated before the bytes `from` to `to` can be written.
    fn wanting(&self, from: u64, to: u64) -> u64 {
        let wanting = Content::touched(from, to).map(|number| {
            let taken = self.chunks.get(number as usize);
            mask(number, from, to) & !taken.map_or(0, |chunk| chunk.taken)
        });
        wanting.map(|wanting| u64::from(wanting.count_ones())).sum()
    }

    fn take(&mut self, from: u64, to: u64) {
        let touched = Content::touched(from, to);
        if self.chunks.len() < touched.end as usize {
            self.chunks
                .resize_with(touched.end as usize, Chunk::default);
        }
        for number in touched {
            self.chunks[number as usize].taken |= mask(number, from, to);
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % CHUNK) as usize;
            let (piece, after) = rest.split_at(rest.len().min(CHUNK as usize - within));
            let chunk = &mut self.chunks[(at / CHUNK) as usize];
            let held = chunk
                .bytes
                .get_or_insert_with(|| vec![0; CHUNK as usize].into());
            held[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = after;
        }
        self.length = self.length.max(at);
    }

    fn read(&self, at: u64, length: u64) -> Vec<u8> {
        let end = at.saturating_add(length).min(self.length);
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done as u64;
            let within = (place % CHUNK) as usize;
            let count = (bytes.len() - done).min(CHUNK as usize - within);
            let chunk = self.chunks.get((place / CHUNK) as usize);
            if let Some(held) = chunk.and_then(|chunk| chunk.bytes.as_ref()) {
                bytes[done..done + count].copy_from_slice(&held[within..within + count]);
            }
            done += count;
        }
        bytes
    }

    /// Sets the length of the file: truncates it, or extends it by zeros that use no memory.
    fn resize(&mut self, length: u64) {
        self.chunks.truncate(length.div_ceil(CHUNK) as usize);
        if let Some(last) = self.chunks.get_mut((length / CHUNK) as usize) {
            let number = length / CHUNK;
            last.taken &= mask(number, number * CHUNK, length);
            if let Some(held) = &mut last.bytes {
                held[(length % CHUNK) as usize..].fill(0);
            }
        }
        self.length = length;
    }
}

const ROOT: u64 = 1;

impl Files {
    /// Creates an empty disk with space for `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Files {
        let mut files = Files {
            nodes: HashMap::new(),
            next: ROOT,
            used: 0,
            blocks: capacity / BLOCK,
        };
        files.insert(What::Folder(BTreeMap::new()), 0o755);
        files
    }

    fn insert(&mut self, what: What, mode: u16) -> u64 {
        let number = self.next;
        self.next += 1;
        let node = Node {
            what,
            mode,
            links: 1,
            known: 0,
            changed: SystemTime::now(),
        };
        self.nodes.insert(number, node);
        number
    }

    fn node(&mut self, number: INodeNo) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&number.0).ok_or(Errno::ENOENT)
    }

    fn folder(&mut self, number: INodeNo) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node(number)?.what {
            What::Folder(entries) => Ok(entries),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn file(&mut self, number: INodeNo) -> Result<&mut Content, Errno> {
        match &mut self.node(number)?.what {
            What::File(content) => Ok(content),
            What::Folder(_) => Err(Errno::EISDIR),
        }
    }

    fn entry(&mut self, folder: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        self.folder(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// Returns the number of used blocks and the number of all blocks.
    pub(super) fn room(&self) -> (u64, u64) {
        (self.used, self.blocks)
    }

    /// Returns the number of files and folders.
    pub(super) fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Looks up a name in a folder and increases the kernel's lookup count of the file found.
    pub(super) fn lookup(&mut self, folder: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let number = self.entry(folder, name)?;
        self.reply_attributes(number)
    }

    fn reply_attributes(&mut self, number: u64) -> Result<FileAttr, Errno> {
        self.node(INodeNo(number))?.known += 1;
        self.attributes(INodeNo(number))
    }

    /// Decreases the kernel's lookup count of a file by `times`.
    pub(super) fn forget(&mut self, number: INodeNo, times: u64) {
        if let Ok(node) = self.node(number) {
            node.known = node.known.saturating_sub(times);
            self.remove_unused(number.0);
        }
    }

    fn remove_unused(&mut self, number: u64) {
        let unused = |node: &Node| node.links == 0 && node.known == 0;
        if number == ROOT || !self.nodes.get(&number).is_some_and(unused) {
            return;
        }
        if let Some(Node {
            what: What::File(content),
            ..
        }) = self.nodes.remove(&number)
        {
            self.used -= content.blocks();
        }
    }

    pub(super) fn attributes(&mut self, number: INodeNo) -> Result<FileAttr, Errno> {
        let node = self.node(number)?;
        let (kind, size, blocks) = match &node.what {
            What::Folder(_) => (FileType::Directory, 0, 0),
            What::File(content) => (FileType::RegularFile, content.length, content.blocks()),
        };
        Ok(FileAttr {
            ino: number,
            size,
            blocks: blocks * (BLOCK / 512),
            atime: node.changed,
            mtime: node.changed,
            ctime: node.changed,
            crtime: node.changed,
            kind,
            perm: node.mode,
            nlink: node.links,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: BLOCK as u32,
            flags: 0,
        })
    }

    pub(super) fn set_mode(&mut self, number: INodeNo, mode: u32) -> Result<(), Errno> {
        self.node(number)?.mode = (mode & 0o7777) as u16;
        Ok(())
    }

    pub(super) fn resize(&mut self, number: INodeNo, length: u64) -> Result<(), Errno> {
        if length > LENGTH_MAX {
            return Err(Errno::EFBIG);
        }
        let content = self.file(number)?;
        let before = content.blocks();
        content.resize(length);
        let after = content.blocks();
        self.used -= before - after;
        Ok(())
    }

    pub(super) fn create(
        &mut self,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        is_folder: bool,
    ) -> Result<FileAttr, Errno> {
        if self.folder(folder)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let what = match is_folder {
            true => What::Folder(BTreeMap::new()),
            false => What::File(Content::default()),
        };
        let number = self.insert(what, (mode & 0o7777) as u16);
        self.folder(folder)?.insert(name.to_owned(), number);
        self.reply_attributes(number)
    }

    pub(super) fn remove(
        &mut self,
        folder: INodeNo,
        name: &OsStr,
        is_folder: bool,
    ) -> Result<(), Errno> {
        let number = self.entry(folder, name)?;
        match &self.node(INodeNo(number))?.what {
            What::Folder(_) if !is_folder => return Err(Errno::EISDIR),
            What::Folder(entries) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            What::File(_) if is_folder => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.folder(folder)?.remove(name);
        self.node(INodeNo(number))?.links = 0;
        self.remove_unused(number);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let number = self.entry(from.0, from.1)?;
        if let Ok(there) = self.entry(to.0, to.1) {
            if there == number {
                return Ok(());
            }
            let is_folder = matches!(self.node(INodeNo(number))?.what, What::Folder(_));
            self.remove(to.0, to.1, is_folder)?;
        }
        self.folder(to.0)?.insert(to.1.to_owned(), number);
        self.folder(from.0)?.remove(from.1);
        Ok(())
    }

    /// Lists the names in a folder, beginning at a position in the list.
    pub(super) fn list(
        &mut self,
        folder: INodeNo,
        from: u64,
    ) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let entries = self.folder(folder)?.iter().skip(from);
        let entries: Vec<_> = entries
            .map(|(name, number)| (*number, name.clone()))
            .collect();
        let kind = |number: &u64| match self.nodes.get(number).map(|node| &node.what) {
            Some(What::Folder(_)) => FileType::Directory,
            _ => FileType::RegularFile,
        };
        Ok(entries
            .into_iter()
            .map(|(number, name)| (number, kind(&number), name))
            .collect())
    }

    pub(super) fn read(&mut self, number: INodeNo, at: u64, length: u64) -> Result<Vec<u8>, Errno> {
        Ok(self.file(number)?.read(at, length))
    }

    pub(super) fn write(&mut self, number: INodeNo, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.take(number, at, bytes.len() as u64)?;
        let node = self.node(number)?;
        node.changed = SystemTime::now();
        self.file(number)?.write(at, bytes);
        Ok(())
    }

    /// Reserves space for a range of bytes of a file. Extends the file to the end of the range unless `keep_length` is
    /// set.
    pub(super) fn reserve(
        &mut self,
        number: INodeNo,
        at: u64,
        length: u64,
        keep_length: bool,
    ) -> Result<(), Errno> {
        self.take(number, at, length)?;
        let content = self.file(number)?;
        if !keep_length {
            content.length = content.length.max(at + length);
        }
        Ok(())
    }

    fn take(&mut self, number: INodeNo, at: u64, length: u64) -> Result<(), Errno> {
        let end = at.checked_add(length).filter(|end| *end <= LENGTH_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        let (used, blocks) = (self.used, self.blocks);
        let content = self.file(number)?;
        let wanting = content.wanting(at, end);
        if used + wanting > blocks {
            return Err(Errno::ENOSPC);
        }
        content.take(at, end);
        self.used += wanting;
        Ok(())
    }
}
