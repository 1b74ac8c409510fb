//! The file format of a saved history: records with checksums, one after another.
//!
//! A file begins with `MAGIC`. Each record has the length of its body and the CRC-32C of its body, four bytes each with
//! the lowest first, and then the body: an `Entry` in postcard's encoding, followed by the codes of its points, if it
//! has some. Records may be appended; a later point replaces an earlier one of the same step.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// The first bytes of a file. The last but one is the version of the format.
pub(super) const MAGIC: &[u8] = b"sluice history 1\n";
/// Longest body of a record, in bytes.
const BODY_MAX: usize = 1 << 20;
/// Length of the numbers before the body.
const HEAD: usize = 8;

/// The content of a record, before its codes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry<'a> {
    /// The names of the series in the points of a scope, in the records that follow.
    Layout {
        scope: &'a str,
        #[serde(borrow)]
        series: Vec<&'a str>,
    },
    /// Successive points of one ring of a member.
    Points {
        scope: &'a str,
        member: &'a str,
        step_s: u32,
        first: u64,
        count: u32,
    },
}

/// The reason why the rest of a file can't be used.
#[derive(Debug)]
pub enum Damage {
    /// The file does not begin as a history does, or has another version.
    NoHistory,
    /// The file ends within a record, as after a crash.
    Truncated,
    /// A checksum or a number does not fit.
    Corrupt,
    /// The file system failed.
    Io(io::Error),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NoHistory => f.write_str("it is no history of this version"),
            Damage::Truncated => f.write_str("it ends within a record"),
            Damage::Corrupt => f.write_str("a record is damaged"),
            Damage::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Damage::Truncated,
            _ => Damage::Io(error),
        }
    }
}

/// Appends a record.
pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    entry: &Entry<'_>,
    points: impl Iterator<Item = &'a [u16]>,
) {
    let start = out.len();
    out.extend([0; HEAD]);
    // Writing to a Vec can't fail.
    let _ = postcard::to_io(entry, &mut *out);
    for code in points.flatten() {
        out.extend(code.to_le_bytes());
    }
    let body = &out[start + HEAD..];
    let (length, sum) = (body.len() as u32, crc_fast::crc32_iscsi(body));
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + HEAD].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the records of a file.
pub(super) struct Records<R> {
    from: R,
    body: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    ///
    /// The file is no history.
    pub(super) fn new(mut from: R) -> Result<Records<R>, Damage> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic).map_err(Damage::from) {
            Err(Damage::Truncated) => Err(Damage::NoHistory),
            Err(error) => Err(error),
            Ok(()) if magic != MAGIC => Err(Damage::NoHistory),
            Ok(()) => Ok(Records {
                from,
                body: Vec::new(),
            }),
        }
    }

    /// Returns the next record: its entry, and the bytes of its codes. `None` at the end.
    ///
    /// # Errors
    ///
    /// The record is damaged.
    pub(super) fn next(&mut self) -> Result<Option<(Entry<'_>, &[u8])>, Damage> {
        let mut head = [0; HEAD];
        if self.from.read(&mut head[..1])? == 0 {
            return Ok(None);
        }
        self.from.read_exact(&mut head[1..])?;
        let number =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = number(0) as usize;
        if length > BODY_MAX {
            return Err(Damage::Corrupt);
        }
        self.body.resize(length, 0);
        self.from.read_exact(&mut self.body)?;
        if crc_fast::crc32_iscsi(&self.body) != number(4) {
            return Err(Damage::Corrupt);
        }
        let entry = postcard::take_from_bytes(&self.body);
        entry.map(Some).map_err(|_| Damage::Corrupt)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(records: u16) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for n in 0..records {
            let entry = Entry::Points {
                scope: "route",
                member: "a.example.com /",
                step_s: 10,
                first: u64::from(n),
                count: 1,
            };
            write(&mut out, &entry, [&[n, 7][..]].into_iter());
        }
        out
    }

    /// Returns the codes of all records up to the first damaged one, and whether there is one.
    fn read(file: &[u8]) -> (Vec<Vec<u8>>, Option<Damage>) {
        let mut records = match Records::new(file) {
            Ok(records) => records,
            Err(damage) => return (Vec::new(), Some(damage)),
        };
        let mut codes = Vec::new();
        loop {
            match records.next() {
                Ok(Some((_, found))) => codes.push(found.to_vec()),
                Ok(None) => return (codes, None),
                Err(damage) => return (codes, Some(damage)),
            }
        }
    }

    #[test]
    fn records_are_read_as_written() {
        let (codes, damage) = read(&file(3));
        assert_eq!(codes, [[0, 0, 7, 0], [1, 0, 7, 0], [2, 0, 7, 0]]);
        assert!(damage.is_none());
        assert!(matches!(read(b"").1, Some(Damage::NoHistory)));
        assert!(matches!(
            read(b"sluice history 9\n").1,
            Some(Damage::NoHistory)
        ));
    }

    proptest! {
        #[test]
        fn a_cut_file_has_the_records_before_the_cut(cut in 0usize..400) {
            let whole = file(4);
            let cut = cut.min(whole.len());
            let (codes, damage) = read(&whole[..cut]);
            let record = (whole.len() - MAGIC.len()) / 4;
            prop_assert_eq!(codes.len(), cut.saturating_sub(MAGIC.len()) / record);
            let is_between = cut >= MAGIC.len() && (cut - MAGIC.len()).is_multiple_of(record);
            prop_assert_eq!(damage.is_none(), is_between);
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0usize..400, by in 1u8..=255) {
            let mut changed = file(4);
            let at = at % changed.len();
            changed[at] = changed[at].wrapping_add(by);
            let (codes, damage) = read(&changed);
            prop_assert!(damage.is_some());
            prop_assert!(codes.len() < 4);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let whole = [MAGIC, &bytes].concat();
            read(&whole);
        }
    }
}
