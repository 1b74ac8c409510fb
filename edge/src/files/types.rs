//! Content-Type by a file's extension.

use super::options::Options;

/// Content-Type of a file with an unknown extension (RFC 2046 4.5.1).
const UNKNOWN: &str = "application/octet-stream";

/// Returns the Content-Type of a file with this name, with a charset for text.
pub(super) fn of(name: &[u8], options: &Options) -> String {
    let name = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let dot = memchr::memrchr(b'.', name).filter(|dot| *dot > 0);
    let extension = dot.and_then(|dot| std::str::from_utf8(&name[dot + 1..]).ok());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    if let Some(own) = options.types.get(&extension) {
        return own.clone();
    }
    let guess = mime_guess::from_ext(&extension);
    let found = guess.first_raw().unwrap_or(UNKNOWN);
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
        options.types.insert(
            "m3u8".to_owned(),
            "application/vnd.apple.mpegurl".to_owned(),
        );
        for (name, expected) in [
            ("a/index.html", "text/html; charset=utf-8"),
            ("STYLE.CSS", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "application/javascript; charset=utf-8"),
            ("data.json", "application/json"),
            ("photo.jpeg", "image/jpeg"),
            ("drawing.svg", "image/svg+xml"),
            ("font.woff2", "font/woff2"),
            ("clip.mp4", "video/mp4"),
            ("module.wasm", "application/wasm"),
            ("list.m3u8", "application/vnd.apple.mpegurl"),
            ("archive.tar.gz", "application/gzip"),
            ("a.b/none", UNKNOWN),
            (".html", UNKNOWN),
            ("strange.\u{e4}", UNKNOWN),
        ] {
            assert_eq!(of(name.as_bytes(), &options), expected, "{name}");
        }
        options.charset = None;
        assert_eq!(of(b"a.txt", &options), "text/plain");
    }
}
