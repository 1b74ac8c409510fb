//! Options of compression: the `compress` section of a route.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::types::Types;
use crate::http::coding::Coding;

/// Options of the `compress` section of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Content codings that may be used. The order decides between codings to which a client gives
    /// equal weight.
    pub encodings: SmallVec<[Coding; 3]>,
    /// Media types of content that is compressed.
    pub types: Types,
    /// Length in bytes of the shortest content that is compressed.
    pub min: u64,
    /// Length in bytes of the longest content that is compressed. Content longer than a quarter of
    /// `memory` is not compressed either.
    pub max: u64,
    /// Compression level of each codec.
    pub levels: Levels,
    /// Memory for compressed content in bytes, including bookkeeping.
    pub memory: u64,
    /// Whether fetches request uncompressed content from origins, whatever clients accept.
    pub request_identity: bool,
}

/// Compression levels: a higher level compresses better and takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Level of gzip, 1 to 9.
    pub gzip: u32,
    /// Level of brotli, 0 to 11.
    pub brotli: u32,
    /// Level of zstd, 1 to 19.
    pub zstd: u32,
}

impl Default for Levels {
    /// In measurements of text, code and HTML, doubling the time beyond these levels saves less
    /// than two percent of the bytes. Content is compressed once, so these levels are higher than
    /// those of a server that compresses each response.
    fn default() -> Levels {
        Levels {
            gzip: 6,
            brotli: 6,
            zstd: 11,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            encodings: Coding::ALL.into_iter().collect(),
            types: Types::default(),
            min: 1 << 10,
            max: 8 << 20,
            levels: Levels::default(),
            memory: 64 << 20,
            request_identity: false,
        }
    }
}

impl Options {
    /// Returns the range of lengths in bytes of content that is compressed.
    pub fn sizes(&self) -> RangeInclusive<u64> {
        self.min..=self.max.min(self.memory / 4)
    }
}
