//! The encoded fields of stored heads that are sent often, so that a hit copies bytes.
//!
//! Each worker has a small table beside the heads and not in them, so that a store of millions of objects needs no memory
//! for a form in which few of them are sent. The encoding of a block depends on nothing but its text, which is compared.

use std::cell::RefCell;

use crate::http::FieldBlock;

/// Number of heads.
const ENTRIES: usize = 256;

/// Longest text in bytes of a head in the table. Its encoded form is not much longer.
const TEXT_MAX: usize = 1 << 10;

thread_local! {
    static HEADS: RefCell<StoredHeads> = RefCell::default();
}

/// The encoded heads, by the address of their text. Heads of the same place displace each other.
#[derive(Default)]
struct StoredHeads(Vec<Entry>);

#[derive(Default)]
struct Entry {
    text: Box<[u8]>,
    encoded: Box<[u8]>,
    /// Address of the head that was encoded last. A head is kept when it is sent for the second time in a row, so that
    /// many heads that are sent seldom cost nothing.
    last: usize,
}

/// Appends the encoded fields of a block, which `encode` appends.
pub fn append(out: &mut Vec<u8>, block: &FieldBlock, encode: impl FnOnce(&mut Vec<u8>)) {
    HEADS.with_borrow_mut(|heads| heads.append(out, block, encode));
}

impl StoredHeads {
    fn append(&mut self, out: &mut Vec<u8>, block: &FieldBlock, encode: impl FnOnce(&mut Vec<u8>)) {
        let text = block.text();
        if text.is_empty() || text.len() > TEXT_MAX {
            return encode(out);
        }
        if self.0.is_empty() {
            self.0.resize_with(ENTRIES, Entry::default);
        }
        let address = text.as_ptr() as usize;
        // Addresses of blocks differ most in their middle bits.
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Some(entry) = self.0.get_mut((hash >> 56) as usize) else {
            return encode(out);
        };
        if *entry.text == *text {
            return out.extend_from_slice(&entry.encoded);
        }
        let start = out.len();
        encode(out);
        if entry.last == address {
            entry.text = text.into();
            entry.encoded = out[start..].into();
        }
        entry.last = address;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes for a block, and whether it was encoded for that.
    fn append(heads: &mut StoredHeads, block: &FieldBlock) -> (Vec<u8>, bool) {
        let (mut out, mut is_encoded) = (b"before".to_vec(), false);
        heads.append(&mut out, block, |out| {
            is_encoded = true;
            out.extend_from_slice(block.text());
        });
        (out.split_off(6), is_encoded)
    }

    #[test]
    fn a_head_that_is_sent_often_is_encoded_twice() {
        let mut heads = StoredHeads::default();
        let block: FieldBlock = [("a", "b"), ("etag", "\"c\"")].into_iter().collect();
        for n in 0..4 {
            let expected = (block.text().to_vec(), n < 2);
            assert_eq!(append(&mut heads, &block), expected, "{n}");
        }
        let large: FieldBlock = [("a", "b".repeat(TEXT_MAX).as_str())].into_iter().collect();
        for _ in 0..4 {
            assert!(append(&mut heads, &large).1);
        }
        let empty = FieldBlock::new();
        assert!(append(&mut heads, &empty).1);
    }

    #[test]
    fn many_heads_never_get_the_bytes_of_another_one() {
        let mut heads = StoredHeads::default();
        for round in 0..3 {
            // Later blocks may have the addresses of earlier ones.
            let blocks: Vec<FieldBlock> = (0..2000)
                .map(|n| {
                    [("x", format!("{round} {n}").as_str())]
                        .into_iter()
                        .collect()
                })
                .collect();
            for block in blocks.iter().chain(&blocks) {
                assert_eq!(append(&mut heads, block).0, block.text());
                assert_eq!(append(&mut heads, block).0, block.text());
            }
        }
        assert_eq!(heads.0.len(), ENTRIES);
    }
}
