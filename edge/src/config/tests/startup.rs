//! Tests of the checks of the machine on which Sluice starts.

use super::*;
use crate::config::loading::parse_here;
use crate::sys::user::ProcessUser;

const SERVED: &str = "listen = \"127.0.0.1:0\"\n[admin]\naddress = false\n";

/// Returns the problems of a text for a start, with the path of `folder` written as FOLDER.
fn found(folder: &Path, text: &str, purpose: Purpose) -> Result<String, String> {
    let path = folder.display().to_string();
    let text = text.replace("FOLDER", &path);
    let shown = |report: &Report| {
        let problems = report.problems.iter();
        let lines = problems.map(|problem| {
            let help = problem.help.clone().unwrap_or_default();
            format!("{} | {} | {help}\n", problem.title, problem.label)
        });
        lines.collect::<String>().replace(&path, "FOLDER")
    };
    match parse_here("sluice.toml", &text, purpose) {
        Ok(loaded) => Ok(shown(&loaded.warnings)),
        Err(report) => Err(shown(&report)),
    }
}

#[test]
fn what_a_start_would_fail_on_is_an_error() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "not a volume")?;
    let answer = "[[route]]\nrespond = \"a\"\n";
    let cases = [
        (
            "no folder",
            format!("{SERVED}[[route]]\nfiles = \"FOLDER/www\"\n"),
        ),
        (
            "a file",
            format!("{SERVED}[[route]]\nfiles = \"FOLDER/file\"\n"),
        ),
        (
            "a log",
            format!("{SERVED}[log]\naccess = \"FOLDER/log/a\"\nerror = \"FOLDER\"\n{answer}"),
        ),
        (
            "no buffer folder",
            format!("{SERVED}[buffers]\nfolder = \"FOLDER/none\"\n{answer}"),
        ),
        (
            "a buffer folder that is a file",
            format!("{SERVED}[buffers]\nfolder = \"FOLDER/file\"\n{answer}"),
        ),
        (
            "a user",
            format!("{SERVED}[server]\nuser = \"no-such-user\"\n{answer}"),
        ),
        (
            "an address",
            format!("listen = \"192.0.2.1:8080\"\n{answer}"),
        ),
        (
            "a socket",
            format!("listen = \"unix:FOLDER/run/a\"\n{answer}"),
        ),
        (
            "overlap",
            format!("listen = [\"0.0.0.0:8080\", \"127.0.0.1:8080\"]\n{answer}"),
        ),
        (
            "overlap of an IPv6 address for both families",
            format!(
                "listen = \"127.0.0.1:8080\"\n[[listener]]\naddress = \"[::]:8080\"\nipv6_only = false\n{answer}"
            ),
        ),
        (
            "overlap of an IPv6 address with the admin address",
            format!("[[listener]]\naddress = \"[::]:9901\"\nipv6_only = false\n{answer}"),
        ),
        (
            "overlap with the admin address",
            format!("listen = \":8080\"\n[admin]\naddress = \"127.0.0.1:8080\"\n{answer}"),
        ),
        (
            "overlap with the default",
            format!("[admin]\naddress = \"127.0.0.1:8080\"\n{answer}"),
        ),
        (
            "a volume",
            format!(
                "{SERVED}[volume.a]\npath = \"FOLDER/file\"\nsize = \"256MiB\"\n[cache.a]\nmemory = \"128MiB\"\nvolumes = \"a\"\n\
             [[route]]\nproxy = \"http://127.0.0.1:9\"\ncache = \"a\"\n"
            ),
        ),
    ];
    let mut all = String::new();
    for (name, text) in &cases {
        let said = found(folder.path(), text, Purpose::Start).expect_err(name);
        all += &format!("== {name}\n{said}");
        if !name.starts_with("overlap") {
            assert!(
                found(folder.path(), text, Purpose::Reload).is_ok(),
                "{name}"
            );
        }
    }
    insta::assert_snapshot!("startup_errors", all);
    Ok(())
}

