//! `GET /dashboard/`: the files of the dashboard, which are in the program. They contain nothing about this Sluice, so
//! that a client needs no token for them.
//!
//! They are sent without comments and indentation, which are for those who read the source. Lines keep their numbers, so
//! that those in a browser's messages are the source's.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use hyper::http::HeaderMap;

use crate::http::Fields;
use crate::http::coding::{Accepted, Coding};

/// Path of the dashboard.
pub(super) const PATH: &str = "/dashboard/";

/// Name of the page.
const INDEX: &str = "index.html";

/// Digits of a hash in an ETag.
const TAG_DIGITS: usize = 32;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Names and contents of all files.
        const FILES: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!("dashboard/", $name)))),*];
    };
}

files![
    "api.js",
    "bytemap.js",
    "caches.js",
    "chart.js",
    "connections.js",
    "context.js",
    "dom.js",
    "events.js",
    "feed.js",
    "format.js",
    "icon.svg",
    "index.html",
    "login.js",
    "main.js",
    "metrics.js",
    "overview.js",
    "parts.js",
    "reasons.js",
    "recent.js",
    "reuse.js",
    "routes.js",
    "state.js",
    "style.css",
    "table.js",
    "theme.js",
    "top.js",
    "upstreams.js",
    "vendor/uplot-license.txt",
    "vendor/uplot.css",
    "vendor/uplot.js",
    "whatif.js",
    "why.js",
    "xray.js",
];

/// A file in one content coding.
#[derive(Clone)]
struct Form {
    content: Cow<'static, [u8]>,
    /// The coding, if there is one.
    coding: Option<Coding>,
    tag: String,
}

/// A file as it is, and with gzip. Each form has its own ETag (RFC 9110 8.8.3.3).
struct Part {
    name: &'static str,
    plain: Form,
    gzip: Form,
}

/// All files. Each is compressed once, when the first one is asked for.
static PARTS: LazyLock<Vec<Part>> =
    LazyLock::new(|| FILES.iter().map(|file| Part::of(*file)).collect());

impl Part {
    fn of((name, content): (&'static str, &'static [u8])) -> Part {
        let content = shortened(name, content);
        let hash = blake3::hash(&content).to_hex();
        let hash = hash.get(..TAG_DIGITS).unwrap_or_default();
        let plain = Form {
            content: content.clone(),
            coding: None,
            tag: format!("\"{hash}\""),
        };
        // Writing into memory does not fail. If it did, the file would be sent as it is.
        let gzip = compressed(&content).map_or_else(
            |_| plain.clone(),
            |content| Form {
                content: Cow::Owned(content),
                coding: Some(Coding::Gzip),
                tag: format!("\"{hash}-gzip\""),
            },
        );
        Part { name, plain, gzip }
    }

