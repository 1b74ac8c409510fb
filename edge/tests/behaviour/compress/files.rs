//! Tests of compressing files, and of precompressed files.

use std::path::PathBuf;
use std::thread;

use super::{decoded, exercise, in_coding, number, text, varies};
use crate::harness::{Edge, Setup, eventually};

/// An edge that serves a folder with compression.
struct Shelf {
    folder: tempfile::TempDir,
    edge: Edge,
}

impl Shelf {
    /// Starts an edge with this content. `files` has further settings of the folder, and `compress`
    /// is the value of that setting.
    fn new(content: &[(&str, &[u8])], files: &str, compress: &str) -> Shelf {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = format!(
            "[server]\nworkers = 2\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n[[site.route]]\ncompress = {compress}\n\
             [site.route.files]\nroot = {:?}\n{files}\n",
            folder.path().display().to_string()
        );
        for (name, bytes) in content {
            std::fs::write(folder.path().join(name), bytes).expect("written");
        }
        let edge = Setup::of_text(config).start();
        Shelf { folder, edge }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

const ALL: &str = "[\"zstd\", \"br\", \"gzip\"]";

// Small files are served from memory and large ones from the page cache. Both are compressed.
#[test]
fn files_are_served_in_each_coding() {
    let (small, large) = (text(20_000), text(80_000));
    let shelf = Shelf::new(&[("a.css", &small), ("b.js", &large)], "", ALL);
    for coding in ["zstd", "br", "gzip"] {
        exercise(&shelf.edge, "/a.css", coding, &small);
        exercise(&shelf.edge, "/b.js", coding, &large);
    }
    assert_eq!(number(&shelf.edge, "made"), 6);
    assert!(shelf.edge.counter("coded_served") > 0);
}

// The client's weights in Accept-Encoding decide. If they are equal, the order in the configuration
// decides.
#[test]
fn the_preferred_coding_is_served() {
    let content = text(20_000);
    let shelf = Shelf::new(&[("a.css", &content)], "", "[\"gzip\", \"zstd\", \"br\"]");
    for (accepted, coding) in [
        ("gzip, deflate, br, zstd", "gzip"),
        ("gzip;q=0.9, br, zstd", "zstd"),
        ("*", "gzip"),
        ("*, gzip;q=0", "zstd"),
        ("identity;q=0.1, br;q=0.2", "br"),
        ("identity;q=0, br;q=0.001", "br"),
        ("x-gzip", "gzip"),
    ] {
        let reply = in_coding(&shelf.edge, "/a.css", accepted, coding);
        assert!(decoded(coding, &reply.body) == content, "{accepted}");
    }
    for accepted in [
        "",
        "identity",
        "deflate",
        "gzip;q=0",
        "identity, *;q=0.5",
        "gzip;q=2",
    ] {
        let reply = shelf.edge.get("/a.css", &[("Accept-Encoding", accepted)]);
        assert!(reply.body == content && varies(&reply), "{accepted}");
        assert_eq!(reply.header("content-encoding"), None, "{accepted}");
    }
}

// Concurrent requests for one file start one compression job. They receive the uncompressed file
// meanwhile.
#[test]
fn many_clients_cause_one_compression_job() {
    let content = text(200_000);
    let shelf = Shelf::new(&[("a.txt", &content)], "", ALL);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let reply = in_coding(&shelf.edge, "/a.txt", "gzip", "gzip");
                assert!(decoded("gzip", &reply.body) == content);
            });
        }
    });
    assert_eq!(number(&shelf.edge, "made"), 1);
    assert_eq!(number(&shelf.edge, "made_bytes_in"), 200_000);
}

#[test]
fn content_that_hardly_shrinks_is_served_uncompressed() {
    let noise: Vec<u8> = text(200_000)
        .chunks(16)
        .flat_map(|chunk| chunk.iter().map(|b| b.wrapping_mul(97)).collect::<Vec<_>>())
        .collect();
    let mut state = 1_u64;
    let noise: Vec<u8> = noise
        .iter()
        .map(|b| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            b ^ (state >> 56) as u8
        })
        .collect();
    let short = text(1000);
    let files: [(&str, &[u8]); 3] = [
        ("noise.txt", &noise),
        ("short.txt", &short),
        ("a.png", &noise),
    ];
    let shelf = Shelf::new(&files, "", ALL);
    let ask = |target| shelf.edge.get(target, &[("Accept-Encoding", "gzip")]);
    eventually("it was tried", || {
        let reply = ask("/noise.txt");
        assert!(reply.body == noise && varies(&reply));
        number(&shelf.edge, "not_worth") == 1
    });
    for (target, content) in [("/short.txt", &short), ("/a.png", &noise)] {
        let reply = ask(target);
        assert!(&reply.body == content && !varies(&reply), "{target}");
        assert_eq!(reply.header("content-encoding"), None, "{target}");
    }
    assert_eq!(number(&shelf.edge, "made"), 0);
}

