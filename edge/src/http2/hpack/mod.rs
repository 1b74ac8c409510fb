//! HPACK (RFC 7541): the compression of header sections.

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod huffman;
mod integer;
mod static_table;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Field};
pub use dynamic_table::DEFAULT_TABLE_SIZE;
pub use encoder::{Encoder, Indexing, append_independent};
pub use error::DecodeError;
