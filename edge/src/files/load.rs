//! Resolves a request's path: from the table of known paths, or in the file system.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::body::Large;
use super::options::Options;
use super::path::{self, Located};
use super::shared::Shared;
use super::table::{Coded, Content, Entry, File, Known};
use super::types;
use crate::http::coding::Coding;
use crate::http::{FieldBlock, Fields, date};
use crate::sys::root::{self, FindError, Found, How, Opened, Stamp};

/// Encodings of precompressed files with their extensions, the best one first.
const PRECOMPRESSED: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, b".zst"),
    (Coding::Brotli, b".br"),
    (Coding::Gzip, b".gz"),
];

/// Attempts to read a file that changes while it is read.
const TRIES: usize = 4;

/// A path to resolve in the table or the file system.
pub(super) struct FilePath<'a> {
    located: Located<'a>,
}

/// The result of parsing a request's path.
pub(super) enum ParsedPath<'a> {
    /// A path to resolve.
    Path(FilePath<'a>),
    /// A path that is not in its normal spelling, which is given here.
    Misspelled(String),
    /// A path that can't be the path of a file.
    Nothing,
}

/// The result of resolving a path.
pub(super) enum Resolved {
    /// A file, in this entry.
    File(Arc<Entry>),
    /// A folder that was requested without a slash at the end.
    Folder,
}

impl<'a> FilePath<'a> {
    /// Parses a request's path.
    pub fn of(path: &'a str, options: &Options) -> ParsedPath<'a> {
        let strip = options.strip_prefix.as_str();
        let Some(rest) = path.strip_prefix(strip) else {
            return ParsedPath::Nothing;
        };
        let rest = if rest.is_empty() { "/" } else { rest };
        match path::locate(rest, options.hidden) {
            Some(located) if located.is_spelled(rest) => ParsedPath::Path(FilePath { located }),
            Some(located) => ParsedPath::Misspelled(format!("{strip}{}", located.spelling())),
            None => ParsedPath::Nothing,
        }
    }

    /// Converts to a value that owns its text.
    pub fn into_owned(self) -> FilePath<'static> {
        FilePath {
            located: Located {
                names: Cow::Owned(self.located.names.into_owned()),
                is_folder: self.located.is_folder,
            },
        }
    }
}

impl Shared {
    /// Resolves a path to the requested file, the index of a folder, or a fallback.
    ///
    /// # Errors
    /// None of these exists, or the lookup failed.
    pub(super) fn resolve(&self, wanted: &FilePath<'_>, how: How) -> Result<Resolved, FindError> {
        let names = &*wanted.located.names;
        let mut error = FindError::Absent;
        let found = match wanted.located.is_folder {
            false => self.look_up(names, how),
            true => self.index_of(names, how),
        };
        match found {
            Ok(Resolved::Folder) if wanted.located.is_folder => {}
            Err(FindError::Absent) => {}
            Err(FindError::Denied) => error = FindError::Denied,
            other => return other,
        }
        for fallback in &self.options.try_files {
            let path = instead(fallback, names);
            match self.look_up(&path, how) {
                Ok(Resolved::File(entry)) => return Ok(Resolved::File(entry)),
                Ok(Resolved::Folder) | Err(FindError::Absent | FindError::Denied) => {}
                Err(other) => return Err(other),
            }
        }
        Err(error)
    }

    /// Returns the index of a folder; `Folder` if it has none.
    fn index_of(&self, folder: &[u8], how: How) -> Result<Resolved, FindError> {
        for index in &self.options.index {
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(index.trim_start_matches('/').as_bytes());
            match self.look_up(&path, how) {
                Ok(Resolved::Folder) | Err(FindError::Absent) => {}
                other => return other,
            }
        }
        Err(FindError::Absent)
    }

    /// Resolves one path, from the table or in the file system.
    fn look_up(&self, path: &[u8], how: How) -> Result<Resolved, FindError> {
        let now_us = self.clock.monotonic_us();
        let valid_us = self.options.recheck.as_micros() as u64;
        let entry = match self.table.find(path) {
            Some(entry) if self.has_appeared(path, &entry.known) => {
                self.load_and_put(path, how, now_us)?
            }
            Some(entry) if !entry.claim_check(now_us, valid_us) => entry,
            Some(entry) => self.recheck(path, entry, how, now_us)?,
            None => self.load_and_put(path, how, now_us)?,
        };
        match &entry.known {
            Known::File(_) => Ok(Resolved::File(entry)),
            Known::Folder => Ok(Resolved::Folder),
            Known::Absent => Err(FindError::Absent),
            Known::Denied => Err(FindError::Denied),
        }
    }

