//! Tests of the program's commands and their output. Some tests have a running edge, others have
//! none.

mod bench;
mod command_line;
mod examples;
mod first_hour;
mod lab;
mod lab_all;
mod machine;
#[cfg(feature = "top")]
mod top;

use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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
fn check_describes_the_configuration_and_warns() {
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
    assert!(
        said.contains("\nhistory of a week")
            && said.contains("\ntelemetry besides the history: up to "),
        "{said}"
    );
    let doubts = text(&output.stderr);
    assert!(
        doubts.starts_with("warning: cache `spare` is not used"),
        "{doubts}"
    );
}

#[test]
fn an_invalid_file_is_reported_and_nothing_runs() {
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
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("`http://` or `https://` is missing")
            && said.contains("--memory 1KiB: out of bounds"),
        "{said}"
    );
    for arguments in [
        &["serve"][..],
        &["serve", "-c", "sluice.toml", "--origin", "http://a"],
        &["demo", "--rate", "1"],
        &["serve", "-c", "sluice.toml", "--access-log", "-"],
    ] {
        assert_eq!(
            sluice(folder.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    let both = ["serve", "-c", "sluice.toml", "--listen", "127.0.0.1:0"];
    let said = text(&sluice(folder.path(), &both).stderr);
    assert_eq!(
        said,
        "error: --listen can't be used with --config: put it into the file, as `address` in [[listener]]\n"
    );
}

#[test]
fn commands_report_that_no_sluice_answers_at_the_admin_address() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // No program listens on port 1 of this loopback address, so connections to it are refused.
    let address = "127.99.0.1:1";
    for command in [&["status"][..], &["reload"], &["inspect", "http://a/b"]] {
        let output = sluice(folder.path(), &[command, &["--admin", address]].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("error: no Sluice answers at {address}")),
            "{said}"
        );
    }
}

/// A running `sluice serve`, killed on drop.
struct Edge {
    process: Child,
    admin: String,
}

impl Edge {
    fn serve(folder: &Path) -> Edge {
        Edge::start(folder, &[], &["serve", "-c", "sluice.toml"])
    }

    /// Starts the program with these environment variables.
    fn start(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Edge {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(folder).args(arguments);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        Edge::spawned(command)
    }

    /// Starts the program with this text as its standard input.
    fn start_with_input(folder: &Path, arguments: &[&str], input: &str) -> Edge {
        let file = folder.join("input");
        std::fs::write(&file, input).expect("a temporary folder can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(folder).args(arguments);
        command.stdin(std::fs::File::open(&file).expect("a file"));
        Edge::spawned(command)
    }

    fn spawned(mut command: Command) -> Edge {
        let mut messages = tempfile::tempfile().expect("a temporary file");
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(messages.try_clone().expect("a descriptor"))
            .spawn()
            .expect("the program starts");
        let out = process.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(out)
            .lines()
            .map(|line| line.expect("lines of text"));
        let listening = lines.next().unwrap_or_else(|| {
            let (mut said, status) = (String::new(), process.wait());
            messages.rewind().expect("a file");
            messages.read_to_string(&mut said).expect("its messages");
            panic!("no line for the listener, {status:?}: {said}")
        });
        assert!(
            listening.starts_with("listening on http://127.0.0.1:"),
            "{listening}"
        );
        let admin = lines.next().expect("a line for the admin address");
        let admin = admin
            .strip_prefix("admin on http://")
            .expect("its address")
            .to_owned();
        Edge { process, admin }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).expect("our own child");
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // Killing a process that has ended already is an error, which is ignored.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// With `--access-log -`, standard output is for the access log alone.
#[test]
fn addresses_go_to_standard_error_if_standard_output_has_the_access_log() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args([
            "serve",
            "--origin",
            "http://127.0.0.1:9",
            "--listen",
            "127.0.0.1:0",
        ])
        .args(["--admin", "false", "--access-log", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let errors = BufReader::new(process.stderr.take().expect("its errors are piped"));
    let listening = errors
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("listening on http://127.0.0.1:"));
    process.kill().expect("our own child");
    let output = process.wait_with_output().expect("its output");
    assert!(listening.is_some());
    assert_eq!(text(&output.stdout), "");
}

const SERVED: &str = "
[server]
workers = 1
[[listener]]
address = \"127.0.0.1:0\"
[admin]
address = \"127.0.0.1:0\"
[cache.main]
memory = \"16MiB\"
[upstream.origin]
servers = [\"http://10.0.0.1:9000\"]
[[site]]
[[site.route]]
proxy = \"origin\"
cache = \"main\"
";

#[test]
fn a_running_edge_reloads_reports_its_status_and_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let mut edge = Edge::serve(folder.path());
    let ask = |command: &[&str]| {
        let output = sluice(
            folder.path(),
            &[command, &["--admin", &edge.admin]].concat(),
        );
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let status = || -> serde_json::Value {
        let (done, json, said) = ask(&["status", "--json"]);
        assert!(done, "{said}");
        serde_json::from_str(&json).expect("JSON")
    };

    write(
        folder.path(),
        &SERVED.replace("cache = \"main\"", "cache = \"mian\""),
    );
    let (done, _, said) = ask(&["reload"]);
    assert!(
        !done && said.contains("help: did you mean `main`?"),
        "{said}"
    );
    assert_eq!(status()["reload"]["generation"], 1);

    write(
        folder.path(),
        &SERVED.replace("cache = \"main\"", "path = \"/a/*\"\ncache = \"main\""),
    );
    let (done, said, _) = ask(&["reload"]);
    assert!(done && said.contains("sites changed"), "{said}");
    assert_eq!(status()["reload"]["generation"], 2);

    let (done, said, _) = ask(&["status"]);
    assert!(
        done && said.contains("cache main: 0 objects") && said.contains("10.0.0.1:9000"),
        "{said}"
    );
    let (done, said, _) = ask(&["status", "--url", "http://a/b"]);
    assert!(
        done && said.starts_with("no cache has stored or is fetching this URL\n("),
        "{said}"
    );
    let inspect = |arguments: &[&str]| {
        let admin = ["--admin", &edge.admin];
        let output = sluice(folder.path(), &[&["inspect"], arguments, &admin].concat());
        let said = text(&output.stderr);
        (output.status.code(), text(&output.stdout), said)
    };
    let (code, out, said) = inspect(&["http://a/b"]);
    assert_eq!((code, out.as_str()), (Some(3), ""));
    assert!(
        said.starts_with("error: no cache has stored or is fetching http://a/b\n"),
        "{said}"
    );
    let (code, out, _) = inspect(&["http://a/b", "--json"]);
    assert_eq!((code, out.as_str()), (Some(3), "[]\n"));
    let (code, _, said) = inspect(&["a/b"]);
    assert_eq!(code, Some(2));
    let expected =
        "error: a/b: a URL begins with http:// or https://\n |\n = help: write http://a/b\n";
    assert_eq!(said, expected);
    let path = sluice(folder.path(), &["purge", "/pkg/*", "--admin", &edge.admin]);
    let said = text(&path.stderr);
    assert!(
        said.contains("write http://HOST/pkg/*, or --prefix /pkg/ "),
        "{said}"
    );

    edge.signal(rustix::process::Signal::TERM);
    let ended = edge.process.wait().expect("our own child");
    assert!(ended.success(), "{ended}");
}

#[test]
fn the_demo_prints_the_expected_steps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let free = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let output = sluice(
        folder.path(),
        &[&["demo", "--try", "--rate", "20MiB"], &free[..]].concat(),
    );
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(
        said.contains("bytes 10000000-10000009") && said.contains("sluice; hit"),
        "{said}"
    );
    assert!(said.ends_with(" requests and sent 10 MiB.\n"), "{said}");
}

#[test]
fn the_demo_also_uses_tls() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = sluice(
        folder.path(),
        &[
            "demo",
            "--tls",
            "--try",
            "--rate",
            "20MiB",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ],
    );
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("https://127.0.0.1:"), "{said}");
    assert!(said.ends_with(" requests and sent 10 MiB.\n"), "{said}");
}

/// A running `sluice demo`, killed on drop, and the text that it prints.
struct Demo {
    process: Child,
    text: String,
}

impl Demo {
    fn start(folder: &Path, arguments: &[&str]) -> Demo {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .current_dir(folder)
            .args([&["demo", "--admin", "127.0.0.1:0"], arguments].concat())
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let out = process.stdout.take().expect("its output is piped");
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        let text: Vec<String> = lines
            .take_while(|line| !line.starts_with("Press Ctrl-C"))
            .collect();
        Demo {
            process,
            text: text.join("\n"),
        }
    }

