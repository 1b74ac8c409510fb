//! The compression codecs.

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::options::Levels;
use crate::http::coding::Coding;

/// Window size of brotli as a power of two (RFC 7932 9.1): 4 MiB, which every decoder supports.
const BROTLI_WINDOW: i32 = 22;

/// Compresses content. Equal content always gives equal compressed bytes.
///
/// # Errors
/// The codec failed.
pub(super) fn encode(coding: Coding, levels: &Levels, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = match coding {
        Coding::Gzip => gzip(levels.gzip, content)?,
        Coding::Brotli => brotli(levels.brotli, content)?,
        // Higher levels than 19 would need a window of more than 8 MiB, the largest that decoders
        // must support (RFC 9659).
        Coding::Zstd => zstd::bulk::compress(content, levels.zstd.cast_signed())?,
    };
    out.shrink_to_fit();
    Ok(out)
}

/// Returns an output buffer whose capacity fits typical compressed content.
fn room(content: &[u8]) -> Vec<u8> {
    Vec::with_capacity(content.len() / 4 + 64)
}

fn gzip(level: u32, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(room(content), Compression::new(level));
    encoder.write_all(content)?;
    encoder.finish()
}

fn brotli(level: u32, mut content: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = room(content);
    let params = BrotliEncoderParams {
        quality: level.cast_signed(),
        lgwin: BROTLI_WINDOW,
        size_hint: content.len(),
        ..BrotliEncoderParams::default()
    };
    brotli::BrotliCompress(&mut content, &mut out, &params)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let read = match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
            Coding::Zstd => {
                let mut decoder = zstd::Decoder::new(bytes).expect("a decoder");
                // The tests decode with the smallest window that RFC 9659 requires of decoders,
                // 8 MiB.
                decoder.window_log_max(23).expect("taken");
                decoder.read_to_end(&mut out)
            }
        };
        read.expect("decodes");
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24 * sluice_lab::soak::factor()))]

        #[test]
        fn compressed_content_decompresses_to_the_original(
            word in prop::collection::vec(any::<u8>(), 0..50),
            times in 0..200_usize,
        ) {
            let content = word.repeat(times);
            for coding in Coding::ALL {
                let coded = encode(coding, &Levels::default(), &content).expect("encodes");
                prop_assert_eq!(&decode(coding, &coded), &content);
                let again = encode(coding, &Levels::default(), &content).expect("encodes");
                prop_assert_eq!(coded, again);
            }
        }
    }

    #[test]
    fn every_decoder_supports_the_window() {
        let content: Vec<u8> = (0..9_u32 << 20).map(|n| (n / 7_919) as u8).collect();
        for zstd in [1, 19] {
            let levels = Levels {
                zstd,
                ..Levels::default()
            };
            let coded = encode(Coding::Zstd, &levels, &content).expect("encodes");
            assert!(decode(Coding::Zstd, &coded) == content);
        }
    }
}
