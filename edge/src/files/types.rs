//! Content-Type by a file's extension.

use super::options::Options;

/// Content-Type of a file with an unknown extension (RFC 2046 4.5.1).
const UNKNOWN: &str = "application/octet-stream";

/// Media types that the crate `mime_guess` lacks, or for which it has an outdated or unusual one. The
/// types are those of the IANA registry; for extensions that are not in it, those of nginx. Sorted
/// by extension.
const OWN: &[(&str, &str)] = &[
    ("3mf", "model/3mf"),
    ("ac4", "audio/ac4"),
    ("amr", "audio/amr"),
    ("cjs", "text/javascript"),
    ("cmaf", "video/mp4"),
    ("cmfa", "audio/mp4"),
    ("cmfm", "application/mp4"),
    ("cmft", "application/mp4"),
    ("cmfv", "video/mp4"),
    ("cur", "image/x-icon"),
    ("dfxp", "application/ttml+xml"),
    ("diff", "text/plain"),
    ("eac3", "audio/eac3"),
    ("ec3", "audio/eac3"),
    ("hif", "image/heif"),
    ("j2k", "image/j2c"),
    ("jsonl", "application/jsonl"),
    ("kar", "audio/midi"),
    ("key", "application/octet-stream"),
    ("ktx2", "image/ktx2"),
    ("m2t", "video/mp2t"),
    ("m2ts", "video/mp2t"),
    ("m3u", "audio/mpegurl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4b", "audio/mp4"),
    ("m4p", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mtl", "model/mtl"),
    ("mts", "video/mp2t"),
    ("ndjson", "application/x-ndjson"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("patch", "text/plain"),
    ("rpm", "application/x-redhat-package-manager"),
    ("stl", "model/stl"),
    ("tgz", "application/gzip"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("ttml", "application/ttml+xml"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcf", "text/vcard"),
    ("wgsl", "text/wgsl"),
    ("woff", "font/woff"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

/// Returns the Content-Type of a file with this name, with a charset for text.
pub(super) fn of(name: &[u8], options: &Options) -> String {
    let name = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let dot = memchr::memrchr(b'.', name).filter(|dot| *dot > 0);
    let extension = dot.and_then(|dot| std::str::from_utf8(&name[dot + 1..]).ok());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    if let Some(own) = options.types.get(&extension) {
        return own.clone();
    }
    let known = OWN.binary_search_by(|(own, _)| (*own).cmp(&extension));
    let found = match known {
        Ok(at) => OWN[at].1,
        Err(_) => mime_guess::from_ext(&extension)
            .first_raw()
            .unwrap_or(UNKNOWN),
    };
    match &options.charset {
        Some(charset) if is_text(found) => format!("{found}; charset={charset}"),
        _ => found.to_owned(),
    }
}

/// Whether a media type has a charset parameter.
fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type == "application/javascript"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_determines_the_content_type() {
        let mut options = Options::default();
        let own = "application/vnd.own".to_owned();
        options.types.insert("m3u".to_owned(), own);
        for (name, expected) in [
            ("a/index.html", "text/html; charset=utf-8"),
            ("STYLE.CSS", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("data.json", "application/json"),
            ("photo.jpeg", "image/jpeg"),
            ("drawing.svg", "image/svg+xml"),
            ("font.woff2", "font/woff2"),
            ("clip.mp4", "video/mp4"),
            ("module.wasm", "application/wasm"),
            ("list.m3u8", "application/vnd.apple.mpegurl"),
            ("list.M3U", "application/vnd.own"),
            ("archive.tar.gz", "application/gzip"),
            ("a.b/none", UNKNOWN),
            (".html", UNKNOWN),
            ("strange.\u{e4}", UNKNOWN),
        ] {
            assert_eq!(of(name.as_bytes(), &options), expected, "{name}");
        }
        options.charset = None;
        assert!(OWN.is_sorted_by(|(a, _), (b, _)| a < b));
        assert_eq!(of(b"a.txt", &options), "text/plain");
    }

    // RFC 8216 (HLS), RFC 9239 (JavaScript), RFC 8081 (fonts), ISO/IEC 23009-1 (DASH), ISO/IEC
    // 23000-19 (CMAF), and the types of nginx.
    #[test]
    fn players_and_browsers_get_the_media_types_that_they_need() {
        let options = Options {
            charset: None,
            ..Options::default()
        };
        for (extensions, expected) in [
            ("ts m2t m2ts mts", "video/mp2t"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("m3u", "audio/mpegurl"),
            ("mpd", "application/dash+xml"),
            ("m4s", "video/iso.segment"),
            ("mp4 mp4v cmfv cmaf", "video/mp4"),
            ("m4a mp4a m4b cmfa", "audio/mp4"),
            ("cmft", "application/mp4"),
            ("m4v", "video/x-m4v"),
            ("mov", "video/quicktime"),
            ("webm", "video/webm"),
            ("weba", "audio/webm"),
            ("mkv", "video/x-matroska"),
            ("ogv", "video/ogg"),
            ("ogg oga opus", "audio/ogg"),
            ("mp3", "audio/mpeg"),
            ("aac", "audio/aac"),
            ("flac", "audio/flac"),
            ("wav", "audio/wav"),
            ("ec3 eac3", "audio/eac3"),
            ("vtt", "text/vtt"),
            ("srt", "application/x-subrip"),
            ("ttml dfxp", "application/ttml+xml"),
            ("key bin", "application/octet-stream"),
            ("jpg jpeg", "image/jpeg"),
            ("png", "image/png"),
            ("gif", "image/gif"),
            ("apng", "image/apng"),
            ("webp", "image/webp"),
            ("avif", "image/avif"),
            ("jxl", "image/jxl"),
            ("heic", "image/heic"),
            ("svg", "image/svg+xml"),
            ("ico cur", "image/x-icon"),
            ("html htm", "text/html"),
            ("css", "text/css"),
            ("js mjs cjs", "text/javascript"),
            ("json map", "application/json"),
            ("jsonld", "application/ld+json"),
            ("webmanifest", "application/manifest+json"),
            ("wasm", "application/wasm"),
            ("xml", "text/xml"),
            ("xhtml", "application/xhtml+xml"),
            ("rss", "application/rss+xml"),
            ("atom", "application/atom+xml"),
            ("txt", "text/plain"),
            ("md", "text/markdown"),
            ("csv", "text/csv"),
            ("yaml yml", "application/yaml"),
            ("ics", "text/calendar"),
            ("vcf", "text/vcard"),
            ("pdf", "application/pdf"),
            ("woff", "font/woff"),
            ("woff2", "font/woff2"),
            ("ttf", "font/ttf"),
            ("otf", "font/otf"),
            ("ttc", "font/collection"),
            ("eot", "application/vnd.ms-fontobject"),
            ("glb", "model/gltf-binary"),
            ("gltf", "model/gltf+json"),
            ("stl", "model/stl"),
            ("zip", "application/zip"),
            ("gz tgz", "application/gzip"),
            ("zst", "application/zstd"),
        ] {
            for extension in extensions.split(' ') {
                let name = format!("a.{extension}");
                assert_eq!(of(name.as_bytes(), &options), expected, "{extension}");
            }
        }
    }
}
