//! Files for static servers: numbered files with offset bodies (see [`crate::offset`]), and a text page with its gzip
//! version.

use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::noise::Dice;
use crate::offset;

/// Maximum decoded length of a page in bytes.
const PAGE_MAX: u64 = 16 << 20;

/// Writes `count` files named `0`, `1`, …, each with an offset body of `bytes` bytes.
pub(crate) fn offset_files(folder: &Path, count: u64, bytes: usize) -> anyhow::Result<()> {
    let body = offset::offset_bytes(0, bytes);
    std::fs::create_dir_all(folder)?;
    for number in 0..count {
        std::fs::write(folder.join(number.to_string()), &body)?;
    }
    Ok(())
}

const SYLLABLES: [&str; 40] = [
    "a", "al", "an", "ar", "be", "bi", "ca", "ce", "co", "de", "di", "do", "e", "en", "er", "fa",
    "ge", "he", "in", "is", "it", "la", "le", "lo", "ma", "me", "ne", "no", "on", "or", "pa", "ra",
    "re", "ri", "sa", "se", "ta", "te", "ti", "un",
];

/// Number of distinct words in a page. As in natural language, a few are common and most are rare.
const WORDS: u64 = 4000;

/// Returns an HTML page of this length: paragraphs of generated words, equal in each run.
pub(super) fn page(length: usize) -> Vec<u8> {
    let mut dice = Dice::new(50, 1);
    let mut text = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>A page</title>\n<link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n<body>\n",
    );
    while text.len() < length {
        let id = dice.below(1_000_000);
        text.push_str(&format!(
            "<article class=\"entry\" id=\"e{id}\">\n<h2><a href=\"/a/{id}\">"
        ));
        words(&mut text, &mut dice, 5);
        text.push_str("</a></h2>\n<p>");
        let count = dice.between(30, 90);
        words(&mut text, &mut dice, count);
        text.push_str("</p>\n</article>\n");
    }
    text.truncate(length);
    text.into_bytes()
}

fn words(text: &mut String, dice: &mut Dice, count: u64) {
    for number in 0..count {
        if number > 0 {
            text.push(' ');
        }
        // The third power of a uniform number favours small values, so the first words are the common ones.
        let unit = dice.below(1 << 20) as f64 / f64::from(1 << 20);
        let word = (unit * unit * unit * WORDS as f64) as u64;
        let mut spelling = Dice::new(51, word);
        for _ in 0..spelling.between(1, 4) {
            let syllable = spelling.below(SYLLABLES.len() as u64) as usize;
            text.push_str(SYLLABLES[syllable]);
        }
    }
}

/// Compresses bytes at gzip's highest level.
pub(super) fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Decompresses bytes in gzip.
pub(super) fn gunzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    GzDecoder::new(bytes)
        .take(PAGE_MAX)
        .read_to_end(&mut decoded)?;
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_deterministic_and_compresses_like_text() {
        let page = page(50_000);
        assert_eq!(page.len(), 50_000);
        assert_eq!(page, super::page(50_000));
        let small = gzip(&page).expect("in memory");
        assert_eq!(gunzip(&small).expect("gzip"), page);
        let ratio = page.len() as f64 / small.len() as f64;
        assert!((2.5..6.0).contains(&ratio), "{ratio}");
        assert!(gunzip(&small[..100]).is_err());
    }

    #[test]
    fn files_contain_offset_bodies() {
        let folder = tempfile::tempdir().expect("a folder");
        offset_files(folder.path(), 3, 500).expect("written");
        let read = std::fs::read(folder.path().join("2")).expect("there");
        assert!(offset::verify_offset(0, &read).is_ok() && read.len() == 500);
    }
}
