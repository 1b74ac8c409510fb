//! Tests of static files: which paths are served and which are refused.

use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sluice_lab::client::{Client, Reply};
use sluice_lab::disk::{Condition, Pace};

use crate::harness::{Edge, Setup, eventually};
use crate::slow_disk;

/// An edge that serves a folder `www` with files. Another file is outside the served folder.
pub struct Shelf {
    pub folder: tempfile::TempDir,
    pub edge: Edge,
}

impl Shelf {
    /// Starts an edge with these files, given by their paths below the served folder. `more` adds
    /// keys to the table `files`.
    pub fn new(files: &[(&str, &[u8])], more: &str) -> Shelf {
        Shelf::within(
            tempfile::tempdir().expect("a temporary folder"),
            files,
            more,
        )
    }

    pub fn within(folder: tempfile::TempDir, files: &[(&str, &[u8])], more: &str) -> Shelf {
        let www = folder.path().join("www");
        std::fs::create_dir(&www).expect("made");
        let text = format!(
            "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n[[site.route]]\n\
             [site.route.files]\nroot = {:?}\n{more}\n",
            www.display().to_string()
        );
        for (path, content) in files {
            write(&www.join(path), content);
        }
        let edge = Setup::of_text(text).start();
        Shelf { folder, edge }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("www").join(path)
    }

    pub fn get(&self, target: &str) -> Reply {
        self.edge.get(target, &[])
    }

    pub fn status(&self, target: &str) -> u16 {
        self.get(target).status
    }
}

pub fn write(path: &std::path::Path, content: &[u8]) {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).expect("made");
    }
    std::fs::write(path, content).expect("written");
}

/// Replaces a file atomically, by renaming a new file to its name.
pub fn replace(path: &std::path::Path, content: &[u8]) {
    let new = path.with_extension("new");
    write(&new, content);
    std::fs::rename(&new, path).expect("renamed");
}

/// Returns bytes that depend on their offset and the seed.
pub fn large(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed)
        .collect()
}

#[test]
fn media_types_of_players_and_browsers_are_sent() {
    let types = [
        ("a.ts", "video/mp2t"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.mpd", "application/dash+xml"),
        ("a.m4s", "video/iso.segment"),
        ("a.vtt", "text/vtt; charset=utf-8"),
        ("a.webp", "image/webp"),
        ("a.avif", "image/avif"),
        ("a.wasm", "application/wasm"),
        ("a.mjs", "text/javascript; charset=utf-8"),
    ];
    let shelf = Shelf::new(&types.map(|(name, _)| (name, &b"x"[..])), "");
    for (name, expected) in types {
        let reply = shelf.get(&format!("/{name}"));
        assert_eq!(reply.header("content-type"), Some(expected), "{name}");
    }
}

#[test]
fn files_have_their_type_length_and_validators() {
    let content = large(300_000, 0);
    let shelf = Shelf::new(
        &[
            ("index.html", b"<p>home"),
            ("sub/index.html", b"<p>sub"),
            ("a b.css", b"p {}"),
            ("film.mp4", &content),
            ("empty.txt", b""),
        ],
        "",
    );
    for (target, media_type, expected) in [
        ("/", "text/html; charset=utf-8", &b"<p>home"[..]),
        ("/index.html", "text/html; charset=utf-8", b"<p>home"),
        ("/sub/", "text/html; charset=utf-8", b"<p>sub"),
        ("/a%20b.css?v=1", "text/css; charset=utf-8", b"p {}"),
        ("/film.mp4", "video/mp4", &content),
        ("/empty.txt", "text/plain; charset=utf-8", b""),
    ] {
        for _ in 0..2 {
            let reply = shelf.get(target);
            assert_eq!(reply.status, 200, "{target}");
            assert_eq!(reply.header("content-type"), Some(media_type), "{target}");
            assert_eq!(reply.header("accept-ranges"), Some("bytes"), "{target}");
            assert!(reply.header("last-modified").is_some(), "{target}");
            let length = expected.len().to_string();
            assert_eq!(reply.header("content-length"), Some(&*length), "{target}");
            assert!(reply.body == expected, "{target}");
            let etag = reply.header("etag").expect("a validator").to_owned();
            assert!(etag.starts_with('"'), "{etag}");
            let head = shelf.edge.ask("HEAD", target, &[], b"");
            assert_eq!(head.header("content-length"), Some(&*length), "{target}");
            let same = shelf.edge.get(target, &[("If-None-Match", &etag)]);
            assert_eq!((same.status, same.body.len()), (304, 0), "{target}");
            let other = shelf.edge.get(target, &[("If-Match", "\"x\"")]);
            assert_eq!(other.status, 412, "{target}");
        }
    }
}

#[test]
fn parts_of_small_and_large_files_are_right() {
    for length in [5_000, 3_000_000] {
        let content = large(length, 7);
        let shelf = Shelf::new(&[("x", &content)], "");
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=100-1099", 100..1100),
            ("bytes=-10", length - 10..length),
            ("bytes=2000-", 2000..length),
            ("bytes=0-99999999", 0..length),
        ] {
            let reply = shelf.edge.get("/x", &[("Range", range)]);
            assert_eq!(reply.status, 206, "{range}");
            assert!(reply.body == content[expected.clone()], "{range}");
            let told = format!("bytes {}-{}/{length}", expected.start, expected.end - 1);
            assert_eq!(reply.header("content-range"), Some(&*told));
        }
        let none = format!("bytes={length}-");
        assert_eq!(shelf.edge.get("/x", &[("Range", &none)]).status, 416);
        let several = shelf.edge.get("/x", &[("Range", "bytes=0-1,2000-2001")]);
        assert_eq!(several.status, 206);
        let body = &several.body;
        let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
        assert!(has(&content[0..2]) && has(&content[2000..2002]));
        let told = several.header("content-length").expect("declared").parse();
        assert_eq!(told, Ok(body.len()));
    }
}

