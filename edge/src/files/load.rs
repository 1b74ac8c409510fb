//! From a request's path to what is known of it: out of the table, or looked up and put there.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::body::Large;
use super::path::{self, Located};
use super::table::{Coded, Content, Entry, File, Known};
use super::{Options, Shared, types};
use crate::http::coding::Coding;
use crate::http::{FieldBlock, Fields, date};
use crate::sys::root::{self, Found, How, Opened, Stamp, Trouble};

/// Codings of files that lie beside the original, the best one first, with their extensions.
const BESIDE: [(Coding, &[u8]); 3] = [
    (Coding::Zstd, b".zst"),
    (Coding::Brotli, b".br"),
    (Coding::Gzip, b".gz"),
];

/// A file that changes while it is read is read again so often.
const TRIES: usize = 4;

/// What a request wants to be looked for.
pub(super) struct Wish<'a> {
    located: Located<'a>,
}

/// What a request's path comes to.
pub(super) enum Asked<'a> {
    /// Something to look for.
    For(Wish<'a>),
    /// Something that is spelled like this.
    Misspelled(String),
    /// Nothing can be there.
    Nothing,
}

/// What a wish came to.
pub(super) enum Resolved {
    /// A file: that entry's.
    File(Arc<Entry>),
    /// A folder that was asked for without a slash at the end.
    Folder,
}

impl<'a> Wish<'a> {
    /// Of a request for this path.
    pub fn of(path: &'a str, options: &Options) -> Asked<'a> {
        let strip = options.strip.as_str();
        let Some(rest) = path.strip_prefix(strip) else {
            return Asked::Nothing;
        };
        let rest = if rest.is_empty() { "/" } else { rest };
        match path::locate(rest, options.hidden) {
            Some(located) if located.is_spelled(rest) => Asked::For(Wish { located }),
            Some(located) => Asked::Misspelled(format!("{strip}{}", located.spelling())),
            None => Asked::Nothing,
        }
    }

    /// The same, on its own.
    pub fn into_owned(self) -> Wish<'static> {
        Wish {
            located: Located {
                names: Cow::Owned(self.located.names.into_owned()),
                is_folder: self.located.is_folder,
            },
        }
    }
}

impl Shared {
    /// What a request is to be answered with: what it asks for, the index of a folder, or what
    /// stands in for it.
    ///
    /// # Errors
    /// There is none of all these, or it can't be told.
    pub(super) fn resolve(&self, wish: &Wish<'_>, how: How) -> Result<Resolved, Trouble> {
        let names = &*wish.located.names;
        let mut trouble = Trouble::Absent;
        let asked = match wish.located.is_folder {
            false => self.look(names, how),
            true => self.index_of(names, how),
        };
        match asked {
            Ok(Resolved::Folder) if wish.located.is_folder => {}
            Err(Trouble::Absent) => {}
            Err(Trouble::Denied) => trouble = Trouble::Denied,
            other => return other,
        }
        for fallback in &self.options.fallback {
            let path = instead(fallback, names);
            match self.look(&path, how) {
                Ok(Resolved::File(entry)) => return Ok(Resolved::File(entry)),
                Ok(Resolved::Folder) | Err(Trouble::Absent | Trouble::Denied) => {}
                Err(other) => return Err(other),
            }
        }
        Err(trouble)
    }

    /// The index of a folder; `Folder`: it has none.
    fn index_of(&self, folder: &[u8], how: How) -> Result<Resolved, Trouble> {
        for index in &self.options.index {
            let mut path = folder.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(index.trim_start_matches('/').as_bytes());
            match self.look(&path, how) {
                Ok(Resolved::Folder) | Err(Trouble::Absent) => {}
                other => return other,
            }
        }
        Err(Trouble::Absent)
    }

    /// What one path leads to.
    fn look(&self, path: &[u8], how: How) -> Result<Resolved, Trouble> {
        let now_us = self.clock.monotonic_us();
        let valid_us = self.options.valid.as_micros() as u64;
        let entry = match self.table.find(path) {
            Some(entry) if !entry.claim_check(now_us, valid_us) => entry,
            Some(entry) => self.look_again(path, entry, how, now_us)?,
            None => self.load_and_put(path, how, now_us)?,
        };
        match &entry.known {
            Known::File(_) => Ok(Resolved::File(entry)),
            Known::Folder => Ok(Resolved::Folder),
            Known::Absent => Err(Trouble::Absent),
            Known::Denied => Err(Trouble::Denied),
        }
    }

    /// What a path leads to of which this was known. It stays known until something else is: where
    /// the disk has to be asked, others are answered with it meanwhile, and where nothing can be found
    /// out, as without descriptors, it counts for as long again.
    fn look_again(
        &self,
        path: &[u8],
        entry: Arc<Entry>,
        how: How,
        now_us: u64,
    ) -> Result<Arc<Entry>, Trouble> {
        let looked = match self.is_still(path, &entry, how) {
            Ok(true) => Ok(None),
            Ok(false) => self.load_and_put(path, how, now_us).map(Some),
            Err(trouble) => Err(trouble),
        };
        match looked {
            Ok(Some(new)) => return Ok(new),
            Err(Trouble::NotAtHand) => {
                entry.give_up_check();
                return Err(Trouble::NotAtHand);
            }
            Ok(None) | Err(_) => entry.is_true(now_us),
        }
        Ok(entry)
    }

