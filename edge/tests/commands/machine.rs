//! Tests of messages about the machine: the admin address, kernel settings, permissions, memory and
//! ports.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Edge, SERVED, sluice, text, write};

#[test]
fn an_address_that_is_no_admin_address_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n?");
        }
    });
    for command in [
        &["status"][..],
        &["reload"],
        &["purge", "--all"],
        &["inspect", "http://a/"],
    ] {
        let output = sluice(folder.path(), &[command, &["--admin", &address]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        let title = format!("error: {address} answered 404 and is no admin address");
        assert!(
            said.starts_with(&title) && said.contains("= help: "),
            "{said}"
        );
    }
}

#[test]
fn status_says_why_connections_were_closed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let output = sluice(folder.path(), &["status", "--admin", &edge.admin]);
    let said = text(&output.stdout);
    assert!(
        said.contains(" 0 idle ones closed to make room\n"),
        "{said}"
    );
}

#[test]
fn strict_checks_of_the_system_fail_if_settings_are_to_be_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(folder.path(), &["check", "--system"]);
    assert!(output.status.success());
    let is_good = text(&output.stdout).ends_with("nothing to change\n");
    let output = sluice(folder.path(), &["check", "--system", "--strict"]);
    assert_eq!(output.status.success(), is_good);
    let said = text(&output.stderr);
    assert!(is_good || said.contains(" to change\n"), "{said}");
}

/// Returns a configuration for the user 65534 whose paths lead into a folder of root.
fn of_another_user(more: &str) -> String {
    format!("[server]\nuser = \"65534:65534\"\n{more}")
        .replace("[server]", &format!("{FREE}[server]"))
}

const FREE: &str = "listen = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n";
const VOLUME: &str = "[volume.d]\npath = \"own/volume\"\nsize = \"64MiB\"\n[cache.a]\nvolumes = \"d\"\n\
                      [[route]]\nproxy = \"http://127.0.0.1:9\"\ncache = \"a\"\n";

/// Creates a folder `own` that only root may use, in a folder that all may use.
fn folder_of_root() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a folder");
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("our own");
    };
    mode(&own, 0o700);
    mode(folder.path(), 0o755);
    folder
}

#[test]
fn check_and_serve_report_missing_permissions_of_the_configured_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder_of_root();
    for part in [
        "[log]\naccess = \"own/a.log\"\n[[route]]\nrespond = \"x\"\n",
        "[log]\nerror = \"own/e.log\"\n[[route]]\nrespond = \"x\"\n",
        "[[route]]\nfiles = \"own\"\n",
    ] {
        write(folder.path(), &of_another_user(part));
        for command in ["check", "serve"] {
            let output = sluice(folder.path(), &[command]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.starts_with("error: this "), "{said}");
            assert!(said.contains("permission denied for 65534:65534"), "{said}");
            assert!(
                said.contains("--> sluice.toml:") && said.contains("= help: "),
                "{said}"
            );
        }
    }
}

#[test]
fn a_volume_without_permission_is_out_of_use() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder_of_root();
    write(folder.path(), &of_another_user(VOLUME));
    let output = sluice(folder.path(), &["check"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.starts_with("warning: volume `d` can't be opened"),
        "{said}"
    );
    assert!(said.contains("permission denied for 65534:65534"), "{said}");
    assert!(
        said.contains("--> sluice.toml:") && said.contains("out of use"),
        "{said}"
    );
    let edge = Edge::start(folder.path(), &[], &["serve"]);
    let status = text(&sluice(folder.path(), &["status", "--admin", &edge.admin]).stdout);
    assert!(
        status.contains("volume d is out: own/volume can't be "),
        "{status}"
    );
}

#[test]
fn a_reload_reports_folders_and_logs_that_cannot_be_used_with_their_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let route = "[[site.route]]\npath = \"/files/*\"\nfiles = \"none\"\n";
    let log = "[log]\naccess = \"none/a.log\"\n";
    for (more, title, line) in [
        (route, "error: can't serve none", 18),
        (log, "error: can't write the access log", 17),
    ] {
        write(folder.path(), &format!("{SERVED}{more}"));
        let output = sluice(folder.path(), &["reload", "--admin", &edge.admin]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(title) && said.contains("create the folder"),
            "{said}"
        );
        assert!(said.contains(&format!("--> sluice.toml:{line}:")), "{said}");
    }
}

#[test]
fn caches_that_are_larger_than_the_memory_of_the_machine_are_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), &SERVED.replace("16MiB", "1TiB"));
    let output = sluice(folder.path(), &["check"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("`memory` is more than this machine has"),
        "{said}"
    );
    assert!(said.contains("1 TiB, of "), "{said}");
}

#[test]
fn a_volume_in_use_is_reported_with_its_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("own")).expect("a folder");
    write(folder.path(), &format!("{FREE}{VOLUME}"));
    let edge = Edge::start(folder.path(), &[], &["serve"]);
    let output = sluice(folder.path(), &["serve"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let owner = format!(
        "own/volume is in use by sluice (process {}): ",
        edge.process.id()
    );
    assert!(said.contains(&owner), "{said}");
    assert!(said.contains("--> sluice.toml:"), "{said}");
}

#[test]
fn a_port_of_a_sluice_with_another_configuration_is_noticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let other = tempfile::tempdir().expect("a temporary folder");
    write(
        other.path(),
        &format!(
            "listen = {:?}\n[admin]\naddress = false\n[[route]]\nrespond = \"x\"\n",
            edge.admin
        ),
    );
    let output = sluice(other.path(), &["check"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let label = format!(
        "sluice (process {}) with the configuration ",
        edge.process.id()
    );
    assert!(
        said.contains("another program listens on this port"),
        "{said}"
    );
    assert!(said.contains(&label), "{said}");
}
