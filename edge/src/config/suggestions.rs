//! Suggests the most similar known word for an unknown one.

use std::cmp::Reverse;

/// Longest word that is compared, in bytes.
const COMPARED_MAX: usize = 64;

/// Returns the candidate that is most similar to `word`, if one is similar enough. Of equally
/// similar candidates, returns the one with the longest common beginning.
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.len() > COMPARED_MAX {
        return None;
    }
    let far = match word.len() {
        0..=3 => 1,
        4..=6 => 2, // Two swapped letters count as two changes.
        n => n / 3,
    };
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= COMPARED_MAX)
        .map(|candidate| {
            let alike = Reverse(common_prefix(word, candidate));
            (distance(word, candidate), alike, candidate)
        })
        .filter(|(distance, ..)| *distance <= far)
        .min()
        .map(|(_, _, candidate)| candidate)
}

/// Returns the number of bytes with which both texts begin.
fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count()
}

/// Returns the number of letters to add, drop or change to turn one word into the other
/// (Levenshtein distance).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("origin", "origin"), 0);
        assert_eq!(distance("orgin", "origin"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn only_near_words_are_proposed() {
        assert_eq!(did_you_mean("memry", ["memory", "object"]), Some("memory"));
        assert_eq!(did_you_mean("mian", ["spare", "main"]), Some("main"));
        let locks = ["lock_age", "lock_timeout"];
        assert_eq!(did_you_mean("lock_time", locks), Some("lock_timeout"));
        assert_eq!(did_you_mean("volume", ["cache", "site"]), None);
        assert_eq!(did_you_mean(&"x".repeat(100_000), ["memory"]), None);
    }
}
