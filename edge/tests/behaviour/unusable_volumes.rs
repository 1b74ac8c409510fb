//! Tests of unusable volumes: with foreign content, in use by another process, missing, or
//! truncated while the program runs. A refused volume is not modified. A failed volume is reported
//! and tried again, while requests are served from the other volumes and the origin.

use std::fs::{self, OpenOptions};
use std::process::Command;

use crate::disks::{
    Disks, ENDS, End, File, MIB, again, end, fill, is_hit, number_of, settled, shelf, start,
    volume, volumes, without_origin, written,
};
use crate::harness::{Edge, Setup, eventually};

fn is(edge: &Edge, number: usize, state: &str) -> bool {
    volume(edge, number)["state"] == state
}

/// Asserts that the program refuses to start, and that its message has the path of the volume and
/// these words.
fn assert_refused(setup: &Setup, disks: &Disks, words: &[&str]) {
    let said = setup.refused();
    let path = disks.path(1);
    assert!(said.contains(path.to_str().expect("UTF-8")), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

// The file has content that is not a volume. The program refuses it with a clear message, and
// overwrites it only if the configuration permits that.
#[test]
fn foreign_content_is_overwritten_only_if_configured() {
    let foreign: [Vec<u8>; 4] = [
        b"a letter to somebody\n".to_vec(),
        vec![7; 20 << 20],
        vec![7; 4096],
        vec![0xff; 300_000],
    ];
    for content in foreign {
        let origin = shelf();
        let disks = Disks::in_memory(1);
        let setup = disks.setup(&origin);
        fs::write(disks.path(1), &content).expect("a file");
        assert_refused(&setup, &disks, &["overwrite"]);
        let after = fs::read(disks.path(1)).expect("the file");
        assert!(after == content, "it was touched");
        let disks = disks.each("overwrite = true");
        let setup = disks.setup(&origin);
        let mut edge = start(&setup);
        let file = File::new(1, 20_000);
        file.get(&edge);
        written(&edge, 1);
        assert!(disks.taken(1).0 <= disks.size());
        // The setting permits overwriting of foreign content only. On the next starts, the volume
        // is kept.
        for how in ENDS {
            edge = again(edge, how, &setup);
            without_origin(&origin, "stored", || file.assert_stored(&edge));
        }
    }
}

#[test]
fn an_empty_file_becomes_a_volume() {
    let origin = shelf();
    let disks = Disks::new(1);
    fs::write(disks.path(1), b"").expect("a file");
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let file = File::new(1, 20_000);
    file.get(&edge);
    written(&edge, 1);
    let edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || file.assert_stored(&edge));
}

// The path leads to a folder, a pipe or a similar file. The program refuses it without waiting for
// it.
#[test]
fn a_path_that_is_no_file_is_refused() {
    let origin = shelf();
    for kind in ["folder", "pipe", "socket"] {
        let disks = Disks::new(1);
        let path = disks.path(1);
        let mut listener = None;
        match kind {
            "folder" => fs::create_dir(&path).expect("a folder"),
            "pipe" => {
                let made = Command::new("mkfifo").arg(&path).status();
                assert!(made.expect("mkfifo").success());
            }
            _ => listener = std::os::unix::net::UnixListener::bind(&path).ok(),
        }
        assert_refused(&disks.setup(&origin), &disks, &[]);
        let overwriting = disks.each("overwrite = true");
        assert_refused(&overwriting.setup(&origin), &overwriting, &[]);
        drop(listener);
    }
}

// Both superblocks of the volume are overwritten, so the file counts as foreign content.
#[test]
fn a_volume_without_its_superblocks_is_refused() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    File::new(1, 20_000).get(&edge);
    written(&edge, 1);
    end(edge, End::Stopped);
    let mut content = fs::read(disks.path(1)).expect("the volume");
    content[..8192].fill(b'x');
    fs::write(disks.path(1), &content).expect("the volume");
    assert_refused(&setup, &disks, &["overwrite"]);
    assert!(fs::read(disks.path(1)).expect("the volume") == content);
    let setup = Setup::of_text(
        setup
            .text()
            .replace("[volume.disk1]\n", "[volume.disk1]\noverwrite = true\n"),
    );
    let edge = start(&setup);
    assert_eq!(number_of(&edge, 1, "records"), 0);
    assert!(!is_hit(&File::new(1, 20_000).get(&edge)));
}

// The program locks the volume's file. A second process that opens the volume is refused.
#[test]
fn a_volume_is_used_by_one_process() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let file = File::new(1, 20_000);
    file.get(&edge);
    written(&edge, 1);
    assert_refused(&setup, &disks, &[]);
    let overwriting = setup
        .text()
        .replace("[volume.disk1]\n", "[volume.disk1]\noverwrite = true\n");
    assert_refused(&Setup::of_text(overwriting), &disks, &[]);
    file.assert_stored(&edge);
    let edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || file.assert_stored(&edge));
}

