//! Tests of static files that change: validators, checks for changes, and files replaced or
//! overwritten while they are sent.

use std::io::Write;

use crate::files::{Shelf, large, replace, write};
use crate::harness::eventually;

// Two files have the same length and modification time. Their entity tags must differ.
#[test]
fn validators_are_strong() {
    let contents = [
        large(1000, 1),
        large(1000, 2),
        large(200_000, 1),
        large(200_000, 2),
    ];
    let names = ["a", "b", "c", "d"];
    let files: Vec<_> = names
        .iter()
        .zip(&contents)
        .map(|(n, c)| (*n, &**c))
        .collect();
    let shelf = Shelf::new(&files, "");
    let year = std::time::Duration::from_secs(365 * 24 * 3600);
    let times = [
        std::time::SystemTime::UNIX_EPOCH + year,
        std::time::SystemTime::now() + year,
    ];
    for (name, time) in names.iter().zip([times[0], times[0], times[0], times[1]]) {
        let file = std::fs::File::options().write(true).open(shelf.path(name));
        file.expect("opened").set_modified(time).expect("set");
    }
    let replies = names.map(|name| shelf.get(&format!("/{name}")));
    assert_ne!(replies[0].header("etag"), replies[1].header("etag"));
    assert_ne!(replies[2].header("etag"), replies[3].header("etag"));
    let modified = replies[0].header("last-modified").expect("it is said");
    assert_eq!(replies[3].header("last-modified"), None, "still to come");
    let etag = replies[0].header("etag").expect("it is said");
    for (validator, status) in [(modified, 200), (etag, 206)] {
        let headers = [("Range", "bytes=0-9"), ("If-Range", validator)];
        assert_eq!(shelf.edge.get("/a", &headers).status, status, "{validator}");
    }
}

#[test]
fn changed_files_are_noticed() {
    let shelf = Shelf::new(
        &[("small", b"one"), ("large", &large(200_000, 1))],
        "recheck = \"1ms\"",
    );
    for (path, first, second) in [
        ("small", b"one".to_vec(), b"two".to_vec()),
        ("large", large(200_000, 1), large(200_000, 2)),
    ] {
        let target = format!("/{path}");
        let before = shelf.get(&target);
        assert!(before.body == first);
        replace(&shelf.path(path), &second);
        eventually("the new one", || shelf.get(&target).body == second);
        let etag = before.header("etag").expect("a validator").to_owned();
        let after = shelf.edge.get(&target, &[("If-None-Match", &etag)]);
        assert_eq!(after.status, 200, "another entity tag");
        std::fs::remove_file(shelf.path(path)).expect("removed");
        eventually("it is gone", || shelf.status(&target) == 404);
        write(&shelf.path(path), &first);
        eventually("it is back", || shelf.get(&target).body == first);
    }
}

// A client requests files before they exist, such as the next segment of a live video. Once they
// exist, no client gets the 404 that was correct before.
#[test]
fn a_request_for_a_missing_file_does_not_hide_it_later() {
    let keys =
        "recheck = \"1h\"\ntry_files = [\"{path}.html\", \"/app\"]\nindex = [\"index.html\"]";
    let shelf = Shelf::new(&[("app", b"app"), ("live/1.ts", b"1")], keys);
    for (target, name) in [
        ("/live/2.ts", "live/2.ts"),
        ("/page", "page.html"),
        ("/live/", "live/index.html"),
        ("/new/folder/x", "new/folder/x"),
    ] {
        for _ in 0..2 {
            assert_eq!(shelf.get(target).body, b"app", "{target}");
        }
        let path = shelf.path(name);
        write(&path, b"new");
        assert_eq!(shelf.get(target).body, b"new", "{target}");
        assert_eq!(shelf.get(target).body, b"new", "{target}");
    }
    let strict = Shelf::new(&[("a", b"a")], "recheck = \"1h\"");
    assert_eq!(strict.status("/b"), 404);
    replace(&strict.path("b"), b"b");
    assert_eq!(strict.get("/b").body, b"b");
}

// A file is replaced by another one while it is sent: the old file is sent completely. A file is
// overwritten in place: the response is cut off.
#[test]
fn versions_are_never_mixed() {
    let (first, second) = (large(12_000_000, 1), large(12_000_000, 2));
    for how in ["replaced", "emptied", "overwritten"] {
        let shelf = Shelf::new(&[("large", &first)], "recheck = \"1ms\"");
        let mut client = shelf.edge.slow_reader();
        client
            .send("GET", "/large", &[("Host", "a")], b"")
            .expect("sent");
        let head = client.read_head().expect("a head");
        assert_eq!(head.status, 200);
        match how {
            "replaced" => replace(&shelf.path("large"), &second),
            "emptied" => write(&shelf.path("large"), &second),
            _ => {
                let file = std::fs::File::options()
                    .write(true)
                    .open(shelf.path("large"));
                file.expect("it is there")
                    .write_all(&second)
                    .expect("written");
            }
        }
        eventually("the new one", || shelf.get("/large").body == second);
        let body = client.read_to_end();
        match how {
            "replaced" => assert!(body.expect("an end") == first),
            _ => assert!(
                body.is_ok_and(|body| body.len() < first.len()),
                "it was cut"
            ),
        }
    }
}