#[test]
fn addresses_of_several_families_and_free_ports_do_not_overlap() {
    let text = "listen = [\"0.0.0.0:8080\", \"[::]:8080\", \"127.0.0.1:0\", \"0.0.0.0:0\"]\n\
                [[route]]\nrespond = \"a\"\n";
    assert_eq!(said(text), "\n");
    let text = "listen = [\"[::1]:8080\", \"[::]:9901\"]\n[[listener]]\naddress = \"127.0.0.1:8080\"\n\
                [[route]]\nrespond = \"a\"\n";
    assert_eq!(said(text), "\n");
}

#[test]
fn a_missing_strip_prefix_is_noticed() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let route = |more: &str| format!("{SERVED}[[route]]\npath = \"/static/*\"\n{more}\n");
    let warnings = |text: &str| found(folder.path(), text, Purpose::Check).expect("no error");
    let plain = route("files = \"FOLDER\"");
    assert_eq!(
        warnings(&plain),
        "this route finds no file | there is no folder FOLDER/static | write `files = { root = \"FOLDER\", \
         strip_prefix = \"/static\" }` to look for /static/NAME at FOLDER/NAME\n"
    );
    for good in [
        "files = { root = \"FOLDER\", strip_prefix = \"/static\" }",
        "files = { root = \"FOLDER\", try_files = \"/index.html\" }",
    ] {
        assert_eq!(warnings(&route(good)), "");
    }
    let other = warnings(&route(
        "files = { root = \"FOLDER\", strip_prefix = \"/sttic\" }",
    ));
    assert!(other.contains("correct `strip_prefix`"), "{other}");
    std::fs::create_dir(folder.path().join("static"))?;
    assert_eq!(warnings(&plain), "");
    Ok(())
}

#[test]
fn a_missing_strip_prefix_is_noticed_for_any_path_in_a_folder() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let warnings = |condition: &str| {
        let text = format!("{SERVED}[[route]]\n{condition}\nfiles = \"FOLDER\"\n");
        found(folder.path(), &text, Purpose::Check).expect("no error")
    };
    let in_folder = [
        "path = \"/static/*.css\"",
        "path = \"/static/x.css\"",
        "path = \"/static/**/x.css\"",
        "path_regex = \"^/static/\"",
        "path_regex = '^/static/[a-z]+\\.css$'",
    ];
    for condition in in_folder {
        let said = warnings(condition);
        assert!(said.contains("strip_prefix = \"/static\""), "{said}");
    }
    for condition in [
        "path = \"*.css\"",
        "path = \"/x.css\"",
        "path = \"/sta*\"",
        "path_regex = \"/static/\"",
        "path_regex = \"^/static/?\"",
        "path_regex = \"^/static/|^/other/\"",
    ] {
        assert_eq!(warnings(condition), "", "{condition}");
    }
    std::fs::create_dir(folder.path().join("static"))?;
    for condition in in_folder {
        assert_eq!(warnings(condition), "", "{condition}");
    }
    Ok(())
}

#[test]
fn a_log_that_serve_can_not_open_is_noticed() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink("none/log", path("link"))?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )?;
    let _socket = std::os::unix::net::UnixListener::bind(path("socket"))?;
    let checked = |name: &str| {
        let text =
            format!("{SERVED}[log]\naccess = \"FOLDER/{name}\"\n[[route]]\nrespond = \"a\"\n");
        found(folder.path(), &text, Purpose::Check)
    };
    for (name, label) in [
        ("link", "FOLDER/none/log: no such folder"),
        ("new/", "FOLDER/new/: a folder, not a file"),
        ("socket", "FOLDER/socket: a socket, not a file"),
    ] {
        let said = checked(name).expect_err(name);
        assert!(said.contains(label), "{said}");
    }
    let warned = checked("pipe").expect("a warning");
    assert!(warned.starts_with("this log is a named pipe"), "{warned}");
    std::fs::create_dir(path("none"))?;
    assert_eq!(checked("link"), Ok(String::new()));
    Ok(())
}