#[test]
fn only_files_within_the_folder_are_served() {
    let shelf = Shelf::new(
        &[("a.txt", b"a"), ("sub/b.txt", b"b"), (".env", b"secret")],
        "",
    );
    write(&shelf.folder.path().join("secret"), b"secret");
    symlink("../secret", shelf.path("out")).expect("made");
    symlink(shelf.path("a.txt"), shelf.path("absolute")).expect("made");
    symlink("a.txt", shelf.path("near")).expect("made");
    let made = std::process::Command::new("mkfifo")
        .arg(shelf.path("pipe"))
        .status();
    assert!(made.expect("mkfifo runs").success());
    for target in [
        "/none",
        "/out",
        "/absolute",
        "/pipe",
        "/.env",
        "/a.txt/",
        "/a.txt/x",
        "/%2e%2e/secret",
        "/sub/%2e%2e%2f..%2fsecret",
        "/..%5csecret",
        "/sub%2fb.txt",
        "/a%0atxt",
    ] {
        let reply = shelf.get(target);
        assert!(
            [400, 404].contains(&reply.status),
            "{target}: {}",
            reply.status
        );
        assert!(!reply.text().contains("secret"), "{target}");
    }
    let raw = shelf
        .edge
        .send_raw(b"GET /../secret HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(raw.starts_with("HTTP/1.1 400"), "{raw}");
    assert_eq!(shelf.get("/near").body, b"a");
    // The redirect leads to the folder's path on the host that the client used.
    let reply = shelf.get("/sub?x=1");
    assert_eq!(
        (reply.status, reply.header("location")),
        (301, Some("/sub/?x=1"))
    );
    assert_eq!(shelf.status("/sub/"), 404, "a folder is never listed");
    let reply = shelf.edge.ask("POST", "/a.txt", &[], b"x");
    assert_eq!(
        (reply.status, reply.header("allow")),
        (405, Some("GET, HEAD"))
    );
}

// Routes are matched with the normalized path. Another spelling of a path must not lead to a file
// that the route excludes.
#[test]
fn a_file_has_one_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["private/x", "@admin/x", "open/x"] {
        write(&folder.path().join(name), b"content");
    }
    let root = folder.path().display().to_string();
    let text = format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n\
         [[site.route]]\npath = \"/private/*\"\nfiles = {root:?}\ndeny = [\"0.0.0.0/0\"]\n\
         [[site.route]]\npath = \"/@admin/*\"\nfiles = {root:?}\ndeny = [\"0.0.0.0/0\"]\n\
         [[site.route]]\nfiles = {root:?}\n"
    );
    let edge = Setup::of_text(text).start();
    assert_eq!(edge.get("/open/x", &[]).body, b"content");
    for (target, location) in [
        ("//private/x", "/private/x"),
        ("//private//x?y=//z", "/private/x?y=//z"),
        ("/%40admin/x", "/@admin/x"),
        ("/%40admin//x", "/@admin/x"),
        ("//open/x", "/open/x"),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = edge.ask(method, target, &[], b"");
            let told = (reply.status, reply.header("location"));
            assert_eq!(told, (301, Some(location)), "{target}");
        }
        let status = if location == "/open/x" { 200 } else { 403 };
        assert_eq!(edge.get(location, &[]).status, status, "{location}");
    }
    // Spellings that RFC 3986 6.2.2 makes equal are normalized before the route is chosen.
    for (target, status) in [
        ("/open/%78", 200),
        ("/a/../open/x", 200),
        ("/%70rivate/x", 403),
        ("/open/../private/x", 403),
        ("/open%2Fx", 404),
        ("/open/%21", 301),
    ] {
        assert_eq!(edge.get(target, &[]).status, status, "{target}");
    }
}

