//! The limits of a connection, from those of the configuration.

use crate::downstream;
use crate::http2::server::Options;

/// Largest header block that eight CONTINUATION frames surely hold, in bytes.
const BLOCK: usize = 64 << 10;
/// Payload of the largest frame, in bytes.
const FRAME: usize = 16 << 10;

/// Returns the limits of a connection to a client.
pub fn options(limits: &downstream::Options) -> Options {
    let mut options = Options::default();
    let most = &mut options.limits;
    let streams = limits.max_streams;
    most.streams = streams;
    // A client may cancel all of its requests twice before it has used up the allowance.
    options.resets.most = options.resets.most.max(2 * streams);
    let list = limits.headers;
    most.header_list = u32::try_from(list).unwrap_or(u32::MAX);
    // A list of twice the permitted size still gets a response (431); a larger one ends the connection.
    most.block.bytes = most.block.bytes.max(2 * list);
    most.block.continuations += (most.block.bytes.saturating_sub(BLOCK) / FRAME) as u32;
    options
}