#[test]
fn a_socket_path_with_another_kind_of_file_is_noticed() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("file"), "")?;
    std::fs::create_dir(folder.path().join("folder"))?;
    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("left"))?;
    drop(socket);
    let checked = |name: &str| {
        let text = format!(
            "listen = \"unix:FOLDER/{name}\"\n[admin]\naddress = false\n[[route]]\nrespond = \"a\"\n"
        );
        found(folder.path(), &text, Purpose::Check)
    };
    for name in ["file", "folder"] {
        let said = checked(name).expect_err(name);
        assert!(
            said.contains(&format!(
                "FOLDER/{name}: there is a file that is not a socket"
            )),
            "{said}"
        );
    }
    for name in ["left", "new"] {
        assert_eq!(checked(name), Ok(String::new()));
    }
    Ok(())
}

#[test]
fn an_address_on_which_no_socket_can_listen_is_an_error() {
    let folder = Path::new("/none");
    let checked = |address: &str| {
        let text =
            format!("listen = {address}\n[admin]\naddress = false\n[[route]]\nrespond = \"a\"\n");
        found(folder, &text, Purpose::Check)
    };
    assert_eq!(checked("\"[::ffff:127.0.0.1]:0\""), Ok(String::new()));
    let same = checked("[\"[::ffff:127.0.0.1]:8099\", \"127.0.0.1:8099\"]");
    assert!(same.is_err(), "both are 127.0.0.1");
    // A link-local address needs the number of an interface.
    let link_local = checked("\"[fe80::1]:8099\"").expect_err("no interface");
    assert!(link_local.contains("no socket can listen"), "{link_local}");
}

#[test]
fn a_path_without_a_glob_that_leads_to_a_folder_is_noticed() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("static"))?;
    std::fs::write(folder.path().join("README"), "text")?;
    let warnings = |path: &str| {
        let text = format!("{SERVED}[[route]]\npath = \"{path}\"\nfiles = \"FOLDER\"\n");
        found(folder.path(), &text, Purpose::Check).expect("no error")
    };
    for path in ["/static", "/images", "/static/"] {
        let said = warnings(path);
        let glob = format!("write \"{}/*\"", path.trim_end_matches('/'));
        assert!(said.contains(&glob), "{said}");
    }
    for path in ["/README", "/none.html", "/"] {
        assert_eq!(warnings(path), "");
    }
    Ok(())
}

#[test]
fn a_host_for_which_no_certificate_is_valid_is_reported() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = sluice_lab::certificates::Authority::new("Test authority");
    let pair = authority.server(&["*.example.com"]);
    let keys = pair.write(folder.path(), "site")?.keys();
    let check = |tls: &str, host: &str, own: &str| {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n{tls}\n[admin]\naddress = false\n\
             [[site]]\nhosts = [\"a.example.com\"]\n{own}\n[[site.route]]\nrespond = \"a\"\n\
             [[site]]\nhosts = [{host:?}]\n[[site.route]]\nrespond = \"b\"\n"
        );
        found(folder.path(), &text, Purpose::Check).unwrap_or_else(|error| error)
    };
    let of_site = format!("tls = {{ {keys} }}");
    let of_listener = of_site.as_str();
    for (tls, own) in [("tls = true", &*of_site), (of_listener, "")] {
        assert_eq!(check(tls, "b.example.com", own), "", "{tls}");
        let found = check(tls, "b.example.net", own);
        assert!(
            found.contains("no certificate is valid for b.example.net"),
            "{found}"
        );
    }
    Ok(())
}

