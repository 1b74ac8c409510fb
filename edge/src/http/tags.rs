//! Tags: what an origin names a response by, so that it can be purged with others that carry the
//! same (Surrogate-Key, Cache-Tag).

use super::Fields;

/// Tags heeded of one response.
pub const TAGS_MAX: usize = 256;
/// Longer ones are not tags, bytes.
pub const TAG_MAX: usize = 1024;

/// Hashes of the tags in the fields of these names: sorted, each once. Whatever the field, tags are
/// parted by spaces or commas. Capital letters count.
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

/// What stands for a tag: BLAKE3 cut short to 64 bits. Another tag with a given one's number is not
/// to be found; two that share one are, by a search of some 2^32 steps. Whoever makes both gains
/// nothing: a purge of the one takes out what carries the other, too, which costs a fetch.
pub fn tag_hash(tag: &[u8]) -> u64 {
    let hash = blake3::hash(tag);
    let mut part = [0; 8];
    part.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(part)
}

/// Whether this is one tag, and could be one of a response.
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
    fn all_lines_of_all_fields_count_and_each_tag_once() {
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
    fn a_hostile_origin_can_t_name_too_many_or_too_long_ones() {
        let many: Vec<_> = (0..300).map(|n| n.to_string()).collect();
        assert_eq!(of(&[("cache-tag", &many.join(","))]).len(), TAGS_MAX);
        let long = format!("{} a", "x".repeat(TAG_MAX + 1));
        assert_eq!(*of(&[("cache-tag", &long)]), *hashes(&["a"]));
        assert!(!is_tag(&long.as_bytes()[..=TAG_MAX]) && is_tag(&long.as_bytes()[..TAG_MAX]));
        assert!(!is_tag(b"a b") && !is_tag(b"") && !is_tag(b"a,"));
    }

    proptest! {
        #[test]
        fn they_are_a_sorted_set_in_any_order(words in prop::collection::vec("[ab]{1,3}", 0..20)) {
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
