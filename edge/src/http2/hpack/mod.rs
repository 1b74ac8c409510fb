//! HPACK (RFC 7541): the compression of header sections.

mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod integer;
mod static_table;
#[cfg(test)]
mod tests;

pub use decoder::{DecodeError, Decoded, Decoder, Field};
pub use encoder::{Encoder, Indexing, append_independent};

/// The table size that both sides assume until SETTINGS_HEADER_TABLE_SIZE says otherwise (RFC 9113 6.5.2).
pub const DEFAULT_TABLE_SIZE: u32 = 4096;

/// The size in bytes that a field counts in addition to its name and value, in tables (RFC 7541 4.1) and in header lists
/// (RFC 9113 6.5.2).
pub const FIELD_OVERHEAD: usize = 32;