#[test]
fn certificates_that_clients_would_refuse_are_reported() -> std::io::Result<()> {
    use sluice_lab::certificates::Authority;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("Test authority");
    let check = |name: &str, pair: &sluice_lab::certificates::Pair| -> std::io::Result<String> {
        let files = pair.write(folder.path(), name)?;
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n[admin]\naddress = false\n\
             [[site]]\nhosts = [\"a.example.com\"]\ntls = {{ {} }}\n[[site.route]]\nrespond = \"a\"\n",
            files.keys()
        );
        Ok(found(folder.path(), &text, Purpose::Check).unwrap_or_else(|error| error))
    };
    let good = authority.server(&["*.example.com"]);
    assert_eq!(check("good", &good)?, "");
    let names = ["a.example.com"];
    let leaf_end = good.certificate.find("-----END").unwrap_or_default();
    let (leaf, rest) = good.certificate.split_at(leaf_end);
    let (end, issuer) = rest.split_once("\n").unwrap_or_default();
    let mut alone = good.clone();
    alone.certificate = format!("{leaf}{end}\n");
    let mut reversed = good.clone();
    reversed.certificate = format!("{leaf}{end}\n{leaf}{end}\n{issuer}");
    let mut mixed = good.clone();
    mixed.key = authority.server(&names).key;
    for (name, pair, expected) in [
        (
            "expired",
            authority.server_until(&names, Duration::ZERO),
            "is valid until ",
        ),
        (
            "soon",
            authority.server_between(&names, 12 * DAY, 5 * DAY + DAY / 2),
            "expires in 5 days",
        ),
        (
            "late",
            authority.server_between(&names, 10 * DAY, 5 * DAY + DAY / 2),
            "",
        ),
        (
            "other",
            authority.server(&["b.example.com"]),
            "not valid for a.example.com | it is for b.example.com",
        ),
        ("alone", alone, "no certificate of the issuer"),
        (
            "reversed",
            reversed,
            "certificate 2 did not issue the one before it",
        ),
        ("mixed", mixed, "the key does not belong to the certificate"),
    ] {
        let found = check(name, &pair)?;
        let fits = if expected.is_empty() {
            found.is_empty()
        } else {
            found.contains(expected)
        };
        assert!(fits, "{name}: {found}");
    }
    Ok(())
}

/// A listener and a site whose configuration names all kinds of files of TLS.
struct TlsFiles {
    folder: tempfile::TempDir,
    text: String,
}

impl TlsFiles {
    fn new() -> std::io::Result<TlsFiles> {
        let folder = tempfile::tempdir()?;
        let authority = sluice_lab::certificates::Authority::new("Test authority");
        let pair = authority.server(&["a.example.com"]);
        pair.write(folder.path(), "site")?;
        std::fs::write(folder.path().join("ca"), authority.pem())?;
        std::fs::write(folder.path().join("secret"), "0123456789abcdef".repeat(4))?;
        let text = format!(
            "{}[tls]\ntickets = \"FOLDER/secret\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ certificate = \"FOLDER/site.pem\", key = \"FOLDER/site.key\", client_ca = \"FOLDER/ca\" }}\n\
             [[route]]\nrespond = \"a\"\n",
            SERVED.replace("listen = \"127.0.0.1:0\"\n", "")
        );
        Ok(TlsFiles { folder, text })
    }

    fn check(&self, text: &str) -> Result<String, String> {
        found(self.folder.path(), text, Purpose::Check)
    }

    /// Lets each user enter the folder, and only the owner read this file.
    fn hide(&self, name: &str) -> std::io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        set(self.folder.path(), 0o755)?;
        set(&self.folder.path().join(name), 0o600)
    }
}

