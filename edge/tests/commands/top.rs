//! Tests of `sluice top`, in a pseudo-terminal and without a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{Edge, SERVED, sluice, text, write};

/// Time limit for steps that usually take far less.
const SOON: Duration = Duration::from_secs(60);
/// Control sequences that begin and end a screen of its own.
const SCREEN: [&str; 2] = ["\x1b[?1049h", "\x1b[?1049l"];

fn edge(folder: &Path) -> Edge {
    write(folder, SERVED);
    Edge::serve(folder)
}

#[test]
fn one_snapshot_is_printed_without_a_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let edge = edge(folder.path());
    let top = |options: &[&str]| {
        let arguments = [&["top", "--admin", &edge.admin], options].concat();
        let output = sluice(folder.path(), &arguments);
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, said, errors) = top(&["--once"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        said.starts_with("sluice ") && said.contains(&edge.admin),
        "{said}"
    );
    for part in [
        "\nrequests ",
        "\ncache ",
        "main ",
        "10.0.0.1:9000  origin ",
        "\nworker ",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let (code, said, errors) = top(&["--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let shown: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(shown["pid"], edge.process.id());
    assert_eq!(shown["traffic"]["requests_per_s"], 0.0);
    assert_eq!(shown["servers"][0]["address"], "10.0.0.1:9000");
    assert_eq!(shown["caches"][0]["memory_limit_bytes"], 16 << 20);
    assert_eq!(shown["workers"].as_array().map(Vec::len), Some(1));
    let (code, said, errors) = top(&[]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(
        errors.contains("not a terminal") && errors.contains("--once"),
        "{errors}"
    );
}

#[test]
fn a_wrong_address_is_an_error_before_the_screen_changes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut top = Terminal::start(folder.path(), &["--admin", "127.99.0.1:1"], &[]);
    let ended = top.wait_exit();
    assert_eq!(ended.code(), Some(1));
    top.wait_for("no Sluice answers at 127.99.0.1:1");
    assert!(!top.seen.contains(SCREEN[0]), "{}", top.seen);
}

/// `sluice top` in a pseudo-terminal. Killed on drop.
struct Terminal {
    process: Child,
    controller: File,
    /// The side of the program, which keeps the settings of the terminal.
    user: OwnedFd,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(folder: &Path, options: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let (controller, user) = pair();
        let side = || Stdio::from(user.try_clone().expect("a descriptor"));
        // The pseudo-terminal becomes the controlling one, so that the program learns about its size.
        let process = Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_sluice"), "top"])
            .args(options)
            .current_dir(folder)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("the program starts");
        let controller = File::from(controller);
        let output = reader(controller.try_clone().expect("a descriptor"));
        Terminal {
            process,
            controller,
            user,
            output,
            seen: String::new(),
        }
    }

    /// Reads until the program has written this text: one word, since it leaves out spaces that are there already.
    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + SOON;
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("{text:?} is not in {:?}", self.seen);
            };
            self.seen += &String::from_utf8_lossy(&bytes);
        }
    }

    /// Forgets what was written, and types these keys.
    fn press(&mut self, keys: &str) {
        self.seen.clear();
        self.controller
            .write_all(keys.as_bytes())
            .expect("a terminal");
    }

    /// Waits for the end, and asserts that the terminal has its screen and its settings again.
    fn assert_restored(&mut self) -> ExitStatus {
        self.wait_for(SCREEN[1]);
        let ended = self.wait_exit();
        let modes = self.modes();
        assert!(
            modes.contains(LocalModes::ICANON | LocalModes::ECHO),
            "{modes:?}"
        );
        ended
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.user).expect("its settings").local_modes
    }

    fn wait_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + SOON;
        loop {
            match self.process.try_wait().expect("our own child") {
                Some(status) => return status,
                None if Instant::now() > deadline => panic!("it does not end: {}", self.seen),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the two sides of a new pseudo-terminal: that of the test, which programs do not inherit, and that of the program.
fn pair() -> (OwnedFd, OwnedFd) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .expect("a pseudo-terminal");
    grantpt(&controller)
        .and_then(|()| unlockpt(&controller))
        .expect("its other side");
    let path = ptsname(&controller, Vec::new()).expect("its name");
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let user = open(&path, flags, Mode::empty()).expect("its other side");
    tcsetwinsize(&user, size(100, 30)).expect("a size");
    (controller, user)
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Reads on a thread of its own, which ends when the terminal is gone.
fn reader(mut controller: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = controller.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the process of `sluice` that `setsid` has started. With `--wait` it is the only child of a child, or the
/// child itself.
fn signal(top: &Terminal, signal: Signal) {
    let own = top.process.id();
    let children = format!("/proc/{own}/task/{own}/children");
    let children = std::fs::read_to_string(children).expect("a process");
    let target = children.split_whitespace().next();
    let target = target.map_or(own, |pid| pid.parse().expect("a process id"));
    let pid = Pid::from_raw(target as i32).expect("a process id");
    kill_process(pid, signal).expect("our own child");
}

#[test]
fn the_live_view_obeys_keys_and_gives_the_terminal_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let edge = edge(folder.path());
    let mut top = Terminal::start(folder.path(), &["--admin", &edge.admin], &[]);
    for part in [
        SCREEN[0],
        &edge.admin,
        "live",
        "requests",
        "10.0.0.1:9000",
        "\x1b[38;5;",
    ] {
        top.wait_for(part);
    }
    top.press("?");
    top.wait_for("previous");
    top.press("?");
    // The new size is seen without a key.
    top.seen.clear();
    tcsetwinsize(&top.user, size(80, 15)).expect("a size");
    top.wait_for("live");
    top.press("q");
    assert!(top.assert_restored().success());
}

#[test]
fn each_signal_that_ends_the_command_gives_the_terminal_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let edge = edge(folder.path());
    for number in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut top = Terminal::start(folder.path(), &["--admin", &edge.admin], &[]);
        top.wait_for(SCREEN[0]);
        top.wait_for("live");
        assert!(
            !top.modes()
                .intersects(LocalModes::ICANON | LocalModes::ECHO)
        );
        signal(&top, number);
        top.assert_restored();
    }
}

#[test]
fn a_lost_server_is_shown_and_a_signal_gives_the_terminal_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let edge = edge(folder.path());
    let options = ["--admin", &edge.admin];
    let mut top = Terminal::start(folder.path(), &options, &[("NO_COLOR", "1")]);
    top.wait_for("live");
    top.wait_for("10.0.0.1:9000");
    assert!(!top.seen.contains("\x1b[38;5;"), "{:?}", top.seen);
    drop(edge);
    top.wait_for("answer");
    signal(&top, Signal::TERM);
    top.assert_restored();
}

// Without a controlling terminal, no signal comes when the terminal is gone.
#[test]
fn the_command_ends_when_its_terminal_is_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let edge = edge(folder.path());
    let (controller, user) = pair();
    let side = || Stdio::from(user.try_clone().expect("a descriptor"));
    let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["top", "--admin", &edge.admin])
        .env("TERM", "xterm-256color")
        .stdin(side())
        .stdout(side())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    drop(user);
    let mut controller = File::from(controller);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("live") {
        let length = controller.read(&mut buffer).expect("its screen");
        seen.extend_from_slice(&buffer[..length]);
    }
    drop(controller);
    let deadline = Instant::now() + SOON;
    while process.try_wait().expect("our own child").is_none() {
        if Instant::now() > deadline {
            let _ = process.kill();
            panic!("the command goes on without a terminal");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
