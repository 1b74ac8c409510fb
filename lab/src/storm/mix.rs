//! The requests of the storm: sizes of the files and the mix of ranges, drawn from a seed. No I/O.
//!
//! | share | request |
//! |---|---|
//! | 45% | 1 to 1,000 bytes at a random offset |
//! | 30% | 1 to 64 KiB at a random offset |
//! | 12% | 64 KiB to 1 MiB at a random offset |
//! | 3% | 1 to 4 MiB at a random offset: up to five blocks |
//! | 4% | the last 1 byte to 64 KiB (`bytes=-n`) |
//! | 3% | from an offset in the last 64 KiB to the end (`bytes=n-`) |
//! | 3% | the whole file, without Range, if it has at most 4 MiB; otherwise up to 1,000 bytes |
//!
//! With `whole_of_any_size`, one of these last three percent is for a whole file of any size.
//!
//! Each of the twenty files is equally likely. A range that is longer than its file ends at the end of the file.

use std::ops::Range;

use crate::noise::Dice;

/// Number of files.
pub const FILES: usize = 20;

/// Size of the largest file in bytes.
const FILE_SIZE_MAX: f64 = 1e8;

/// Longest range in bytes. Files up to this size are also requested as a whole.
const RANGE_MAX: u64 = 4 << 20;

const KIB: u64 = 1 << 10;

/// Sizes of the files in bytes: from 1 byte to 100 MB, with a constant factor between consecutive sizes.
pub(super) fn sizes() -> Vec<u64> {
    let size = |number: usize| FILE_SIZE_MAX.powf(number as f64 / (FILES - 1) as f64);
    (0..FILES)
        .map(|number| size(number).round() as u64)
        .collect()
}

/// The form of the Range header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// `bytes=n-m`: a first and a last byte.
    Closed,
    /// `bytes=n-`: from an offset to the end.
    Open,
    /// `bytes=-n`: a number of bytes at the end.
    Suffix,
    /// No Range header.
    Whole,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StormRequest {
    pub(super) file: usize,
    /// The requested bytes.
    pub(super) bytes: Range<u64>,
    pub(super) form: Form,
    /// Size of the file in bytes.
    pub(super) length: u64,
}

impl StormRequest {
    /// Draws request `number` of the storm with `seed`. With `any_size`, one percent of the requests is for a whole
    /// file of any size.
    pub(super) fn draw(seed: u64, number: u64, files: &[u64], any_size: bool) -> StormRequest {
        let mut dice = Dice::new(seed, number);
        let file = dice.below(files.len() as u64) as usize;
        let length = files[file];
        let (form, bytes) = match dice.below(100) {
            0..45 => closed(&mut dice, length, 1, 1000),
            45..75 => closed(&mut dice, length, KIB, 64 * KIB),
            75..87 => closed(&mut dice, length, 64 * KIB, KIB * KIB),
            87..90 => closed(&mut dice, length, KIB * KIB, RANGE_MAX),
            90..94 => (Form::Suffix, tail(&mut dice, length)),
            94..97 => (Form::Open, tail(&mut dice, length)),
            99 if any_size => (Form::Whole, 0..length),
            _ if length <= RANGE_MAX => (Form::Whole, 0..length),
            _ => closed(&mut dice, length, 1, 1000),
        };
        StormRequest {
            file,
            bytes,
            form,
            length,
        }
    }

    /// Returns the value of the Range header; `None` without one.
    pub(super) fn range(&self) -> Option<String> {
        let Range { start, end } = self.bytes;
        match self.form {
            Form::Closed => Some(format!("bytes={start}-{}", end - 1)),
            Form::Open => Some(format!("bytes={start}-")),
            Form::Suffix => Some(format!("bytes=-{}", end - start)),
            Form::Whole => None,
        }
    }
}

fn closed(dice: &mut Dice, length: u64, least: u64, most: u64) -> (Form, Range<u64>) {
    let start = dice.below(length);
    let end = start.saturating_add(dice.between(least, most)).min(length);
    (Form::Closed, start..end)
}

fn tail(dice: &mut Dice, length: u64) -> Range<u64> {
    let count = dice.between(1, (64 * KIB).min(length));
    length - count..length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_from_one_byte_to_a_hundred_megabytes() {
        let sizes = sizes();
        assert_eq!((sizes.len(), sizes[0], sizes[19]), (20, 1, 100_000_000));
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    }

    #[test]
    fn requests_depend_on_the_seed_alone_and_stay_within_their_files() {
        let files = sizes();
        let mut traffic = 0;
        let mut forms = [0; 4];
        for number in 0..20_000 {
            let request = StormRequest::draw(7, number, &files, false);
            assert_eq!(request, StormRequest::draw(7, number, &files, false));
            assert!(!request.bytes.is_empty() && request.bytes.end <= files[request.file]);
            assert!(request.bytes.end - request.bytes.start <= RANGE_MAX);
            assert_eq!(request.range().is_none(), request.form == Form::Whole);
            traffic += request.bytes.end - request.bytes.start;
            forms[request.form as usize] += 1;
        }
        assert!(forms.iter().all(|count| *count > 200), "{forms:?}");
        assert!((1 << 28..1 << 32).contains(&traffic), "{traffic} bytes");
        let whole = |number| {
            let request = StormRequest::draw(7, number, &files, true);
            request.form == Form::Whole && request.bytes == (0..100_000_000)
        };
        // One percent of the requests, of which one in twenty is for the largest file.
        let longest = (0..20_000).filter(|number| whole(*number)).count();
        assert!((3..30).contains(&longest), "{longest}");
        assert_ne!(
            StormRequest::draw(7, 1, &files, false),
            StormRequest::draw(8, 1, &files, false)
        );
    }
}