#[test]
fn files_of_tls_that_can_not_be_used_are_reported() -> std::io::Result<()> {
    let files = TlsFiles::new()?;
    assert_eq!(files.check(&files.text), Ok(String::new()));
    let site = files.text.replace(
        "[[route]]",
        "[[site]]\ntls = { client_ca = \"FOLDER/none\" }\n[[site.route]]",
    );
    let said = files.check(&site).expect_err("no authorities");
    assert!(
        said.starts_with("these authorities can't be used | FOLDER/none: can't be read"),
        "{said}"
    );
    for (name, content, expected) in [
        (
            "ca",
            "no certificate",
            "these authorities can't be used | FOLDER/ca: has no certificate in PEM",
        ),
        (
            "secret",
            "short",
            "this secret of session tickets can't be used | FOLDER/secret: the secret is shorter",
        ),
        (
            "site.key",
            "no key",
            "this certificate can't be used | FOLDER/site.key: has no private key in PEM",
        ),
    ] {
        let files = TlsFiles::new()?;
        std::fs::write(files.folder.path().join(name), content)?;
        let said = files.check(&files.text).expect_err(name);
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    Ok(())
}

#[test]
fn files_of_tls_are_read_with_the_rights_of_the_user() -> std::io::Result<()> {
    // Only root can become another user.
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for name in ["site.pem", "site.key", "ca", "secret"] {
        let files = TlsFiles::new()?;
        files.hide(name)?;
        assert_eq!(
            files.check(&files.text),
            Ok(String::new()),
            "root may read it"
        );
        let text = format!("{}[server]\nuser = \"65534:65534\"\n", files.text);
        for purpose in [Purpose::Start, Purpose::Check] {
            let said = found(files.folder.path(), &text, purpose).expect_err(name);
            let label = format!("FOLDER/{name}: permission denied for 65534:65534");
            assert!(said.contains(&label), "{said}");
        }
        // `sluice serve` may have more rights than the user of `sluice check`.
        let nobody = ProcessUser::find("65534", Some("65534")).expect("an id");
        let said = nobody.run(|| files.check(&files.text))?.expect("a warning");
        assert!(
            said.contains(&format!(
                "FOLDER/{name}: permission denied | run `sluice serve` as another user"
            )),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    Ok(())
}

#[test]
fn a_site_for_clear_text_needs_no_certificate() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = sluice_lab::certificates::Authority::new("Test authority");
    let pair = authority.server(&["a.example.com", "::1"]);
    let keys = pair.write(folder.path(), "site")?.keys();
    let check = |listener: &str, tls: &str| {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n{listener}[admin]\naddress = false\n\
             [[site]]\nhosts = [\"a.example.com\", \"[::1]\"]\ntls = {{ {keys} }}\n[[site.route]]\nrespond = \"a\"\n\
             [[site]]\nhosts = \"b.example.com\"\n{tls}[[site.route]]\nrespond = \"b\"\n"
        );
        found(folder.path(), &text, Purpose::Check).expect("no error")
    };
    let clear_text = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    assert_eq!(check(clear_text, ""), "");
    let warning = "no certificate is valid for b.example.com";
    assert!(check("", "").contains(warning));
    assert!(check(clear_text, "tls = { redirect = true }\n").contains(warning));
    Ok(())
}

#[test]
fn a_min_version_without_cipher_suites_is_an_error() {
    let check = |global: &str, own: &str| {
        let text = format!(
            "[tls]\nciphers = \"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\"\n{global}\
             [[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ certificate = \"a\", key = \"b\"{own} }}\n\
             [[route]]\nrespond = \"a\"\n"
        );
        parse("sluice.toml", &text)
            .map(|_| ())
            .map_err(|report| report.render(false))
    };
    assert_eq!(check("", ""), Ok(()));
    assert_eq!(
        check("min_version = \"1.2\"\n", ", min_version = \"1.2\""),
        Ok(())
    );
    for (global, own, line) in [
        ("min_version = \"1.3\"\n", "", "sluice.toml:3"),
        ("", ", min_version = \"1.3\"", "sluice.toml:5"),
    ] {
        let said = check(global, own).expect_err("no suite");
        assert!(
            said.contains("no cipher suite is left for `min_version`"),
            "{said}"
        );
        assert!(said.contains(line), "{said}");
    }
}
