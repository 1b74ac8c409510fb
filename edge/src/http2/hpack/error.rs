//! The errors of header blocks.

/// Errors in a header block. Each is a connection error of type COMPRESSION_ERROR (RFC 9113 4.3), except `Bomb`: there
/// the rest is not decoded, to save the time (RFC 9113 10.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The block ends within a representation.
    Truncated,
    /// An integer is too large or has too many bytes.
    Integer,
    /// An index is 0 or beyond both tables.
    Index,
    /// A string is not valid Huffman code.
    Huffman,
    /// The table would become larger than the limit (RFC 7541 6.3).
    TableSize,
    /// The table's size changes after a field (RFC 7541 4.2).
    LateTableSize,
    /// The block does not begin with the change of the table's size that a lower limit requires (RFC 7541 4.2).
    MissingTableSize,
    /// The header list is many times larger than the limit and than the block, which ordinary fields never are.
    Bomb,
}

impl DecodeError {
    /// Returns a description for the log.
    pub fn text(self) -> &'static str {
        match self {
            DecodeError::Truncated => "truncated header block",
            DecodeError::Integer => "integer in a header block too large",
            DecodeError::Index => "index in a header block beyond the tables",
            DecodeError::Huffman => "invalid Huffman code",
            DecodeError::TableSize => "dynamic table above its limit",
            DecodeError::LateTableSize => "change of the dynamic table after a field",
            DecodeError::MissingTableSize => "missing change of the dynamic table",
            DecodeError::Bomb => "header list many times over its limit",
        }
    }
}
