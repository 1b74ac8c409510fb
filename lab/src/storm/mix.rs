//! What the storm asks for: the files' sizes and the mix of ranges, drawn from a seed. No I/O.
//!
//! | share | what |
//! |---|---|
//! | 45% | 1 to 1,000 bytes anywhere |
//! | 30% | 1 to 64 KiB anywhere |
//! | 12% | 64 KiB to 1 MiB anywhere |
//! | 3% | 1 to 4 MiB anywhere: up to five blocks |
//! | 4% | the last 1 byte to 64 KiB (`bytes=-n`) |
//! | 3% | from a place in the last 64 KiB to the end (`bytes=n-`) |
//! | 3% | the whole, without Range, of a file up to 4 MiB; of a longer one, up to 1,000 bytes |
//!
//! On demand the last of these three is the whole of a file of any size.
//!
//! The file is any of the twenty, each as likely; ranges that are longer than it end where it ends.

use std::ops::Range;

use crate::noise::Dice;

/// How many files there are.
pub const FILES: usize = 20;

/// Bytes of the longest.
const LONGEST: f64 = 1e8;

/// Files up to this length are sometimes asked for whole, and no range is longer.
const MOST: u64 = 4 << 20;

const KIB: u64 = 1 << 10;

/// Sizes in bytes of the files: from 1 byte to 100 MB, each the same factor longer than the one before.
pub(super) fn sizes() -> Vec<u64> {
    let size = |number: usize| LONGEST.powf(number as f64 / (FILES - 1) as f64);
    (0..FILES)
        .map(|number| size(number).round() as u64)
        .collect()
}

/// How a part of a file is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Both ends are named.
    Closed,
    /// From a place to the end.
    Open,
    /// So many bytes at the end.
    Suffix,
    /// No Range at all.
    Whole,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) file: usize,
    /// The bytes asked for.
    pub(super) bytes: Range<u64>,
    pub(super) form: Form,
    /// The whole length.
    pub(super) length: u64,
}

impl Ask {
    /// Request `number` under `seed`. `any_size`: one in a hundred is for the whole of its file, whatever its size.
    pub(super) fn draw(seed: u64, number: u64, files: &[u64], any_size: bool) -> Ask {
        let mut dice = Dice::new(seed, number);
        let file = dice.below(files.len() as u64) as usize;
        let length = files[file];
        let (form, bytes) = match dice.below(100) {
            0..45 => closed(&mut dice, length, 1, 1000),
            45..75 => closed(&mut dice, length, KIB, 64 * KIB),
            75..87 => closed(&mut dice, length, 64 * KIB, KIB * KIB),
            87..90 => closed(&mut dice, length, KIB * KIB, MOST),
            90..94 => (Form::Suffix, tail(&mut dice, length)),
            94..97 => (Form::Open, tail(&mut dice, length)),
            99 if any_size => (Form::Whole, 0..length),
            _ if length <= MOST => (Form::Whole, 0..length),
            _ => closed(&mut dice, length, 1, 1000),
        };
        Ask {
            file,
            bytes,
            form,
            length,
        }
    }

    /// The value of its Range field.
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
    fn requests_follow_from_the_seed_and_lie_within_their_files() {
        let files = sizes();
        let mut traffic = 0;
        let mut forms = [0; 4];
        for number in 0..20_000 {
            let ask = Ask::draw(7, number, &files, false);
            assert_eq!(ask, Ask::draw(7, number, &files, false));
            assert!(!ask.bytes.is_empty() && ask.bytes.end <= files[ask.file]);
            assert!(ask.bytes.end - ask.bytes.start <= MOST);
            assert_eq!(ask.range().is_none(), ask.form == Form::Whole);
            traffic += ask.bytes.end - ask.bytes.start;
            forms[ask.form as usize] += 1;
        }
        assert!(forms.iter().all(|count| *count > 200), "{forms:?}");
        assert!((1 << 28..1 << 32).contains(&traffic), "{traffic} bytes");
        let whole = |number| {
            let ask = Ask::draw(7, number, &files, true);
            ask.form == Form::Whole && ask.bytes == (0..100_000_000)
        };
        // One in a hundred, of which one in twenty has the longest file.
        let longest = (0..20_000).filter(|number| whole(*number)).count();
        assert!((3..30).contains(&longest), "{longest}");
        assert_ne!(
            Ask::draw(7, 1, &files, false),
            Ask::draw(8, 1, &files, false)
        );
    }
}