    /// Returns the rest of the line after this text.
    fn after(&self, beginning: &str) -> &str {
        let rest = self.text.split_once(beginning);
        let (_, rest) = rest.unwrap_or_else(|| panic!("{}", self.text));
        rest.split(['\n', ' ']).next().unwrap_or_default()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_demo_has_a_page_for_browsers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let demo = Demo::start(folder.path(), &["--listen", "127.0.0.1:0"]);
    let url = demo.after("In a browser: http://");
    let address = url.trim_end_matches('/').parse().expect("an address");
    let reply = sluice_lab::client::get(address, "/", &[("Host", "localhost")]);
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200);
    let kind = reply.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/html"), "{kind}");
    assert!(reply.text().contains("/offset.bin"), "{}", reply.text());
}

#[test]
fn the_demo_with_tls_names_a_host_of_its_certificate_and_hides_the_key() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let demo = Demo::start(folder.path(), &["--tls", "--listen", "0.0.0.0:0"]);
    let url = demo.after("In a browser: https://");
    assert!(url.starts_with("localhost:"), "{}", demo.text);
    assert!(demo.text.contains("after the handshake"), "{}", demo.text);
    let ca = Path::new(demo.after("curl --cacert "));
    let files = ca.parent().expect("a folder");
    for (path, expected) in [(files, 0o700), (&files.join("root.key"), 0o600)] {
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, expected, "{}", path.display());
    }
}

#[test]
fn trust_without_a_configuration_makes_the_root_in_the_default_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder.path())
        .args(["trust", "--print"])
        .env("STATE_DIRECTORY", folder.path())
        .env_remove("SLUICE_CONFIG")
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let root = folder.path().join("certificates/internal/root.pem");
    let root = std::fs::read_to_string(root).expect("the root");
    assert_eq!(text(&output.stdout), root);
}

#[test]
fn values_contain_environment_variables() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "[[site]]\nhosts = [\"${SLUICE_TEST_HOST}\"]\n[[site.route]]\nproxy = \"http://${SLUICE_TEST_ORIGIN:-10.0.0.1}:90\"\n";
    write(folder.path(), text);
    let check = |host: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.current_dir(folder.path()).arg("check");
        command.env_remove("SLUICE_TEST_HOST");
        host.map(|host| command.env("SLUICE_TEST_HOST", host));
        command.output().expect("the program starts")
    };
    let output = check(Some("cdn.example.com"));
    let said = text_of_both(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("cdn.example.com") && said.contains("10.0.0.1:90"),
        "{said}"
    );
    let output = check(None);
    let said = text_of_both(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("the environment variable SLUICE_TEST_HOST is not set"),
        "{said}"
    );
    assert!(said.contains("sluice.toml:2:"), "{said}");
}

fn text_of_both(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}