    /// Whether a path that was absent or denied now leads to something, as far as the kernel has it
    /// in memory. Otherwise a client that requests a file before it exists, such as the next segment
    /// of a live video, would hide the file from all clients for a while.
    fn has_appeared(&self, path: &[u8], known: &Known) -> bool {
        match known {
            Known::File(_) | Known::Folder => false,
            Known::Absent => matches!(
                self.root.find(path, How::Cached),
                Ok(_) | Err(FindError::Denied)
            ),
            Known::Denied => matches!(
                self.root.find(path, How::Cached),
                Ok(_) | Err(FindError::Absent)
            ),
        }
    }

    /// Checks a cached path again. The cached entry stays in the table until it is replaced,
    /// because other requests use it during the check. If the check fails, for example for lack of
    /// file descriptors, the entry counts as valid for another period.
    fn recheck(
        &self,
        path: &[u8],
        entry: Arc<Entry>,
        how: How,
        now_us: u64,
    ) -> Result<Arc<Entry>, FindError> {
        let looked = match self.is_still(path, &entry, how) {
            Ok(true) => Ok(None),
            Ok(false) => self.load_and_put(path, how, now_us).map(Some),
            Err(error) => Err(error),
        };
        match looked {
            Ok(Some(new)) => return Ok(new),
            Err(FindError::NotCached) => {
                entry.give_up_check();
                return Err(FindError::NotCached);
            }
            Ok(None) | Err(_) => entry.is_true(now_us),
        }
        Ok(entry)
    }

    /// Whether a cached entry is still correct. A path that was absent can't be checked, so its
    /// entry counts as changed.
    fn is_still(&self, path: &[u8], entry: &Entry, how: How) -> Result<bool, FindError> {
        let Known::File(file) = &entry.known else {
            return Ok(false);
        };
        if self.stamp(path, how)? != Some(file.stamp) {
            return Ok(false);
        }
        if !self.options.precompressed {
            return Ok(true);
        }
        for (coding, extension) in PRECOMPRESSED {
            let known = file.coded.iter().find(|(of, _)| *of == coding);
            let now = self.stamp(&[path, extension].concat(), how)?;
            let now = now.filter(|stamp| is_current(stamp, &file.stamp));
            if now != known.map(|(_, file)| file.stamp) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stamp(&self, path: &[u8], how: How) -> Result<Option<Stamp>, FindError> {
        match self.root.stamp(path, how) {
            Err(FindError::Absent | FindError::Denied) => Ok(None),
            other => other,
        }
    }

    fn load_and_put(&self, path: &[u8], how: How, now_us: u64) -> Result<Arc<Entry>, FindError> {
        let known = self.load(path, how)?;
        let entry = Arc::new(Entry::new(known, now_us));
        self.table.put(path, entry.clone());
        Ok(entry)
    }

    fn load(&self, path: &[u8], how: How) -> Result<Known, FindError> {
        let mut file = match self.file(path, path, None, how) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Known::Folder),
            Err(FindError::Absent) => return Ok(Known::Absent),
            Err(FindError::Denied) => return Ok(Known::Denied),
            Err(error) => return Err(error),
        };
        if self.options.precompressed {
            file.coded = self.coded(path, &file.stamp, how)?;
        }
        Ok(Known::File(Box::new(file)))
    }