#[test]
fn an_unreadable_file_is_403() {
    let shelf = Shelf::new(&[("a.txt", b"a")], "");
    std::fs::set_permissions(shelf.path("a.txt"), std::fs::Permissions::from_mode(0o000))
        .expect("changed");
    // The user root can read every file, whatever its mode is.
    let expected = if rustix::process::geteuid().is_root() {
        200
    } else {
        403
    };
    assert_eq!(shelf.status("/a.txt"), expected);
}

#[test]
fn fallbacks_are_served_for_missing_files() {
    let shelf = Shelf::new(
        &[("about.html", b"about"), ("app.html", b"app")],
        "try_files = [\"{path}.html\", \"/app.html\"]",
    );
    assert_eq!(shelf.get("/about").body, b"about");
    assert_eq!(shelf.get("/some/where").body, b"app");
    assert_eq!(shelf.status("/.hidden"), 404);
}

#[test]
fn index_names_with_a_slash_are_below_the_folder() {
    let keys = "symlinks = \"any\"\nindex = [\"//etc/passwd\", \"/home.html\"]\n\
                try_files = [\"//etc/passwd\", \"{path}/etc/passwd\", \"//app.html\"]";
    let shelf = Shelf::new(&[("home.html", b"home"), ("app.html", b"app")], keys);
    assert_eq!(shelf.get("/").body, b"home");
    assert_eq!(shelf.get("/none").body, b"app");
    assert_eq!(shelf.get("/none/").body, b"app");
}

#[test]
fn a_path_prefix_is_stripped() {
    let shelf = Shelf::new(&[("a.txt", b"a")], "strip_prefix = \"/static\"");
    assert_eq!(shelf.get("/static/a.txt").body, b"a");
    assert_eq!(shelf.status("/a.txt"), 404);
}

#[test]
fn precompressed_files_are_sent_to_clients_that_accept_them() {
    let shelf = Shelf::new(
        &[
            ("a.css", b"plain"),
            ("a.css.gz", b"gzipped"),
            ("a.css.br", b"brotli"),
        ],
        "precompressed = true\nrecheck = \"1ms\"",
    );
    for (accepted, body, coding) in [
        ("", &b"plain"[..], None),
        ("gzip", b"gzipped", Some("gzip")),
        ("gzip, br", b"brotli", Some("br")),
        ("gzip, br;q=0.5", b"gzipped", Some("gzip")),
        ("zstd", b"plain", None),
        ("identity, gzip;q=0.5", b"plain", None),
    ] {
        let reply = shelf.edge.get("/a.css", &[("Accept-Encoding", accepted)]);
        assert_eq!(
            (&reply.body[..], reply.header("content-encoding")),
            (body, coding),
            "{accepted}"
        );
        assert_eq!(
            reply.header("content-type"),
            Some("text/css; charset=utf-8")
        );
        assert_eq!(reply.header("vary"), Some("accept-encoding"), "{accepted}");
        let range = [("Accept-Encoding", accepted), ("Range", "bytes=1-2")];
        let part = shelf.edge.get("/a.css", &range);
        assert_eq!(
            (part.status, &part.body[..]),
            (206, &body[1..3]),
            "{accepted}"
        );
    }
    std::fs::remove_file(shelf.path("a.css.br")).expect("removed");
    eventually("without it", || {
        shelf
            .edge
            .get("/a.css", &[("Accept-Encoding", "gzip, br")])
            .body
            == b"gzipped"
    });
}

// The edge has one worker. While a read blocks on the disk, the worker must answer other requests.
#[test]
fn a_hanging_disk_does_not_block_other_requests() {
    let Some(disk) = slow_disk::paced(64 << 20, Pace::default()) else {
        return;
    };
    let content = large(8_000_000, 3);
    let folder = tempfile::tempdir_in(disk.path()).expect("a folder on the disk");
    let files = [
        ("small", &b"small"[..]),
        ("cold", b"cold"),
        ("film", &content),
    ];
    // With a long `recheck` the edge does not check the small file for changes while the disk
    // hangs.
    let shelf = Shelf::within(folder, &files, "recheck = \"1h\"");
    assert_eq!(shelf.get("/small").body, b"small");
    assert_eq!(shelf.status("/none"), 404);
    for name in ["cold", "film"] {
        forget_pages(&shelf.path(name));
    }
    disk.set_condition(Condition::Hang);
    let mut waiting = Vec::new();
    for target in ["/cold", "/film"] {
        let before = disk.in_flight();
        let mut client = shelf.edge.client();
        client
            .send("GET", target, &[("Host", "a")], b"")
            .expect("sent");
        eventually("the disk is asked", || disk.in_flight() > before);
        waiting.push(client);
    }
    for _ in 0..3 {
        assert_eq!(shelf.get("/small").body, b"small", "held in memory");
        assert_eq!(shelf.status("/none"), 404, "known to be absent");
    }
    disk.set_condition(Condition::Fine);
    for (mut client, expected) in waiting.into_iter().zip([&b"cold"[..], &content]) {
        let reply = client.read_response().expect("an answer");
        assert_eq!(reply.status, 200);
        assert!(reply.body == expected);
    }
}