    /// Returns the form for a client with these headers.
    fn form(&'static self, headers: &HeaderMap) -> &'static Form {
        match takes_gzip(headers) {
            true => &self.gzip,
            false => &self.plain,
        }
    }
}

/// Whether a file is a script or style of the dashboard itself.
fn is_own(name: &str) -> bool {
    !name.contains('/') && (name.ends_with(".js") || name.ends_with(".css"))
}

/// Returns a file as it is sent. Libraries, pictures and licenses stay as they are.
fn shortened(name: &str, content: &'static [u8]) -> Cow<'static, [u8]> {
    match str::from_utf8(content) {
        Ok(text) if is_own(name) => Cow::Owned(without_comments(text).into_bytes()),
        _ => Cow::Borrowed(content),
    }
}

/// Empties the lines that are comments, and takes the indentation from the others. A comment has lines of its own in
/// the files of the dashboard, and a string ends in its line.
fn without_comments(text: &str) -> String {
    let mut is_comment = false;
    let lines = text.lines().map(str::trim_start).map(|line| {
        let begins = line.starts_with("/*");
        let is_empty = is_comment || begins || line.starts_with("//");
        is_comment = (is_comment || begins) && !line.contains("*/");
        if is_empty { "" } else { line }
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn compressed(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let fields: Fields = lines.map(|line| ("accept-encoding", line)).collect();
    Accepted::of(&fields).best([Coding::Gzip]).is_some()
}

/// Answers `GET /dashboard` with a redirect to the page.
pub(super) async fn redirect() -> Redirect {
    Redirect::permanent(PATH)
}

/// Answers `GET /dashboard/`.
pub(super) async fn page(headers: HeaderMap) -> Response {
    file(INDEX, &headers)
}

/// Answers `GET /dashboard/FILE`.
pub(super) async fn part(Path(name): Path<String>, headers: HeaderMap) -> Response {
    file(&name, &headers)
}

/// Whether a client that asks for `/` is a browser, which gets the dashboard.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some(part) = PARTS.iter().find(|part| part.name == name) else {
        return (StatusCode::NOT_FOUND, "the dashboard has no such file\n").into_response();
    };
    let form = part.form(headers);
    // The browser asks each time, so that a new version of Sluice is seen at once.
    let common = [
        (ETAG, form.tag.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept-encoding"),
    ];
    if is_known(headers, &form.tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(CONTENT_TYPE, media_type(name))];
    let mut response = (common, kind, &*form.content).into_response();
    if let Some(coding) = form.coding {
        let coding = HeaderValue::from_static(coding.name());
        response.headers_mut().insert(CONTENT_ENCODING, coding);
    }
    response
}

/// Whether the client has the content with this tag (RFC 9110 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    tags.any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read as _;
    use std::path::PathBuf;

    use super::*;
    use crate::http::cache_status::Fwd;
    use crate::reason::Reason;

    /// Most bytes of all files together, in the program and as browsers receive them.
    const BYTES_MAX: usize = 265_000;
    const SENT_MAX: usize = 100_000;
    /// Most bytes that browsers have after decompression.
    const SHOWN_MAX: usize = 250_000;
    /// Most bytes of one file that is not a library.
    const FILE_BYTES_MAX: usize = 22_000;

    fn text(name: &str) -> &'static str {
        let found = FILES.iter().find(|(known, _)| *known == name);
        std::str::from_utf8(found.expect(name).1).expect("UTF-8")
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/admin/dashboard");
        let names = |folder: PathBuf, prefix: &str| {
            let entries = fs::read_dir(folder).expect("the folder");
            let files = entries
                .filter_map(Result::ok)
                .filter(|entry| entry.path().is_file());
            let names = files.map(|entry| format!("{prefix}{}", entry.file_name().display()));
            names.collect::<BTreeSet<String>>()
        };
        let mut there = names(folder.clone(), "");
        there.extend(names(folder.join("vendor"), "vendor/"));
        let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn the_page_is_small() {
        let all: usize = FILES.iter().map(|(_, content)| content.len()).sum();
        assert!(all <= BYTES_MAX, "{all} bytes");
        let sent: usize = PARTS.iter().map(|part| part.gzip.content.len()).sum();
        assert!(sent <= SENT_MAX, "{sent} bytes with gzip");
        let shown: usize = PARTS.iter().map(|part| part.plain.content.len()).sum();
        assert!(shown <= SHOWN_MAX, "{shown} bytes without gzip");
        for (name, content) in FILES {
            let is_small = content.len() <= FILE_BYTES_MAX || name.starts_with("vendor/");
            assert!(is_small, "{name}: {} bytes", content.len());
        }
    }

    #[test]
    fn comments_and_indentation_are_not_sent() {
        let text =
            "// one\na();\n  b(\"//\"); // two\n/* three */\n  /**\n   * four\n   */\nc();\n";
        assert_eq!(
            without_comments(text),
            "\na();\nb(\"//\"); // two\n\n\n\n\nc();\n"
        );
        let lines = |content: &[u8]| content.iter().filter(|byte| **byte == b'\n').count();
        for (part, (name, source)) in PARTS.iter().zip(FILES) {
            let sent = &part.plain.content;
            assert_eq!(lines(sent), lines(source), "{name}");
            assert_eq!(sent.len() < source.len(), is_own(name), "{name}");
        }
    }

    /// Code in a line of a comment would not be sent, and a string of several lines would lose its indentation.
    #[test]
    fn comments_have_lines_of_their_own_and_strings_end_in_their_lines() {
        for (name, _) in FILES.iter().filter(|(name, _)| is_own(name)) {
            for line in text(name).lines().map(str::trim_start) {
                assert!(
                    !line.contains("*/") || line.ends_with("*/"),
                    "{name}: {line}"
                );
                assert!(line.rfind("/*").unwrap_or(0) == 0, "{name}: {line}");
                assert!(line.matches('`').count() % 2 == 0, "{name}: {line}");
                assert!(!line.ends_with('\\'), "{name}: {line}");
            }
        }
    }

    #[test]
    fn the_page_names_only_its_own_files() {
        let index = text(INDEX);
        let mut named = 0;
        for part in index
            .split(['"', ' '])
            .filter(|part| part.ends_with(".js") || part.ends_with(".css"))
        {
            text(part);
            named += 1;
        }
        assert!(named > 10, "{named}");
        assert!(!index.contains("style=") && !index.contains("http://"));
        for (name, _) in FILES
            .iter()
            .filter(|(name, _)| name.ends_with(".js") && !name.contains('/'))
        {
            let script = text(name);
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
            ] {
                assert!(!script.contains(forbidden), "{name}: {forbidden}");
            }
            for line in script.lines().filter(|line| line.contains("from \"./")) {
                let file = line
                    .split("\"./")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next());
                text(file.expect(line));
            }
        }
    }

    #[test]
    fn the_explained_reasons_exist() {
        let known: BTreeSet<&str> = Reason::ALL
            .iter()
            .map(|reason| reason.text())
            .chain(Fwd::ALL.map(Fwd::as_str))
            .collect();
        let lines = text("reasons.js").lines();
        let explained = lines
            .filter_map(|line| line.strip_prefix("  \"")?.split_once("\": ["))
            .map(|(name, _)| name);
        let explained: Vec<&str> = explained.collect();
        assert!(explained.len() > 40, "{explained:?}");
        for name in explained {
            assert!(known.contains(name), "{name}");
        }
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: hyper::header::HeaderName = name.parse().expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn clients_that_accept_gzip_get_it() {
        let part = PARTS.iter().find(|part| part.name == "main.js");
        let part = part.expect("a part");
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*part.gzip.content)
            .read_to_end(&mut plain)
            .expect("gzip");
        assert_eq!(plain, *part.plain.content);
        let ask = |lines: &[(&str, &str)]| file("main.js", &headers(lines));
        for (accepted, is_gzip) in [
            ("gzip, deflate, br", true),
            ("br, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("identity, gzip;q=0.5", false),
            ("br", false),
        ] {
            let found = ask(&[("accept-encoding", accepted)]);
            let coding = found.headers().get(CONTENT_ENCODING);
            assert_eq!(
                coding.is_some_and(|coding| coding == "gzip"),
                is_gzip,
                "{accepted}"
            );
            assert_eq!(found.headers()[VARY], "accept-encoding");
            assert_eq!(
                found.headers()[CONTENT_TYPE],
                "text/javascript; charset=utf-8"
            );
        }
        let tag =
            |response: &Response| response.headers()[ETAG].to_str().expect("a tag").to_owned();
        let (gzip, plain) = (ask(&[("accept-encoding", "gzip")]), ask(&[]));
        assert!(plain.headers().get(CONTENT_ENCODING).is_none());
        assert_ne!(tag(&gzip), tag(&plain));
        let again =
            |tag: &str, accepted| ask(&[("if-none-match", tag), ("accept-encoding", accepted)]);
        let known = again(&tag(&gzip), "gzip");
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(known.headers()[VARY], "accept-encoding");
        assert_eq!(tag(&known), tag(&gzip));
        assert_eq!(again(&tag(&plain), "gzip").status(), StatusCode::OK);
        assert_eq!(again(&tag(&gzip), "identity").status(), StatusCode::OK);
    }

    #[test]
    fn files_have_types_and_tags() {
        let found = file("style.css", &headers(&[]));
        assert_eq!(found.status(), StatusCode::OK);
        assert_eq!(found.headers()[CONTENT_TYPE], "text/css; charset=utf-8");
        assert_eq!(found.headers()[CACHE_CONTROL], "no-cache");
        let tag = found.headers()[ETAG].to_str().expect("a tag").to_owned();
        for known in [tag.clone(), format!("\"a\", W/{tag}"), "*".to_owned()] {
            let again = file("style.css", &headers(&[("if-none-match", &known)]));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(again.headers()[ETAG], tag.as_str());
        }
        let other = file("main.js", &headers(&[("if-none-match", &tag)]));
        assert_eq!(other.status(), StatusCode::OK);
        for unknown in ["", "nothing.js", "../mod.rs", "vendor/", "INDEX.HTML"] {
            assert_eq!(
                file(unknown, &headers(&[])).status(),
                StatusCode::NOT_FOUND,
                "{unknown}"
            );
        }
        assert!(is_wanted(&headers(&[(
            "accept",
            "text/html,application/xhtml+xml"
        )])));
        assert!(!is_wanted(&headers(&[("accept", "*/*")])) && !is_wanted(&headers(&[])));
    }
}
