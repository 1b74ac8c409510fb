//! Tests of the challenge DNS-01, with BIND as the name server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sluice_lab::bind::{self, Bind, KEY_NAME};

use super::Bed;
use crate::harness::{Edge, Setup, eventually};

/// Name of the record that proves the control of the zone's name and of its wildcard.
const RECORD: &str = "_acme-challenge.example.com";
/// Value of a record of this name that another program has set.
const OTHER: &str = "of-another-program";
/// The names of the site.
const NAMES: [&str; 2] = ["*.example.com", "example.com"];

/// A program with nsupdate. Its arguments are the file of a key, a port, and those of Sluice.
const NSUPDATE: &str = r#"#!/bin/sh
case "$3" in
add) change="add $4 60 TXT $5" ;;
remove) change="delete $4 TXT $5" ;;
esac
printf 'server 127.0.0.1 %s\nupdate %s\nsend\n' "$2" "$change" | nsupdate -k "$1" -v
"#;

/// BIND with the zone `example.com`, and pebble, which asks it.
struct DnsBed {
    bed: Bed,
    bind: Bind,
    folder: tempfile::TempDir,
}

impl DnsBed {
    fn new() -> DnsBed {
        let folder = tempfile::tempdir().expect("a folder");
        let bind = {
            let record = format!("_acme-challenge TXT {OTHER}");
            Bind::start(folder.path(), "example.com", &record).expect("BIND runs")
        };
        let bed = Bed::new(&[], |options| options.name_server = Some(bind.address()));
        DnsBed { bed, bind, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the lines of the configuration with these keys of `dns`.
    fn keys(&self, dns: &str) -> String {
        let server = self.bind.address();
        format!("challenge = \"dns-01\"\ndns = {{ {dns}, name_servers = \"{server}\" }}")
    }

    /// Returns the keys of `dns` for dynamic updates.
    fn update(&self, key_name: &str, key: &Path) -> String {
        let server = self.bind.address();
        format!("server = \"{server}\", key_name = {key_name:?}, key = {key:?}")
    }

    /// Returns the keys of `dns` for a program with this script.
    fn program(&self, script: &str) -> String {
        let path = self.path("dns-update");
        fs::write(&path, script).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable");
        let port = self.bind.address().port().to_string();
        format!("program = [{path:?}, {:?}, {port:?}]", self.bind.key())
    }

    fn start(&self, dns: &str) -> Edge {
        self.bed.start(&self.keys(dns), &NAMES)
    }

    /// Waits until the record of the other program is the only one.
    fn wait_removed(&self) {
        eventually("the records are removed", || {
            self.bind.texts(RECORD).expect("BIND responds") == [OTHER]
        });
    }

    /// Asserts that the name and its wildcard get their certificates, and that no record is left.
    fn assert_obtains(&self, edge: &Edge) {
        for name in ["example.com", "a.example.com"] {
            assert_eq!(self.bed.wait_served(name), "hello", "{name}");
        }
        self.wait_removed();
        let log = edge.process.stderr();
        assert!(!log.contains("could not be"), "{log}");
        assert_eq!(self.bed.pebble.orders(), 2);
    }
}

/// Waits until an attempt has failed with a message that contains this text.
fn wait_failed(edge: &Edge, text: &str) {
    eventually("an attempt fails", || {
        edge.process.stderr().contains("could not be obtained")
    });
    let log = edge.process.stderr();
    assert!(log.contains(text), "no {text:?} in {log}");
}

#[test]
fn dynamic_updates_prove_a_name_and_its_wildcard() {
    let dns = DnsBed::new();
    let edge = dns.start(&dns.update(KEY_NAME, dns.bind.key()));
    dns.assert_obtains(&edge);
    let log = dns.bind.log();
    assert_eq!(log.matches("adding an RR at").count(), 2, "{log}");
    assert_eq!(log.matches("deleting an RR at").count(), 2, "{log}");
}

#[test]
fn a_wildcard_is_proven_by_dns_although_another_challenge_is_preferred() {
    let dns = DnsBed::new();
    let keys = dns.keys(&dns.update(KEY_NAME, dns.bind.key()));
    let keys = keys.replace("\"dns-01\"", "[\"http-01\", \"dns-01\"]");
    let edge = dns.bed.start(&keys, &NAMES);
    dns.assert_obtains(&edge);
    let log = dns.bind.log();
    assert_eq!(log.matches("adding an RR at").count(), 1, "{log}");
}

#[test]
fn a_program_proves_a_name_and_its_wildcard() {
    let dns = DnsBed::new();
    let edge = dns.start(&dns.program(NSUPDATE));
    dns.assert_obtains(&edge);
}

#[test]
fn a_program_that_hangs_is_killed_and_the_record_is_removed_nevertheless() {
    let dns = DnsBed::new();
    // In the sandbox, the program could not write here.
    let calls = dns.path("calls");
    let script = format!(
        "#!/bin/sh\necho \"$3 $4 $PATH\" >> {calls:?}\nif [ $3 = add ]; then sleep 1000; fi\n"
    );
    let edge = dns.start(&format!("{}, timeout = \"1s\"", dns.program(&script)));
    wait_failed(&edge, "has not ended in 1s");
    let path = std::env::var("PATH").expect("a path");
    eventually("both orders remove the record", || {
        let calls = fs::read_to_string(&calls).unwrap_or_default();
        [
            format!("add {RECORD} {path}\n"),
            format!("remove {RECORD} {path}\n"),
        ]
        .iter()
        .all(|call| calls.matches(call.as_str()).count() == 2)
    });
}

#[test]
fn the_output_of_a_program_that_fails_is_cut_and_made_printable() {
    let dns = DnsBed::new();
    let script = "#!/bin/sh\nprintf 'no such\\033[31m zone\\r\\nerror: forged\\377\\n'\nyes noise | head -c 300000\nexit 7\n";
    let edge = dns.start(&dns.program(script));
    wait_failed(
        &edge,
        "failed (exit status: 7): no such [31m zone error: forged",
    );
    let log = edge.process.stderr();
    assert!(!log.contains(['\u{1b}', '\r']), "{log}");
    let longest = log.lines().map(str::len).max().unwrap_or(0);
    assert!(longest < 2000, "{log}");
}

#[test]
fn without_its_helper_process_no_program_is_run() {
    let dns = DnsBed::new();
    let edge = dns.start(&dns.program("#!/bin/sh\nkill -KILL $PPID\n"));
    wait_failed(&edge, "has ended (signal: 9 (SIGKILL)): restart Sluice");
}

#[test]
fn another_program_needs_a_restart() {
    let dns = DnsBed::new();
    let program = dns.program(NSUPDATE);
    let edge = dns.start(&program);
    dns.assert_obtains(&edge);
    let text = |program: &str| dns.bed.text(&dns.keys(program), &NAMES);
    edge.rewrite(&text(&program));
    let reload = || {
        let output = edge.command(&["reload"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    assert!(reload().0);
    edge.rewrite(&text("program = \"/bin/true\""));
    let (done, said) = reload();
    assert!(
        !done && said.contains("`dns` in [tls.acme] needs a restart"),
        "{said}"
    );
}

#[test]
fn a_key_that_the_name_server_refuses_is_reported() {
    let dns = DnsBed::new();
    let other = dns.path("other.key");
    fs::write(&other, bind::key_text("b3RoZXI=")).expect("a file");
    let refused = [
        (dns.update(KEY_NAME, &other), "(BADSIG)"),
        (dns.update("other.test", dns.bind.key()), "(BADKEY)"),
    ];
    for (keys, text) in refused {
        let edge = dns.start(&keys);
        wait_failed(&edge, text);
        drop(edge);
        // The next edge makes its first attempt at once.
        fs::remove_dir_all(dns.bed.folder.path().join("state")).expect("the state");
    }
    let texts = dns.bind.texts(RECORD).expect("BIND responds");
    assert_eq!(texts, [OTHER]);
    let missing = dns.update(KEY_NAME, &dns.path("missing.key"));
    let text = dns.bed.text(&dns.keys(&missing), &NAMES);
    let message = Setup::of_text(text).refused();
    assert!(message.contains("missing.key"), "{message}");
}

#[test]
fn a_record_that_does_not_become_visible_is_not_shown_to_the_authority() {
    let dns = DnsBed::new();
    let program = dns.program("#!/bin/sh\nexit 0\n");
    let edge = dns.start(&format!("{program}, propagation = \"1s\""));
    wait_failed(&edge, "is not visible after 1s");
    let log = dns.bed.pebble.log();
    assert!(!log.contains("Pulled a task"), "{log}");
}
