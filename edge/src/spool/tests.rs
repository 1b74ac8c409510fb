//! Tests of the memory of buffers.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::chunks::Chunks;
use super::memory::{BufferMemory, Charge, Options};
use crate::http::ClientId;
use crate::telemetry::Counters;

const KIB: u64 = 1 << 10;

fn client(n: u8) -> ClientId {
    ClientId::of([10, 0, 0, n].into())
}

fn memory(bytes: u64) -> (Arc<BufferMemory>, Arc<Counters>) {
    (BufferMemory::new(Options { memory: bytes }), Arc::default())
}

#[test]
fn one_client_gets_half_of_the_memory() {
    let (memory, counters) = memory(100 * KIB);
    let charge = |n| Charge::new(&memory, &counters, client(n));
    let (mut first, mut second, mut other, mut third) =
        (charge(1), charge(1), charge(2), charge(3));
    assert!(first.grow(30 * KIB) && second.grow(20 * KIB));
    assert!(!second.grow(1));
    assert!(other.grow(50 * KIB));
    assert!(!third.grow(1), "all of the memory is used");
    assert_eq!(counters.buffers_now.get(), 100 * KIB);
    drop(first);
    assert!(third.grow(30 * KIB) && second.grow(0));
    drop((second, other, third));
    assert_eq!(counters.buffers_now.get(), 0);
}

#[test]
fn single_bytes_share_a_chunk() {
    let (memory, counters) = memory(64 * KIB);
    let mut chunks = Chunks::new(Charge::new(&memory, &counters, client(1)));
    for _ in 0..16 * KIB {
        assert!(chunks.push(&Bytes::from_static(b"x"), false));
    }
    assert_eq!(counters.buffers_now.get(), 16 * KIB);
    let large = Bytes::from(vec![0; 32 << 10]);
    assert!(!chunks.push(&large, true), "more than half of the memory");
    assert_eq!(chunks.pop().map(|bytes| bytes.len()), Some(16 << 10));
    assert_eq!(counters.buffers_now.get(), 0);
    assert!(chunks.push(&Bytes::from(vec![0; 1 << 20]), true), "forced");
    assert_eq!(counters.buffers_now.get(), 0);
}

proptest! {
    #[test]
    fn chunks_give_back_what_they_got(
        pieces in proptest::collection::vec((any::<bool>(), 1_usize..40_000), 1..40),
    ) {
        let (memory, counters) = memory(4 << 20);
        let mut chunks = Chunks::new(Charge::new(&memory, &counters, client(1)));
        let (mut given, mut taken) = (Vec::new(), Vec::new());
        for (pops, length) in pieces {
            let start = given.len();
            let piece: Vec<u8> = (start..start + length).map(|n| (n % 251) as u8).collect();
            prop_assert!(chunks.push(&Bytes::from(piece.clone()), false));
            given.extend(piece);
            if pops {
                taken.extend(chunks.pop().unwrap_or_default());
            }
            prop_assert_eq!(chunks.bytes() as usize, given.len() - taken.len());
        }
        while let Some(bytes) = chunks.pop() {
            taken.extend(bytes);
        }
        prop_assert_eq!(given, taken);
        prop_assert_eq!(counters.buffers_now.get(), 0);
    }
}