    /// Whether what is known of a path still holds. What can't be told about the past, as of what was
    /// not there, does not.
    fn is_still(&self, path: &[u8], entry: &Entry, how: How) -> Result<bool, Trouble> {
        let Known::File(file) = &entry.known else {
            return Ok(false);
        };
        if self.stamp(path, how)? != Some(file.stamp) {
            return Ok(false);
        }
        if !self.options.precompressed {
            return Ok(true);
        }
        for (coding, extension) in BESIDE {
            let known = file.coded.iter().find(|(of, _)| *of == coding);
            let now = self.stamp(&[path, extension].concat(), how)?;
            let now = now.filter(|stamp| is_current(stamp, &file.stamp));
            if now != known.map(|(_, file)| file.stamp) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn stamp(&self, path: &[u8], how: How) -> Result<Option<Stamp>, Trouble> {
        match self.root.stamp(path, how) {
            Err(Trouble::Absent | Trouble::Denied) => Ok(None),
            other => other,
        }
    }

    fn load_and_put(&self, path: &[u8], how: How, now_us: u64) -> Result<Arc<Entry>, Trouble> {
        let known = self.load(path, how)?;
        let entry = Arc::new(Entry::new(known, now_us));
        self.table.put(path, entry.clone());
        Ok(entry)
    }

    fn load(&self, path: &[u8], how: How) -> Result<Known, Trouble> {
        let mut file = match self.file(path, path, None, how) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Known::Folder),
            Err(Trouble::Absent) => return Ok(Known::Absent),
            Err(Trouble::Denied) => return Ok(Known::Denied),
            Err(trouble) => return Err(trouble),
        };
        if self.options.precompressed {
            file.coded = self.coded(path, &file.stamp, how)?;
        }
        Ok(Known::File(Box::new(file)))
    }

    /// Those beside a file that are not older than it is.
    fn coded(&self, path: &[u8], original: &Stamp, how: How) -> Result<Coded, Trouble> {
        let mut coded = Coded::new();
        for (coding, extension) in BESIDE {
            let beside = [path, extension].concat();
            match self.file(&beside, path, Some(coding), how) {
                Ok(Some(file)) if is_current(&file.stamp, original) => {
                    coded.push((coding, Box::new(file)));
                }
                Ok(_) | Err(Trouble::Absent | Trouble::Denied) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(coded)
    }

    /// The file at a path; `None`: it is a folder. `name` tells its type.
    fn file(
        &self,
        path: &[u8],
        name: &[u8],
        coding: Option<Coding>,
        how: How,
    ) -> Result<Option<File>, Trouble> {
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
        Err(Trouble::Failed(std::io::Error::other(
            "it changes all the time",
        )))
    }

    /// The content of a file, read if it is small; `None`: it has changed meanwhile.
    fn content(&self, opened: Opened, how: How) -> Result<Option<Content>, Trouble> {
        let size = opened.stamp.size;
        if size > self.options.small {
            return Ok(Some(Content::Open(Large::new(opened))));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        while (bytes.len() as u64) < size {
            let at = bytes.len() as u64;
            let room = (size - at) as usize;
            match root::read(&opened.file, at, room, how, &mut bytes) {
                Ok(Some(0)) => return Ok(None),
                Ok(Some(_)) => {}
                Ok(None) => return Err(Trouble::NotAtHand),
                Err(error) => return Err(Trouble::Failed(error)),
            }
        }
        let now = Stamp::now(&opened.file).map_err(Trouble::Failed)?;
        Ok((now == opened.stamp).then(|| Content::Memory(Bytes::from(bytes))))
    }
}

/// Whether a file beside the original was made from it as it is, as far as times tell.
fn is_current(beside: &Stamp, original: &Stamp) -> bool {
    beside.modified_ns >= original.modified_ns
}

/// What is looked for in place of these names.
fn instead(fallback: &str, names: &[u8]) -> Vec<u8> {
    let fallback = fallback.trim_start_matches('/');
    let path = match fallback.split_once("{path}") {
        Some((before, after)) => [before.as_bytes(), names, after.as_bytes()].concat(),
        None => fallback.as_bytes().to_vec(),
    };
    // Of the root itself, `{path}/x` is `/x`.
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    path[slashes..].to_vec()
}

/// A strong entity tag (RFC 9110 8.8.1). Of what is in memory it names the bytes, the same on all
/// machines. Large files are not read for it: it names when they were written to and changed, as all may
/// be said to be written at one time (`SOURCE_DATE_EPOCH`, `cp -p`), but the kernel lets nobody choose
/// when one was changed. Those of codings are marked (8.8.3.3).
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
    // Not one that is still to come (RFC 9110 8.8.2.1).
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

/// Names a file's content: another content has another id.
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