    /// Loads the precompressed forms of a file that are not older than the file.
    fn coded(&self, path: &[u8], original: &Stamp, how: How) -> Result<Coded, FindError> {
        let mut coded = Coded::new();
        for (coding, extension) in PRECOMPRESSED {
            let beside = [path, extension].concat();
            match self.file(&beside, path, Some(coding), how) {
                Ok(Some(file)) if is_current(&file.stamp, original) => {
                    coded.push((coding, Box::new(file)));
                }
                Ok(_) | Err(FindError::Absent | FindError::Denied) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(coded)
    }

    /// Loads the file at a path; `None` if the path is a folder. `name` determines the
    /// Content-Type.
    fn file(
        &self,
        path: &[u8],
        name: &[u8],
        coding: Option<Coding>,
        how: How,
    ) -> Result<Option<File>, FindError> {
        for _ in 0..TRIES {
            let Found::File(opened) = self.root.find(path, how)? else {
                return Ok(None);
            };
            let media_type = types::of(name, &self.options);
            let stamp = opened.stamp;
            if let Some(content) = self.content(opened, how)? {
                let etag = etag(&stamp, &content, coding);
                let now_s = self.clock.unix_ms() / 1000;
                return Ok(Some(File {
                    head: head(&stamp, &etag, &media_type, coding, &self.options, now_s),
                    etag: etag.into_bytes().into(),
                    coded: Coded::new(),
                    content,
                    id: id(&stamp),
                    stamp,
                }));
            }
        }
        // In every attempt, the file changed while it was read.
        let why = "the file changed whenever it was read";
        Err(FindError::Failed(io::Error::other(why)))
    }

    /// Returns the content of a file, read into memory if the file is small; `None` if the file
    /// changed meanwhile.
    fn content(&self, opened: Opened, how: How) -> Result<Option<Content>, FindError> {
        let size = opened.stamp.size;
        if size > self.options.max_memory_file {
            return Ok(Some(Content::Open(Large::new(opened))));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        while (bytes.len() as u64) < size {
            let at = bytes.len() as u64;
            let room = (size - at) as usize;
            match root::read(&opened.file, at, room, how, &mut bytes) {
                Ok(Some(0)) => return Ok(None),
                Ok(Some(_)) => {}
                Ok(None) => return Err(FindError::NotCached),
                Err(error) => return Err(FindError::Failed(error)),
            }
        }
        let now = Stamp::now(&opened.file).map_err(FindError::Failed)?;
        Ok((now == opened.stamp).then(|| Content::Memory(Bytes::from(bytes))))
    }
}

/// Whether a precompressed file was made from the current original, judging by the modification
/// times.
fn is_current(beside: &Stamp, original: &Stamp) -> bool {
    beside.modified_ns >= original.modified_ns
}

/// Expands one configured fallback path for these file names.
fn instead(fallback: &str, names: &[u8]) -> Vec<u8> {
    let fallback = fallback.trim_start_matches('/');
    let path = match fallback.split_once("{path}") {
        Some((before, after)) => [before.as_bytes(), names, after.as_bytes()].concat(),
        None => fallback.as_bytes().to_vec(),
    };
    // Paths are relative to the root folder: if the requested path is the root, `{path}/x` becomes
    // `x`, not `/x`.
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    path[slashes..].to_vec()
}

/// Builds a strong entity tag (RFC 9110 8.8.1). For a file in memory the tag is a hash of its
/// bytes, the same on all machines. For a large file, which is not read for this, the tag contains
/// the modification and change times. Builds can set all modification times to the same value
/// (`SOURCE_DATE_EPOCH`, `cp -p`), but nobody can choose the change time. Tags of precompressed
/// files are marked with the encoding (8.8.3.3).
fn etag(stamp: &Stamp, content: &Content, coding: Option<Coding>) -> String {
    let name = match content {
        Content::Memory(bytes) => blake3::hash(bytes).to_hex()[..32].to_owned(),
        Content::Open(_) => format!(
            "{:x}-{:x}-{:x}",
            stamp.modified_ns, stamp.size, stamp.changed_ns
        ),
    };
    match coding {
        None => format!("\"{name}\""),
        Some(coding) => format!("\"{name}-{}\"", coding.name()),
    }
}

fn head(
    stamp: &Stamp,
    etag: &str,
    media_type: &str,
    coding: Option<Coding>,
    options: &Options,
    now_s: u64,
) -> FieldBlock {
    let mut fields = Fields::new();
    fields.append("content-type", media_type);
    if let Some(coding) = coding {
        fields.append("content-encoding", coding.name());
    }
    // A Last-Modified must not be in the future (RFC 9110 8.8.2.1).
    if stamp.modified_s() <= now_s {
        fields.append("last-modified", date::format(stamp.modified_s()));
    }
    fields.append("etag", etag);
    fields.append("accept-ranges", "bytes");
    if options.precompressed {
        fields.append("vary", "accept-encoding");
    }
    FieldBlock::from(&fields)
}

/// Returns the id of a file's content; changed content has another id.
fn id(stamp: &Stamp) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stamp.identity.0.to_le_bytes());
    hasher.update(&stamp.identity.1.to_le_bytes());
    hasher.update(&stamp.size.to_le_bytes());
    hasher.update(&stamp.modified_ns.to_le_bytes());
    hasher.update(&stamp.changed_ns.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(id)
}
