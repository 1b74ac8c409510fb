//! Describes a route's compression.

use crate::compress::{Options, Types};
use crate::config::value::show_size;
use crate::http::coding::Coding;

/// Returns one line about compression.
pub fn describe(options: &Options) -> String {
    let codings = options.encodings.iter().map(|coding| {
        let level = match coding {
            Coding::Zstd => options.levels.zstd,
            Coding::Brotli => options.levels.brotli,
            Coding::Gzip => options.levels.gzip,
        };
        format!("{} {level}", coding.name())
    });
    let mut text = format!(
        "compressed with {}: from {} to {}, in {} of memory",
        codings.collect::<Vec<_>>().join(", "),
        show_size(options.min),
        show_size(*options.sizes().end()),
        show_size(options.memory)
    );
    if options.types != Types::default() {
        let types: Vec<String> = options.types.patterns().collect();
        text += &format!(", only {}", types.join(", "));
    }
    if options.request_identity {
        text += "; origins are asked for uncompressed content";
    }
    text
}
