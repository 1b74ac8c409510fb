//! Tags of responses (Surrogate-Key, Cache-Tag): an origin labels responses with tags, and a purge
//! by tag covers all responses with that tag.

use super::Fields;

/// Largest number of tags per response; further tags are ignored.
pub const TAGS_MAX: usize = 256;
/// Longest tag in bytes; longer ones are ignored.
pub const TAG_MAX: usize = 1024;

/// Hashes of the tags in these headers, sorted and without duplicates. In every header, tags are
/// separated by spaces or commas. Tags are case-sensitive.
pub fn tags(fields: &Fields, names: &[Box<str>]) -> Box<[u64]> {
    let values = names.iter().flat_map(|name| fields.get_all(name));
    let mut hashes: Vec<u64> = values
        .flat_map(split)
        .filter(|tag| tag.len() <= TAG_MAX)
        .take(TAGS_MAX)
        .map(tag_hash)
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.into_boxed_slice()
}

/// Returns the hash of a tag: BLAKE3 truncated to 64 bits. Nobody can find a tag with the hash of a
/// given one. Two tags with a common hash can be found in about 2^32 steps, but that is no use to
/// an attacker: a purge of one then also covers responses with the other, which costs additional
/// fetches.
pub fn tag_hash(tag: &[u8]) -> u64 {
    let hash = blake3::hash(tag);
    let mut part = [0; 8];
    part.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(part)
}

/// Whether the text is a single valid tag.
pub fn is_tag(text: &[u8]) -> bool {
    text.len() <= TAG_MAX && !text.iter().any(is_separator) && !text.is_empty()
}

fn split(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(is_separator).filter(|tag| !tag.is_empty())
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> Vec<Box<str>> {
        vec!["Surrogate-Key".into(), "Cache-Tag".into()]
    }

    fn of(lines: &[(&str, &str)]) -> Box<[u64]> {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.append(name, value);
        }
        tags(&fields, &names())
    }

    fn hashes(tags: &[&str]) -> Vec<u64> {
        let mut hashes: Vec<_> = tags.iter().map(|tag| tag_hash(tag.as_bytes())).collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn tags_of_all_lines_and_headers_are_collected_once() {
        let got = of(&[
            ("surrogate-key", "a  b,c"),
            ("cache-tag", " b ,, d\t"),
            ("Cache-Tag", "A"),
            ("x-tag", "e"),
        ]);
        assert_eq!(*got, *hashes(&["a", "b", "c", "d", "A"]));
        assert!(of(&[("cache-tag", " ,\t")]).is_empty());
    }

    #[test]
    fn too_many_or_too_long_tags_are_ignored() {
        let many: Vec<_> = (0..300).map(|n| n.to_string()).collect();
        assert_eq!(of(&[("cache-tag", &many.join(","))]).len(), TAGS_MAX);
        let long = format!("{} a", "x".repeat(TAG_MAX + 1));
        assert_eq!(*of(&[("cache-tag", &long)]), *hashes(&["a"]));
        assert!(!is_tag(&long.as_bytes()[..=TAG_MAX]) && is_tag(&long.as_bytes()[..TAG_MAX]));
        assert!(!is_tag(b"a b") && !is_tag(b"") && !is_tag(b"a,"));
    }

    proptest! {
        #[test]
        fn tags_are_a_sorted_set_whatever_their_order(words in prop::collection::vec("[ab]{1,3}", 0..20)) {
            let value = words.join(" ");
            let turned: Vec<_> = words.iter().rev().map(String::as_str).collect();
            let got = of(&[("surrogate-key", &value)]);
            prop_assert!(got.is_sorted() && got.windows(2).all(|two| two[0] != two[1]));
            prop_assert_eq!(&got, &of(&[("cache-tag", &turned.join(", "))]));
            for word in &words {
                prop_assert!(got.binary_search(&tag_hash(word.as_bytes())).is_ok());
            }
        }
    }
}
