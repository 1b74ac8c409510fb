//! Tests of a newcomer's first commands: how the configuration is found, and how mistakes are reported.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{Edge, GOOD, SERVED, sluice, text, write};

/// Runs the program with these environment variables and this standard input.
fn run(folder: &Path, variables: &[(&str, &str)], arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = process.stdin.take().expect("its input is piped");
    // Writing fails if the program does not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    process.wait_with_output().expect("the program ends")
}

const FREE: &str = "
listen = \"127.0.0.1:0\"
[admin]
address = \"localhost:0\"
[[site.route]]
respond = \"hello\"
";

#[test]
fn check_finds_the_configuration_by_name_variable_and_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nothing = run(folder.path(), &[], &["check"], "");
    assert_eq!(nothing.status.code(), Some(2));
    let said = text(&nothing.stderr);
    assert!(said.contains("there is no ./sluice.toml"), "{said}");

    std::fs::write(folder.path().join("other.toml"), FREE).expect("a file");
    let variable = [("SLUICE_CONFIG", "other.toml")];
    let checks = [
        run(folder.path(), &[], &["check", "other.toml"], ""),
        run(folder.path(), &[], &["check", "-c", "other.toml"], ""),
        run(folder.path(), &variable, &["check"], ""),
        run(folder.path(), &[], &["check", "-c", "-"], FREE),
        run(folder.path(), &[], &["check", "-"], FREE),
    ];
    for output in checks {
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("admin on http://127.0.0.1:0\n"), "{said}");
    }
    let wrong = run(folder.path(), &[], &["check", "-"], "workers = 1\n");
    let said = text(&wrong.stderr);
    assert!(said.contains("--> standard input:1:1"), "{said}");
    assert!(said.contains("`workers` belongs in [server]"), "{said}");
}

#[test]
fn warnings_are_errors_with_strict() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), GOOD);
    let output = sluice(folder.path(), &["check", "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(said.contains("error: 1 warning in sluice.toml"), "{said}");
    write(folder.path(), &GOOD.replace("[cache.spare]", ""));
    assert!(
        sluice(folder.path(), &["check", "--strict"])
            .status
            .success()
    );
}

#[test]
fn serve_reads_the_file_in_the_folder_in_the_variable_and_standard_input() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), FREE);
    drop(Edge::start(folder.path(), &[], &["serve"]));
    let other = folder.path().join("other.toml");
    std::fs::rename(folder.path().join("sluice.toml"), &other).expect("a file");
    let variable = [("SLUICE_CONFIG", "other.toml")];
    drop(Edge::start(folder.path(), &variable, &["serve"]));
    let edge = Edge::start_with_input(folder.path(), &["serve", "-c", "-"], FREE);
    let arguments = ["reload", "--admin", &edge.admin];
    let said = text(&sluice(folder.path(), &arguments).stderr);
    assert!(said.contains("no configuration file to read"), "{said}");
}

#[test]
fn commands_find_the_admin_address_by_variable_and_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let port = edge.admin.rsplit_once(':').expect("a port").1;
    let address = format!("localhost:{port}");
    let file = format!("[admin]\naddress = \":{port}\"\n[broken\n");
    std::fs::write(folder.path().join("other.toml"), &file).expect("a file");
    let by_admin = [("SLUICE_ADMIN", address.as_str())];
    let by_file = [("SLUICE_CONFIG", "other.toml")];
    let answers = [
        run(folder.path(), &by_admin, &["status"], ""),
        run(folder.path(), &by_file, &["status"], ""),
        run(folder.path(), &[], &["status", "-c", "other.toml"], ""),
        run(folder.path(), &by_admin, &["purge", "--all"], ""),
    ];
    for output in answers {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    write(folder.path(), "[admin]\naddress = \"127.99.0.1:1\"\n");
    let output = run(folder.path(), &[], &["status"], "");
    let said = text(&output.stderr);
    assert!(
        said.contains("127.99.0.1:1") && said.contains("this is the address in sluice.toml"),
        "{said}"
    );
    write(folder.path(), "[admin]\naddress = false\n");
    let said = text(&run(folder.path(), &[], &["status"], "").stderr);
    assert!(said.contains("switches the admin API off"), "{said}");
    let wrong = [("SLUICE_ADMIN", "here")];
    let output = run(folder.path(), &wrong, &["status"], "");
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: SLUICE_ADMIN=here: this is not an address"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2));
}