// One client requests many files of a disk that hangs. Another client still gets its file as soon as
// the disk answers, and is not refused because all lookups are in use.
#[test]
fn one_client_leaves_lookups_for_others() {
    let Some(disk) = slow_disk::paced(64 << 20, Pace::default()) else {
        return;
    };
    let names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &b"cold"[..])).collect();
    let folder = tempfile::tempdir_in(disk.path()).expect("a folder on the disk");
    let shelf = Shelf::within(folder, &files, "");
    for name in &names {
        forget_pages(&shelf.path(name));
    }
    disk.set_condition(Condition::Hang);
    let greedy = |name: &String| {
        let source = IpAddr::from([127, 0, 0, 7]);
        let mut client = Client::connect_from(source, shelf.edge.http).expect("a connection");
        let target = format!("/{name}");
        client.send("GET", &target, &[], b"").expect("sent");
        client
    };
    let _many: Vec<Client> = names[..280].iter().map(greedy).collect();
    eventually("all are handled", || shelf.edge.counter("requests") == 280);
    let mut other = shelf.edge.client();
    other.send("GET", "/f299", &[], b"").expect("sent");
    eventually("it is handled", || shelf.edge.counter("requests") == 281);
    disk.set_condition(Condition::Fine);
    let reply = other.read_response().expect("an answer");
    assert_eq!((reply.status, reply.text().as_str()), (200, "cold"));
}

/// Removes the file's pages from the page cache, so that the next read goes to the disk.
fn forget_pages(path: &std::path::Path) {
    let file = std::fs::File::open(path).expect("it is there");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("taken");
}

// No file descriptor is left, so that no file can be opened. Small files whose content is in memory
// are served nevertheless.
#[test]
fn files_in_memory_are_served_when_descriptors_have_run_out() {
    let shelf = Shelf::new(&[("small", b"small")], "recheck = \"1ms\"");
    let mut client = shelf.edge.client();
    let mut get = |target: &str| {
        client
            .send("GET", target, &[("Host", "a")], b"")
            .expect("sent");
        client.read_response().expect("an answer")
    };
    assert_eq!(get("/small").body, b"small");
    let pid = Pid::from_raw(shelf.edge.process.pid().try_into().expect("a pid"));
    let limit = |most| {
        let old = prlimit(
            pid,
            Resource::Nofile,
            Rlimit {
                current: Some(most),
                maximum: getrlimit(Resource::Nofile).maximum,
            },
        );
        old.expect("it is ours").current.unwrap_or(1024)
    };
    let before = limit(3);
    assert_eq!(get("/other").status, 503, "nothing can be opened");
    for _ in 0..5 {
        assert_eq!(get("/small").body, b"small");
    }
    limit(before);
    replace(&shelf.path("small"), b"other");
    eventually("it is looked again", || get("/small").body == b"other");
}

#[test]
fn a_folder_can_be_served_by_a_command_line_option() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder.path().join("index.html"), b"<p>home");
    let path = folder.path().to_str().expect("a path in UTF-8");
    let options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let edge = Edge::with_options(&[&["--files", path][..], &options].concat());
    assert_eq!(edge.get("/", &[]).body, b"<p>home");
    let files = &edge.status()["files"][0];
    assert_eq!(files["root"], path);
    assert_eq!((&files["entries"], &files["open"]), (&1.into(), &0.into()));
    let shown = edge.command(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("1 path known, 0 open"), "{shown}");
}

#[test]
fn open_files_are_limited_and_reported() {
    let content = large(100_000, 0);
    let names: Vec<String> = (0..200).map(|n| format!("film{n}")).collect();
    let files: Vec<_> = names.iter().map(|name| (&**name, &content[..])).collect();
    let shelf = Shelf::new(&files, "open_files = 32");
    for name in &names {
        assert!(shelf.get(&format!("/{name}")).body == content);
    }
    let open = shelf.edge.status()["files"][0]["open"].as_u64();
    assert!((1..=32).contains(&open.expect("a number")), "{open:?}");
    assert!(shelf.edge.open_descriptors() < 100);
}
