//! Tests of switching the user and of the Landlock sandbox. Both apply to every thread. Error
//! messages name the forbidden operation.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::process::{Signal, geteuid};
use sluice_lab::origin::Origin;
use tempfile::TempDir;

use crate::harness::{Edge, Setup, eventually, fresh, serving};

/// Id of the user that the tests switch to, usually `nobody`.
const NOBODY: u32 = 65534;

/// Creates the folders `www`, `logs` and `other`. `www` has a file, and a symlink to a file in
/// `other`.
fn folders() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    for name in ["www", "logs", "other"] {
        fs::create_dir(at.join(name)).expect("made");
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(at.join(name), mode).expect("root or its owner");
    }
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("its owner");
    fs::write(at.join("www/a.txt"), "served").expect("written");
    fs::write(at.join("other/secret"), "secret").expect("written");
    symlink(at.join("other/secret"), at.join("www/link")).expect("linked");
    folder
}

/// Returns a configuration that serves `www` below `/files/` and everything else from an origin,
/// with a cache on a volume. Logs are written to `logs`.
fn configuration(at: &Path, server: &str, origin: &Origin) -> String {
    let (www, logs) = (at.join("www"), at.join("logs"));
    let (access, error) = (logs.join("access.log"), logs.join("error.log"));
    let volume = logs.join("disk.vol");
    // The origin is configured by a host name, so that the edge has to resolve it.
    let servers = origin.url("").replace("127.0.0.1", "localhost");
    format!(
        "[server]\nworkers = 2\n{server}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n\
         [log]\naccess = {access:?}\nerror = {error:?}\nformat = \"json\"\nflush = \"10ms\"\n\
         [upstream.origin]\nservers = [{servers:?}]\n\
         [volume.disk]\npath = {volume:?}\nsize = \"16MiB\"\nqueue = \"1MiB\"\n\
         [cache.main]\nvolumes = [\"disk\"]\n\
         [[site]]\n[[site.route]]\npath = \"/files/*\"\n\
         files = {{ root = {www:?}, strip_prefix = \"/files\", symlinks = \"any\" }}\n\
         [[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n"
    )
}

/// Returns the line of `/proc/PID/task/TID/status` with this name for each thread.
fn of_threads(edge: &Edge, name: &str) -> Vec<String> {
    let tasks = format!("/proc/{}/task", edge.process.pid());
    let tasks = fs::read_dir(tasks).expect("the process is there");
    let status = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    tasks.filter_map(|task| status(task.ok()?)).collect()
}

fn assert_all_threads(edge: &Edge, name: &str, wanted: &str) {
    let threads = of_threads(edge, name);
    assert!(threads.len() > 6, "{threads:?}");
    assert!(
        threads.iter().all(|line| line == wanted),
        "{name} {threads:?}"
    );
}

// setgroups, setgid and setuid apply to all threads. Afterwards logs can still be reopened.
#[test]
fn every_thread_runs_as_the_other_user() {
    let (folder, origin) = (folders(), serving("/x", fresh(1000)));
    // If the kernel supports the sandbox, it is on by default, and in force in this test.
    let user = format!("user = \"{NOBODY}:{NOBODY}\"");
    let setup = Setup::of_text(configuration(folder.path(), &user, &origin));
    if !geteuid().is_root() {
        let said = setup.refused();
        assert!(
            said.contains("only root can switch to another user"),
            "{said}"
        );
        return;
    }
    let edge = setup.start();
    assert_eq!(edge.get("/files/a.txt", &[]).text(), "served");
    edge.get("/x", &[]).verify_whole(1000).expect("whole");
    let id = NOBODY.to_string();
    for (name, wanted) in [
        ("Uid:", [&*id; 4].join(" ")),
        ("Gid:", [&*id; 4].join(" ")),
        ("Groups:", id.clone()),
        ("NoNewPrivs:", "1".to_owned()),
        ("CapEff:", "0000000000000000".to_owned()),
        ("CapPrm:", "0000000000000000".to_owned()),
    ] {
        assert_all_threads(&edge, name, &wanted);
    }
    let log = folder.path().join("logs/access.log");
    fs::rename(&log, folder.path().join("logs/old.log")).expect("moved");
    edge.signal(Signal::USR1);
    eventually("a new log", || log.exists());
}

#[test]
fn missing_permissions_of_the_user_are_reported_at_start() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let logs = folder.path().join("logs");
    if !geteuid().is_root() {
        return;
    }
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o755)).expect("it is ours");
    chown(&logs, Some(0), Some(0)).expect("root may");
    let start = |user: &str| {
        let server = format!("user = \"{user}\"\nsandbox = false");
        Setup::of_text(configuration(folder.path(), &server, &origin)).refused()
    };
    let said = start(&format!("{NOBODY}:{NOBODY}"));
    assert!(said.contains("error.log"), "{said}");
    assert!(said.contains("permission denied for 65534:65534"), "{said}");
    let said = start("no-such-user-here");
    assert!(said.contains("unknown user no-such-user-here"), "{said}");
}