// No Sluice runs, so a connection would fail with another error.
#[test]
fn invalid_urls_are_reported_without_a_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: [(&[&str], &str); 5] = [
        (&["inspect", "foo"], "error: foo: a URL begins with http"),
        (
            &["status", "--url", "foo"],
            "error: foo: a URL begins with http",
        ),
        (&["purge", "foo"], "error: foo: a URL begins with http"),
        (
            &["purge", "--prefix", "foo"],
            "error: --prefix foo: a prefix begins with",
        ),
        (&["purge", "--tag", "a b"], "error: --tag a b: a tag has"),
    ];
    for (arguments, expected) in cases {
        let output = sluice(folder.path(), arguments);
        let said = text(&output.stderr);
        assert!(
            said.starts_with(expected) && said.contains("= help: "),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}

#[test]
fn mistakes_in_options_are_reported_with_the_option() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases: [(&[&str], &str); 8] = [
        (&["--memory", "1KiB"], "error: --memory 1KiB: "),
        (&["--listen", "8080"], "error: --listen 8080: "),
        (&["--admin", "here"], "error: --admin here: "),
        (&["--workers", "9999"], "error: --workers 9999: "),
        (&["--fill", "slce"], "error: --fill slce: "),
        (&["--volume", "vol:1KiB"], "error: --volume vol:1KiB: "),
        (&["--volume", "vol"], "error: --volume vol: "),
        (&["--origin", "ftp://a"], "error: --origin ftp://a: "),
    ];
    for (more, expected) in cases {
        let arguments = [&["serve", "--origin", "http://a"], more].concat();
        let output = sluice(folder.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with(expected) && said.contains("= help: "),
            "{said}"
        );
        assert!(!said.contains("-->"), "{said}");
    }
    write(folder.path(), FREE);
    let said = text(&sluice(folder.path(), &["serve", "--listen", ":80"]).stderr);
    assert!(
        said.contains("--listen can't be used with the configuration file sluice.toml"),
        "{said}"
    );
}

#[test]
fn an_address_in_use_is_reported_with_its_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let own = format!("process {} (", std::process::id());
    let files = ["serve", "--files", "."];
    let listen = [&files[..], &["--listen", &address]].concat();
    let admin = [
        &files[..],
        &["--listen", "127.0.0.1:0", "--admin", &address],
    ]
    .concat();
    for arguments in [listen, admin] {
        let output = sluice(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("can't listen on ") && said.contains(&own),
            "{said}"
        );
    }
}

// The capability to listen on low ports is removed from the process, which root has, too.
#[test]
fn a_port_that_needs_a_privilege_is_reported_with_advice() {
    let start = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first: u16 = std::fs::read_to_string(start)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    if first <= 80 {
        // Every process may listen on every port of this machine.
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_sluice");
        let is_root = rustix::process::geteuid().is_root();
        let mut command = match is_root {
            true => Command::new("setpriv"),
            false => Command::new(program),
        };
        if is_root {
            command.args(["--bounding-set=-all", "--inh-caps=-all", program]);
        }
        let command = command.current_dir(folder.path()).args(arguments);
        command.output().expect("the program starts")
    };
    let serve = run(&["serve", "--files", ".", "--listen", "127.0.0.1:80"]);
    let said = text(&serve.stderr);
    assert_eq!(serve.status.code(), Some(1), "{said}");
    assert!(said.contains("can't listen on 127.0.0.1:80: "), "{said}");
    assert!(
        said.contains("use a port from 1024 on") && said.contains("setcap cap_net_bind_service"),
        "{said}"
    );
    write(folder.path(), &FREE.replace("127.0.0.1:0", "127.0.0.1:80"));
    let check = run(&["check"]);
    let said = text(&check.stderr);
    assert!(check.status.success(), "{said}");
    assert!(
        said.contains("this user may not listen on this port") && said.contains("setcap"),
        "{said}"
    );
}

#[test]
fn a_volume_without_space_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = format!(
        "{FREE}[volume.a]\npath = \"vol\"\nsize = \"4TiB\"\n[cache.a]\nvolumes = \"a\"\n[[site.route]]\n\
         proxy = \"http://127.0.0.1:9\"\ncache = \"a\"\n"
    );
    write(folder.path(), &config);
    let edge = Edge::start(folder.path(), &[], &["serve"]);
    let status = text(&sluice(folder.path(), &["status", "--admin", &edge.admin]).stdout);
    assert!(status.contains("volume a"), "{status}");
    drop(edge);
    assert!(!folder.path().join("vol").exists());
}

#[test]
fn status_of_a_url_takes_the_headers_of_its_key() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let run = |arguments: &[&str]| {
        let all = [&["status", "--admin", &edge.admin], arguments].concat();
        sluice(folder.path(), &all)
    };
    let output = run(&["--url", "http://a/x", "-H", "X-A: b"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&run(&["--url", "http://a/x", "--header", "X-A"]).stderr);
    assert!(said.contains("a header is written as in"), "{said}");
    assert_eq!(run(&["-H", "X-A: b"]).status.code(), Some(2));
}

#[test]
fn check_and_serve_report_what_a_start_fails_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broken = format!("{FREE}[[site.route]]\nfiles = \"www\"\n[log]\naccess = \"log/a\"\n");
    write(folder.path(), &broken);
    for command in ["check", "serve"] {
        let output = sluice(folder.path(), &[command]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("www: no such folder") && said.contains("log/a: no such folder"),
            "{said}"
        );
    }
    std::fs::create_dir(folder.path().join("www")).expect("a folder");
    std::fs::create_dir(folder.path().join("log")).expect("a folder");
    assert!(sluice(folder.path(), &["check"]).status.success());
    let huge = "[volume.a]\npath = \"vol\"\nsize = \"4TiB\"\n[cache.a]\nvolumes = \"a\"\n";
    write(folder.path(), &format!("{FREE}{huge}"));
    let output = sluice(folder.path(), &["check", "--strict"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("too little space"), "{said}");
}