// The path of a volume does not exist. The edge serves without the volume and reports it. Once the
// path exists, the volume is used.
#[test]
fn a_missing_volume_is_reported_and_used_once_it_exists() {
    let origin = shelf();
    let disks = Disks::new(1).each("retry = \"100ms\"");
    let setup = Setup::of_text(disks.setup(&origin).text().replace("/1.vol", "/sub/1.vol"));
    let edge = setup.start();
    let file = File::new(1, 20_000);
    file.get(&edge);
    file.assert_stored(&edge);
    let shown = volume(&edge, 1);
    assert_eq!(shown["state"], "out", "{shown}");
    let why = shown["why"].as_str().expect("why");
    assert!(!why.is_empty(), "{shown}");
    let said = edge.process.stderr();
    assert!(said.contains("/sub/1.vol"), "{said}");
    let output = edge.command(&["status"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("disk1") && said.contains("out"), "{said}");
    fs::create_dir(disks.path(1).with_file_name("sub")).expect("a folder");
    eventually("it is taken up", || is(&edge, 1, "up"));
    let other = File::new(2, 20_000);
    other.get(&edge);
    eventually("it is written", || number_of(&edge, 1, "records") >= 1);
    let edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || other.assert_stored(&edge));
}

// A file with foreign content appears at the path while the program runs. It must not be
// overwritten.
#[test]
fn foreign_content_that_appears_at_runtime_is_not_overwritten() {
    let origin = shelf();
    let disks = Disks::in_memory(1).each("retry = \"100ms\"");
    let setup = Setup::of_text(disks.setup(&origin).text().replace("/1.vol", "/sub/1.vol"));
    let edge = setup.start();
    eventually("it is shown to be out", || is(&edge, 1, "out"));
    let folder = disks.path(1).with_file_name("sub");
    let aside = disks.path(1).with_file_name("aside");
    fs::create_dir(&aside).expect("a folder");
    fs::write(aside.join("1.vol"), b"a letter\n").expect("a file");
    fs::rename(&aside, &folder).expect("moved");
    eventually("it says what lies there", || {
        let why = volume(&edge, 1)["why"].to_string();
        why.contains("overwrite")
    });
    File::new(1, 5000).get(&edge);
    let content = fs::read(folder.join("1.vol")).expect("the file");
    assert_eq!(content, b"a letter\n");
}

// The volume's file is truncated while the program runs. Every response must be right, and the
// volume starts again without records.
#[test]
fn a_file_truncated_at_runtime_serves_nothing_wrong() {
    let origin = shelf();
    for left in [0, 8192, 5 * MIB + 1000] {
        let mut edge = Disks::new(1)
            .each("retry = \"100ms\"")
            .start_with(&origin, "memory = \"8MiB\"");
        let files = [File::row(0, 100, 20_000), File::row(200, 20, 400_000)].concat();
        fill(&edge, &files);
        let file = OpenOptions::new().write(true).open(edge.disks.path(1));
        file.and_then(|file| file.set_len(left)).expect("cut");
        for _ in 0..2 {
            files.iter().for_each(|file| drop(file.get(&edge)));
        }
        assert_eq!(edge.counter("responses_5xx"), 0);
        eventually("it is whole again", || {
            files[0].get(&edge);
            files[119].get(&edge);
            is(&edge, 1, "up") && edge.disks.taken(1).0 == number_of(&edge, 1, "size")
        });
        assert!(
            number_of(&edge, 1, "errors") > 0,
            "{left}: that was counted"
        );
        fill(&edge, &files);
        edge.restart(End::Killed);
        files.iter().for_each(|file| drop(file.get(&edge)));
        assert!(edge.disks.taken(1).1 <= edge.disks.size());
    }
}

// The volume's file is removed while the program runs, which continues to use the open file. After
// a restart the volume has no records.
#[test]
fn a_file_removed_at_runtime_does_no_harm() {
    let origin = shelf();
    let mut edge = Disks::new(1).start_with(&origin, "memory = \"8MiB\"");
    let files = File::row(0, 40, 300_000);
    fill(&edge, &files);
    fs::remove_file(edge.disks.path(1)).expect("it was there");
    fill(&edge, &files);
    edge.restart(End::Stopped);
    fill(&edge, &files[..10]);
    edge.restart(End::Stopped);
    without_origin(&origin, "stored", || {
        files[..10]
            .iter()
            .for_each(|file| file.assert_stored(&edge));
    });
}

// The length of the volume's file was changed while the program was stopped.
#[test]
fn a_file_of_another_length_serves_nothing_wrong() {
    let origin = shelf();
    for length in [100, 8192, 9 * MIB + 77, 40 * MIB] {
        let disks = Disks::in_memory(1);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        let files = File::row(0, 60, 100_000);
        fill(&edge, &files);
        end(edge, End::Killed);
        let file = OpenOptions::new().write(true).open(disks.path(1));
        file.and_then(|file| file.set_len(length)).expect("resized");
        let overwriting = setup
            .text()
            .replace("[volume.disk1]\n", "[volume.disk1]\noverwrite = true\n");
        let edge = start(&Setup::of_text(overwriting));
        fill(&edge, &files);
        let (len, taken) = disks.taken(1);
        assert_eq!(len, number_of(&edge, 1, "size"), "{length}");
        assert!(taken <= disks.size(), "{length}");
        without_origin(&origin, "fetched again", || {
            files
                .iter()
                .rev()
                .take(30)
                .for_each(|file| file.assert_stored(&edge));
        });
    }
}

#[test]
fn a_volume_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let origin = shelf();
    let disks = Disks::new(1);
    let edge = start(&disks.setup(&origin));
    let mode = fs::metadata(disks.path(1))
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    assert_eq!(volumes(&edge).len(), 1);
    settled(&edge);
}
