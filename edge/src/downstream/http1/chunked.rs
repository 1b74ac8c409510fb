//! The chunked transfer coding of requests: the strict decoder, with trailers checked against RFC 9112.

use crate::http::chunked::Decoder;
#[cfg(any(test, feature = "test-rigs"))]
use crate::http::chunked::{BadChunk, Decoded};

use super::head;

/// Creates a decoder for a body whose trailer section may have this many bytes.
pub fn decoder(trailers_max: usize) -> Decoder {
    Decoder::new(trailers_max, head::parse_trailers)
}

/// Decodes `input` for the fuzzer, as a whole and byte by byte, and checks that the results are
/// equal. Returns the content if the body is complete and valid.
#[cfg(any(test, feature = "test-rigs"))]
pub fn exercise(input: &[u8]) -> Option<Vec<u8>> {
    let whole = collect(input, input.len().max(1));
    let bytewise = collect(input, 1);
    assert_eq!(whole, bytewise, "the decoder depends on how input is cut");
    whole.ok().flatten()
}

/// Returns the content of a body that arrives `step` bytes at a time, or `None` if the body is
/// incomplete.
#[cfg(any(test, feature = "test-rigs"))]
fn collect(input: &[u8], step: usize) -> Result<Option<Vec<u8>>, BadChunk> {
    let mut decoder = decoder(4 << 10);
    let mut content = Vec::new();
    for piece in input.chunks(step) {
        let mut piece = piece;
        loop {
            match decoder.decode(piece)? {
                Decoded::Data(used, data) => {
                    content.extend_from_slice(data);
                    piece = &piece[used..];
                }
                Decoded::More => break,
                Decoded::End(..) => return Ok(Some(content)),
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chunked::{EXTENSIONS_MAX, SIZE_LINE_MAX};

    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_cut() {
        let body = b"5\r\nhello\r\n00a;x=\"q\\\"\";y\r\n, world!!!\r\n0\r\nX-Sum: 1\r\n\r\nGET";
        assert_eq!(exercise(body).as_deref(), Some(&b"hello, world!!!"[..]));
        let mut decoder = decoder(100);
        let tail = &body[body.len() - 18..];
        assert!(matches!(decoder.decode(tail), Ok(Decoded::End(15, f)) if f.len() == 1));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [
            "\r\n",
            ";x\r\n",
            "g\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello!\r\n0\r\n\r\n",
            "-5\r\n",
            "0x5\r\nhello\r\n",
            "+5\r\n",
            "11111111111111111\r\n",
            "5;\r\nhello\r\n",
            "5; x\r\nhello\r\n",
            "5;x=\r\nhello\r\n",
            "5;x=\"\n\"\r\nhello\r\n",
            "5;x\nhello\r\n",
            "5;=y\r\n",
            "5;x=\"a\"b\r\n",
            "0\r\nX: y\n\r\n",
            "0\r\n X: y\r\n\r\n",
            "0\r\nX : y\r\n\r\n",
            "0\r\nContent-Length: 3\r\n\r\n",
            "0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "0\r\nX: a\rb\r\n\r\n",
            "0\r\nnonsense\r\n\r\n",
            "5\r\n\r\nhello",
        ] {
            assert_eq!(collect(bad.as_bytes(), 1000).ok(), None, "{bad:?}");
            assert_eq!(collect(bad.as_bytes(), 1).ok(), None, "{bad:?} by bytes");
        }
    }

    #[test]
    fn after_an_error_every_call_returns_it() {
        for bad in [
            "g\r\n",
            "5;x=\r\nhello\r\n",
            "0\r\nContent-Length: 3\r\n\r\n",
            "0\r\nX: y\n\r\n",
        ] {
            let mut decoder = decoder(100);
            let first = decoder.decode(bad.as_bytes());
            assert!(first.is_err(), "{bad:?}");
            for again in [bad, "0\r\n\r\n", "\r\n", ""] {
                assert_eq!(decoder.decode(again.as_bytes()), first, "{bad:?}");
            }
        }
    }

    #[test]
    fn sizes_extensions_and_trailers_are_bounded() {
        let largest = collect(b"ffffffffffffffff\r\nx", 1000);
        assert_eq!(largest, Ok(None), "counts, overflows nothing");
        let long = format!("1;{}\r\nx", "e".repeat(SIZE_LINE_MAX));
        assert!(collect(long.as_bytes(), 1000).is_err());
        let many = "1;eeeeeeeeeeeeeeeeee\r\nx\r\n".repeat(EXTENSIONS_MAX / 19 + 1);
        assert!(collect(many.as_bytes(), 1000).is_err());
        let trailers = format!("0\r\nX: {}\r\n\r\n", "t".repeat(4 << 10));
        assert!(collect(trailers.as_bytes(), 1000).is_err());
    }
}