#[test]
fn a_reload_names_the_keys_that_need_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let reload = || {
        let output = sluice(folder.path(), &["reload", "--admin", &edge.admin]);
        (output.status.success(), text(&output.stderr))
    };
    let changed = SERVED
        .replace("workers = 1", "workers = 2")
        .replace("[[listener]]", "[[listener]]\nbacklog = 5");
    write(folder.path(), &changed);
    let (done, said) = reload();
    assert!(!done);
    assert!(
        said.contains("error: `workers` in [server] needs a restart\n --> sluice.toml:3:11\n"),
        "{said}"
    );
    assert!(said.contains("before: 1\n"), "{said}");
    assert!(
        said.contains("`backlog` in [[listener]] needs a restart"),
        "{said}"
    );
    assert!(!said.contains("`address`"), "{said}");
    // A change that a reload applies becomes the one with which later changes are compared.
    let applied = SERVED.replace("memory = \"16MiB\"", "memory = \"17MiB\"");
    write(folder.path(), &applied);
    assert!(reload().0);
    write(folder.path(), &applied.replace("workers = 1", ""));
    let (done, said) = reload();
    assert!(
        !done && said.contains("`workers` in [server] was removed"),
        "{said}"
    );
}

/// Environment variables, arguments, and the help that they get.
type Habit = (
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
    &'static str,
);

#[test]
fn habits_from_other_programs_get_the_command_to_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let variable = &[("SLUICE_CONFIG", "none.toml")];
    let url = &[("SLUICE_ADMIN", "http://127.0.0.1")];
    let cases: [Habit; 6] = [
        (&[], &["serve", "a.toml"], "`sluice serve -c a.toml`"),
        (&[], &["-t"], "`sluice check FILE`"),
        (&[], &["-s", "reload"], "`sluice reload`"),
        (variable, &["check"], "the value of SLUICE_CONFIG"),
        (variable, &["serve"], "the value of SLUICE_CONFIG"),
        (
            url,
            &["status"],
            "or http://HOST:PORT, https://HOST:PORT or unix:PATH",
        ),
    ];
    for (variables, arguments, help) in cases {
        let output = run(folder.path(), variables, arguments, "");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(help), "{said}");
    }
}

#[test]
fn check_names_the_program_that_uses_a_port() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    write(
        folder.path(),
        &FREE.replace("127.0.0.1:0", &address.to_string()),
    );
    let output = sluice(folder.path(), &["check"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("another program listens on this port"),
        "{said}"
    );
    let own = format!("(process {})", std::process::id());
    assert!(said.contains(&own), "{said}");
}

#[test]
fn a_port_of_a_running_sluice_gives_no_warning() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), SERVED);
    let edge = Edge::serve(folder.path());
    let config = FREE.replace("localhost:0", &edge.admin);
    write(folder.path(), &config);
    let output = sluice(folder.path(), &["check"]);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_reload_prints_the_warnings_of_check() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), FREE);
    let edge = Edge::start(folder.path(), &[], &["serve"]);
    write(folder.path(), &format!("{FREE}[cache.spare]\n"));
    let output = sluice(folder.path(), &["reload", "--admin", &edge.admin]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("cache `spare` is not used"), "{said}");
}

#[test]
fn inspect_says_why_a_url_has_no_objects() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let route =
        |host: &str, keys: &str| format!("[[site]]\nhosts = \"{host}\"\n[[site.route]]\n{keys}\n");
    let proxy = "proxy = \"http://10.0.0.1:9\"";
    let config = [
        FREE.split("[[site.route]]")
            .next()
            .expect("a beginning")
            .to_owned(),
        "[cache.main]\nmemory = \"16MiB\"\n".to_owned(),
        route("plain", proxy),
        route("fixed", "respond = \"a\""),
        route(
            "keyed",
            &format!(
                "{proxy}\ncache = \"main\"\nkey = \"{{scheme}}{{host}}{{path}}{{header:X-A}}\""
            ),
        ),
        route("cached", &format!("{proxy}\ncache = \"main\"")),
    ];
    write(folder.path(), &config.concat());
    let edge = Edge::start(folder.path(), &[], &["serve"]);
    let cases = [
        ("plain", "every request goes to the origin"),
        ("fixed", "serves files or an answer of its own"),
        ("keyed", "-H \"NAME: VALUE\""),
        ("cached", "as clients send them"),
        ("other", "no route matches this URL"),
    ];
    for (host, help) in cases {
        let url = format!("http://{host}/a");
        let arguments = ["inspect", &url, "-H", "X-A: b", "--admin", &edge.admin];
        let output = sluice(folder.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(help), "{said}");
    }
    let arguments = [
        "inspect",
        "http://keyed/",
        "-H",
        "X-A",
        "--admin",
        &edge.admin,
    ];
    let said = text(&sluice(folder.path(), &arguments).stderr);
    assert!(said.contains("a header is written as in"), "{said}");
}
