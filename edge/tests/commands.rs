//! The real program: what `check`, `serve`, `reload` and `status` say when there is nothing to run or to ask.

use std::path::Path;
use std::process::{Command, Output};

fn sluice(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(folder: &Path, text: &str) {
    std::fs::write(folder.join("sluice.toml"), text).expect("a temporary folder can be written");
}

const GOOD: &str = "
[cache.spare]
[upstream.origin]
servers = [\"http://10.0.0.1:9000\"]
[[site]]
[[site.route]]
proxy = \"origin\"
";

#[test]
fn check_says_what_would_run_and_what_is_doubtful() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), GOOD);
    let output = sluice(folder.path(), &["check"]);
    assert!(output.status.success());
    let said = text(&output.stdout);
    assert!(
        said.contains("listening on http://0.0.0.0:8080\n"),
        "{said}"
    );
    assert!(
        said.contains("  everything -> upstream origin, not cached\n"),
        "{said}"
    );
    let doubts = text(&output.stderr);
    assert!(
        doubts.starts_with("warning: cache `spare` is not used"),
        "{doubts}"
    );
}

#[test]
fn a_wrong_file_is_shown_and_nothing_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(
        folder.path(),
        &GOOD.replace("proxy = \"origin\"", "proxy = \"orgin\""),
    );
    for command in ["check", "serve"] {
        let output = sluice(folder.path(), &[command, "-c", "sluice.toml"]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("--> sluice.toml:7:9\n"), "{said}");
        assert!(said.contains("help: did you mean `origin`?"), "{said}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn options_are_checked_like_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(
        folder.path(),
        &["serve", "--origin", "ftp://a", "--memory", "1KiB"],
    );
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("`http://` is missing") && said.contains("`memory` is out of bounds"),
        "{said}"
    );
    for arguments in [
        &["serve"][..],
        &["serve", "-c", "sluice.toml", "--origin", "http://a"],
        &["demo", "--rate", "1"],
    ] {
        assert_eq!(
            sluice(folder.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
}

#[test]
fn where_no_edge_runs_it_is_said_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Port 1 of a loopback address that nothing is bound to refuses connections.
    let address = "127.99.0.1:1";
    for command in ["status", "reload"] {
        let output = sluice(folder.path(), &[command, "--admin", address]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("error: no edge answers at {address}")),
            "{said}"
        );
    }
}