// A file is replaced by another one. The compressed form of the old file must not be served for the
// new one.
#[test]
fn a_replaced_file_is_compressed_again() {
    let (first, second) = (text(30_000), text(30_001));
    let shelf = Shelf::new(&[("a.css", &first)], "recheck = \"1ms\"", ALL);
    let before = in_coding(&shelf.edge, "/a.css", "gzip", "gzip");
    assert!(decoded("gzip", &before.body) == first);
    let new = shelf.path("new");
    std::fs::write(&new, &second).expect("written");
    std::fs::rename(&new, shelf.path("a.css")).expect("renamed");
    eventually("the new one", || {
        shelf.edge.get("/a.css", &[]).body == second
    });
    let after = in_coding(&shelf.edge, "/a.css", "gzip", "gzip");
    assert!(decoded("gzip", &after.body) == second);
    assert_ne!(before.header("etag"), after.header("etag"));
}

// Precompressed files such as `x.css.gz` take precedence over compression by the edge. Their entity
// tags differ from that of the uncompressed file, even with the same modification time.
#[test]
fn precompressed_files_take_precedence() {
    let content = text(30_000);
    let files: [(&str, &[u8]); 3] = [
        ("a.css", &content),
        ("a.css.gz", b"zipped"),
        ("a.css.br", b"broken"),
    ];
    let shelf = Shelf::new(&files, "precompressed = true", ALL);
    let mut tags = Vec::new();
    for (accepted, body) in [
        ("gzip, zstd;q=0.5", &b"zipped"[..]),
        ("br", b"broken"),
        ("", &content),
    ] {
        let reply = shelf.edge.get("/a.css", &[("Accept-Encoding", accepted)]);
        assert!(reply.body == body && varies(&reply), "{accepted}");
        tags.push(reply.header("etag").expect("a validator").to_owned());
        let same = shelf.edge.get(
            "/a.css",
            &[
                ("Accept-Encoding", accepted),
                ("If-None-Match", &tags[tags.len() - 1]),
            ],
        );
        assert_eq!(same.status, 304, "{accepted}");
    }
    assert!(
        tags[0].ends_with("-gzip\"") && tags[1].ends_with("-br\""),
        "{tags:?}"
    );
    assert_eq!(number(&shelf.edge, "contents"), 0);
    let made = in_coding(&shelf.edge, "/a.css", "zstd", "zstd");
    assert!(decoded("zstd", &made.body) == content);
}

// The memory for compressed content is limited, however many files are requested.
#[test]
fn the_memory_of_compressed_content_is_limited() {
    let contents: Vec<(String, Vec<u8>)> = (0..60)
        .map(|n| (format!("{n}.txt"), text(80_000 + n)))
        .collect();
    let files: Vec<(&str, &[u8])> = contents
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let shelf = Shelf::new(&files, "", "{ encodings = [\"gzip\"], memory = \"1MiB\" }");
    for (name, content) in &files {
        let reply = in_coding(&shelf.edge, &format!("/{name}"), "gzip", "gzip");
        assert!(decoded("gzip", &reply.body) == *content);
        assert!(number(&shelf.edge, "bytes") <= (1 << 20) + (16 << 10));
    }
    assert!(number(&shelf.edge, "evicted") > 0);
    assert!(number(&shelf.edge, "bytes") > 1 << 19);
}

// A reload keeps the compressed content. New settings apply only to content that is compressed
// later.
#[test]
fn a_reload_keeps_compressed_content() {
    let content = text(30_000);
    let shelf = Shelf::new(&[("a.css", &content)], "", ALL);
    in_coding(&shelf.edge, "/a.css", "gzip", "gzip");
    let path = shelf.edge.file("sluice.toml");
    let config = std::fs::read_to_string(path).expect("it is there");
    let reload = |config: &str| {
        shelf.edge.rewrite(config);
        let output = shelf.edge.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    };
    reload(&config.replace("workers = 2\n", "workers = 2\n[limits]\nheaders = 4096\n"));
    let reply = shelf.edge.get("/a.css", &[("Accept-Encoding", "gzip")]);
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert_eq!(number(&shelf.edge, "made"), 1);
    reload(&config.replace(ALL, "false"));
    let reply = shelf.edge.get("/a.css", &[("Accept-Encoding", "gzip")]);
    assert!(reply.body == content && !varies(&reply));
    assert!(shelf.edge.status()["compress"].is_null());
}
