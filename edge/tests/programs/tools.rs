//! Helpers that find and run client programs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sluice_lab::origin::Origin;

use crate::harness::{Edge, Setup, setup};

/// Time limit of a client program in seconds.
const PATIENCE: &str = "180";

/// Whether all of these programs are installed. If not, prints a message; with `CI=true`, fails the
/// test.
pub fn installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|name| !is_found(name)).collect();
    missing.is_empty() || skipped(&format!("{missing:?}"))
}

/// Prints that a test is skipped and returns false; with `CI=true`, fails the test.
fn skipped(missing: &str) -> bool {
    let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!must, "not installed: {missing}");
    // The message goes directly to standard error, because the output of a passing test is
    // captured.
    let _ = writeln!(std::io::stderr(), "SKIPPED, not installed: {missing}");
    false
}

fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a Python that has these modules. Without one, prints a message; with `CI=true`, fails the test.
pub fn python_with(modules: &[&str]) -> Option<&'static str> {
    let import = format!("import {}", modules.join(", "));
    let has_modules = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", &import]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    // Debian's modules are those of Debian's Python, which another one may hide.
    let found = ["/usr/bin/python3", "python3"]
        .into_iter()
        .find(has_modules);
    if found.is_none() {
        skipped(&format!("modules of Python: {modules:?}"));
    }
    found
}

/// Runs a script of Python in a folder, and returns its output. Fails the test if the script fails.
pub fn run_python(python: &str, folder: &Path, script: &str, arguments: &[&str]) -> String {
    fs::write(folder.join("client.py"), script).expect("written");
    text(&run(folder, python, &[&["client.py"], arguments].concat()))
}

/// Builds a program in Go in this folder, without access to the network. Newer versions of Go build their library, too, and
/// keep it for further runs.
pub fn build_go(folder: &Path, name: &str, source: &str) {
    let file = format!("{name}.go");
    fs::write(folder.join(&file), source).expect("written");
    let cache = format!("GOCACHE={}/go", env!("CARGO_TARGET_TMPDIR"));
    let settings = [&*cache, "GOFLAGS=", "GOTOOLCHAIN=local", "GOPROXY=off"];
    let build = ["go", "build", &file];
    run(folder, "env", &[&settings[..], &build].concat());
}

/// A running edge with two listeners.
pub struct BothListeners {
    /// The edge.
    pub edge: Edge,
    /// The addresses: of the listener with TLS, and of the one in clear text, which both speak both versions of HTTP.
    pub addresses: [String; 2],
    /// The URLs of both listeners.
    pub urls: [String; 2],
}

impl BothListeners {
    /// Starts the edge, and writes the certificate of the authority to `ca.pem` in this folder.
    pub fn start(setup: Setup, folder: &Path) -> BothListeners {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let clear = port.expect("a free port");
        let listener =
            format!("[[listener]]\naddress = \"{clear}\"\nprotocols = [\"h2\", \"http/1.1\"]\n");
        let edge = setup.encrypted().tables(&listener).start();
        fs::write(folder.join("ca.pem"), setup::authority_pem()).expect("written");
        BothListeners {
            addresses: [edge.http.to_string(), clear.to_string()],
            urls: [format!("https://{}", edge.http), format!("http://{clear}")],
            edge,
        }
    }
}

/// Makes a video of ten seconds with a different image in each frame. MP4 has its index at the end of the file.
pub fn make_video(folder: &Path, codec: &str, name: &str) -> Vec<u8> {
    let source = "testsrc=duration=10:size=320x240:rate=10";
    let input = ["-v", "error", "-f", "lavfi", "-i", source];
    let output = ["-c:v", codec, "-g", "10", "-b:v", "800k", name];
    run(folder, "ffmpeg", &[&input[..], &output].concat());
    fs::read(folder.join(name)).expect("a video")
}

/// Runs a program in a folder with a time limit. Fails the test if the program fails.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let output = try_run(folder, program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?} ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Runs a program in a folder with a time limit.
pub fn try_run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["--kill-after=5", PATIENCE, program])
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C")
        .env("HOME", folder)
        .env_remove("http_proxy")
        .output()
        .expect("timeout is there wherever coreutils are")
}

/// Returns the standard output of a program as text.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a fetch was so slow that another one took over a part of its range, as on a machine that pauses.
pub fn was_slow(edge: &Edge) -> bool {
    edge.counter("flights_taken_over") > 0
}

/// Asserts that the origin has sent at most this many bytes, unless a fetch was too slow.
pub fn assert_sent_once(origin: &Origin, edge: &Edge, length: u64) {
    let sent = origin.read_record(|record| record.sent_total);
    assert!(sent <= length || was_slow(edge), "{sent} bytes");
}
