//! Tests with wget: resumed downloads.

use std::fs;

use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::{Ending, Fault};

use crate::harness::{Setup, fresh, serving};
use crate::tools::{assert_sent_once, installed, run};

const FILE: u64 = 10 << 20;

#[test]
fn wget_resumes_a_download() {
    if !installed(&["wget"]) {
        return;
    }
    let origin = serving("/file", fresh(FILE));
    let edge = Setup::cached(&origin).start();
    let url = format!("http://{}/file", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("file"), offset_bytes(0, 7_654_321)).expect("a file");
    // In the second round the file is complete already: wget requests the range after its end, and
    // receives a 416.
    for _ in 0..2 {
        run(folder.path(), "wget", &["-q", "-c", "--tries=1", &url]);
        let whole = fs::read(folder.path().join("file")).expect("the file");
        assert_eq!(whole.len() as u64, FILE);
        verify_offset(0, &whole).expect("the right bytes");
    }
    assert_sent_once(&origin, &edge, FILE);
}

// The edge makes the truncation visible by closing the connection early. Therefore wget requests
// the rest of the file.
#[test]
fn wget_notices_a_truncated_body() {
    if !installed(&["wget"]) {
        return;
    }
    let cut = Fault::CutBody {
        after: 4_000_000,
        ending: Ending::Reset,
    };
    let origin = serving("/file", fresh(FILE).ranges(false).fault_times(1, cut));
    let edge = Setup::cached(&origin).start();
    let url = format!("http://{}/file", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    run(
        folder.path(),
        "wget",
        &["-q", "--tries=3", "--waitretry=0", &url],
    );
    let whole = fs::read(folder.path().join("file")).expect("the file");
    assert_eq!(whole.len() as u64, FILE);
    verify_offset(0, &whole).expect("the right bytes");
    assert_eq!(origin.requests().len(), 2);
}