// A symlink leads out of the served folder. In the sandbox a request for it fails, and without the
// sandbox it is served. All else works in both cases.
#[test]
fn in_the_sandbox_only_configured_folders_can_be_read() {
    let (folder, origin) = (folders(), serving("/x", fresh(1000)));
    for (confine, status) in [("false", 200), ("true", 403)] {
        let server = format!("sandbox = {confine}");
        let edge = Setup::of_text(configuration(folder.path(), &server, &origin)).start();
        assert_eq!(edge.get("/files/a.txt", &[]).text(), "served");
        edge.get("/x", &[]).verify_whole(1000).expect("whole");
        let linked = edge.get("/files/link", &[]);
        assert_eq!(linked.status, status, "sandbox = {confine}");
        if confine == "true" {
            assert_all_threads(&edge, "NoNewPrivs:", "1");
            assert!(edge.counter("responses_4xx") > 0);
            let log = folder.path().join("logs/access.log");
            eventually("its reason", || {
                let text = fs::read_to_string(&log).unwrap_or_default();
                text.contains("\"file-denied\"")
            });
        }
    }
}

/// Reloads a configuration with another access log. Returns the message, and whether the reload
/// succeeded.
fn reload_with_log(edge: &Edge, text: &str, at: &Path, log: &str) -> (bool, String) {
    let (old, new) = (at.join("logs/access.log"), at.join(log));
    edge.rewrite(&text.replace(&format!("{old:?}"), &format!("{new:?}")));
    let output = edge.command(&["reload"]);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

// The access log's path leads through a symlink into a served folder, where the file modes permit
// writing. In the sandbox the log can't be created there; without the sandbox it can.
#[test]
fn in_the_sandbox_nothing_is_written_to_a_served_folder() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let at = folder.path();
    let written = at.join("www/written");
    symlink(&written, at.join("logs/trap.log")).expect("linked");
    for (confine, done) in [("true", false), ("false", true)] {
        let text = configuration(at, &format!("sandbox = {confine}"), &origin);
        let edge = Setup::of_text(text.clone()).start();
        let (reloaded, said) = reload_with_log(&edge, &text, at, "logs/trap.log");
        assert_eq!(reloaded, done, "sandbox = {confine}: {said}");
        assert_eq!(written.exists(), done, "sandbox = {confine}");
        assert!(done || said.contains("ermission denied"), "{said}");
    }
}

#[test]
fn in_the_sandbox_a_reload_reports_what_needs_a_restart() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let at = folder.path();
    let text = configuration(at, "sandbox = true", &origin);
    let edge = Setup::of_text(text.clone()).start();
    let (reloaded, said) = reload_with_log(&edge, &text, at, "other/access.log");
    assert!(!reloaded);
    assert!(said.contains("this change needs a restart"), "{said}");
    let other = at.join("other").display().to_string();
    assert!(
        said.contains("`sandbox`") && said.contains(&other),
        "{said}"
    );
    let (reloaded, said) = reload_with_log(&edge, &text, at, "logs/second.log");
    assert!(reloaded, "{said}");
    edge.get("/x", &[]);
    let second = at.join("logs/second.log");
    eventually("a line in the new log", || {
        fs::read_to_string(&second)
            .unwrap_or_default()
            .contains("\"/x\"")
    });
    edge.rewrite(&text.replace("sandbox = true", "sandbox = false"));
    let output = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("`sandbox` in [server] needs a restart"),
        "{said}"
    );
}

// In the sandbox, a reload can still read the files with the keys of signed URLs and with error
// pages.
#[test]
fn in_the_sandbox_keys_and_pages_can_be_reloaded() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let at = folder.path();
    fs::create_dir(at.join("pages")).expect("made");
    let (key, page) = (at.join("other/url.key"), at.join("pages/404.html"));
    fs::write(&key, "a-secret-of-enough-bytes\n").expect("written");
    fs::write(&page, "none").expect("written");
    let text = configuration(at, "sandbox = true", &origin);
    let signed = format!(
        "[[site.route]]\npath = \"/signed/*\"\nfiles = {:?}\nsigned_urls = {{ key_files = [{key:?}] }}\n",
        at.join("www")
    );
    let pages = format!("[[site]]\nerror_pages = {{ 404 = {page:?} }}\n{signed}");
    let text = text.replacen("[[site]]\n", &pages, 1);
    let edge = Setup::of_text(text.clone()).start();
    assert_eq!(edge.get("/files/none", &[]).text(), "none");
    fs::write(&page, "nothing").expect("written");
    let (reloaded, said) = reload_with_log(&edge, &text, at, "logs/second.log");
    assert!(reloaded, "{said}");
    assert_eq!(edge.get("/files/none", &[]).text(), "nothing");
}

// Resolving a name needs files such as `/etc/resolv.conf`. If the configuration had no host name at
// the start, the sandbox forbids reading them.
#[test]
fn in_the_sandbox_the_first_host_name_needs_a_restart() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let at = folder.path();
    let with_name = configuration(at, "sandbox = true", &origin);
    let edge = Setup::of_text(with_name.replace("localhost", "127.0.0.1")).start();
    let (reloaded, said) = reload_with_log(&edge, &with_name, at, "logs/access.log");
    assert!(!reloaded, "{said}");
    assert!(said.contains("the files for name resolution"), "{said}");
}

// A log may be a named pipe. If no process reads from it, the program refuses it, and does not
// wait.
#[test]
fn a_log_that_is_a_pipe_needs_a_reader() {
    let (folder, origin) = (folders(), serving("/x", fresh(10)));
    let at = folder.path();
    let pipe = at.join("logs/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("coreutils").success());
    let text = configuration(at, "", &origin);
    let edge = Setup::of_text(text.clone()).start();
    let (reloaded, said) = reload_with_log(&edge, &text, at, "logs/pipe");
    assert!(
        !reloaded && said.contains("no process reads from this pipe"),
        "{said}"
    );
}
