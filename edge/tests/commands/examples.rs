//! Tests of the configurations in the folder `examples`: each is valid without a warning, runs, and does its task.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sluice_lab::client::{self, Reply};
use sluice_lab::origin::{Origin, OriginOptions, Resource};

use super::text;

const LAYER: &str =
    "/v2/app/blobs/sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A request of an example, and what its response must have: the path, headers, the status, and a header with a part of
/// its value.
type Exchange = (
    &'static str,
    &'static [(&'static str, &'static str)],
    u16,
    (&'static str, &'static str),
);

const SESSION: &[(&str, &str)] = &[("Cookie", "wordpress_logged_in_1=a")];

const EXAMPLES: &[(&str, &[Exchange])] = &[
    (
        "container-registry",
        &[
            (LAYER, &[], 200, ("cache-status", "stored")),
            (LAYER, &[], 200, ("cache-status", "hit")),
            ("/v2/app/tags/list", &[], 200, ("content-length", "1000")),
        ],
    ),
    (
        "content-management",
        &[
            ("/", &[], 200, ("cache-status", "stored")),
            ("/?utm_source=a", &[], 200, ("cache-status", "hit")),
            ("/", SESSION, 200, ("cache-status", "fwd=bypass")),
            ("/a.css", &[], 200, ("cache-control", "max-age=2592000")),
        ],
    ),
    ("https", &[("/a?b", &[], 308, ("location", "/a?b"))]),
    (
        "images",
        &[
            (
                "/images/a?w=1&utm_x=2",
                &[],
                200,
                ("cache-status", "stored"),
            ),
            ("/images/a?w=1", &[], 200, ("cache-status", "hit")),
            (
                "/images/a?w=1",
                &[],
                200,
                ("access-control-allow-origin", "*"),
            ),
            ("/other", &[], 404, ("content-length", "")),
        ],
    ),
    (
        "load-balancing",
        &[("/", &[], 200, ("set-cookie", "server="))],
    ),
    (
        "package-mirror",
        &[
            ("/debian/pool/a.deb", &[], 200, ("cache-status", "stored")),
            ("/debian/pool/a.deb", &[], 200, ("cache-status", "ttl=3153")),
            ("/debian/dists/a", &[], 200, ("cache-status", "stored")),
            ("/other", &[], 404, ("content-length", "")),
        ],
    ),
    (
        "reverse-proxy",
        &[
            ("/a", &[], 200, ("cache-status", "stored")),
            ("/a", &[], 200, ("cache-status", "hit")),
        ],
    ),
    (
        "single-page-app",
        &[
            ("/deep/link", &[], 200, ("cache-control", "no-cache")),
            ("/assets/a.js", &[], 200, ("cache-control", "immutable")),
            ("/api/a", &[], 200, ("content-length", "1000")),
        ],
    ),
    (
        "static-site",
        &[
            ("/", &[], 200, ("cache-control", "max-age=600")),
            ("/about", &[], 200, ("content-type", "text/html")),
            ("/none", &[], 404, ("content-type", "text/plain")),
        ],
    ),
    (
        "video",
        &[
            ("/film.mp4", &[], 403, ("content-length", "")),
            ("/thumbnails/a.jpg", &[], 200, ("content-length", "1000")),
        ],
    ),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// A running Sluice with an example, killed on drop.
struct Running {
    process: Child,
    address: SocketAddr,
}

impl Running {
    /// Starts Sluice. The address is that of the first listener.
    fn start(mut command: Command) -> Running {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let out = process.stdout.take().expect("its output is piped");
        let first = BufReader::new(out).lines().next().expect("a line");
        let first = first.expect("text");
        let address = first.strip_prefix("listening on http://");
        let address = address.and_then(|address| address.parse().ok());
        Running {
            process,
            address: address.unwrap_or_else(|| panic!("{first}")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Killing a process that has ended already is an error, which is ignored.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the files that examples serve or need. Returns the values of the variables.
fn variables(folder: &Path, origin: &str) -> Vec<(&'static str, String)> {
    let root = folder.join("root");
    std::fs::create_dir_all(root.join("assets")).expect("a folder");
    for file in ["index.html", "about.html", "assets/a.js"] {
        std::fs::write(root.join(file), "content").expect("a file");
    }
    let key = folder.join("url.key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").expect("a file");
    let path = |name: &str| folder.join(name).display().to_string();
    let any = "127.0.0.1:0".to_owned();
    vec![
        ("LISTEN", any.clone()),
        ("LISTEN_TLS", any.clone()),
        ("ADMIN", any),
        ("ORIGIN", origin.to_owned()),
        ("ORIGIN2", origin.replace("127.0.0.1", "127.0.0.2")),
        ("ORIGIN3", origin.replace("127.0.0.1", "127.0.0.3")),
        ("ROOT", path("root")),
        ("URL_KEY", path("url.key")),
        ("VOLUME", path("a.vol")),
        ("VOLUME1", path("b.vol")),
        ("VOLUME2", path("c.vol")),
        ("VOLUME_SIZE", "256MiB".to_owned()),
        ("MEMORY", "256MiB".to_owned()),
        ("STATE", path("state")),
        ("HOST", "localhost".to_owned()),
        ("CERTIFICATE", "internal".to_owned()),
    ]
}

fn command(folder: &Path, origin: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.current_dir(folder).args(arguments);
    command.envs(variables(folder, origin)).stdin(Stdio::null());
    command
}

#[test]
fn every_example_is_valid_and_runs() {
    for (name, exchanges) in EXAMPLES {
        let origin = Origin::start(OriginOptions::default()).expect("a free port");
        origin.serve_rest(Resource::offset(1000));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = examples().join(format!("{name}.toml"));
        let file = file.display().to_string();
        let url = format!("http://{}", origin.addr());
        let mut check = command(folder.path(), &url, &["check", "--strict", &file]);
        let checked = check.output().expect("the program starts");
        assert!(
            checked.status.success(),
            "{name}: {}",
            text(&checked.stderr)
        );

        let running = Running::start(command(folder.path(), &url, &["serve", "-c", &file]));
        for (path, headers, status, (header, part)) in *exchanges {
            let host = [("Host", "localhost")];
            let headers = [&host[..], headers].concat();
            let reply = client::get(running.address, path, &headers);
            let reply: Reply = reply.unwrap_or_else(|error| panic!("{name} {path}: {error:?}"));
            let value = reply.header(header).unwrap_or_default();
            assert!(
                reply.status == *status && value.contains(part),
                "{name} {path}: {} {header}: {value}",
                reply.status
            );
        }
    }
}

#[test]
fn every_example_is_listed_and_works_without_variables() {
    let readme = std::fs::read_to_string(examples().join("README.md")).expect("a file");
    let entries = std::fs::read_dir(examples()).expect("a folder").flatten();
    let files = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let files: BTreeSet<String> = files.filter(|file| file.ends_with(".toml")).collect();
    let tested = EXAMPLES.iter().map(|(name, _)| format!("{name}.toml"));
    assert_eq!(files, tested.collect());
    for file in &files {
        assert!(readme.contains(&format!("]({file})")), "{file}");
        let content = std::fs::read_to_string(examples().join(file)).expect("a file");
        let variables = content.matches("${").count();
        // Each variable has a default, so that the file can also be used as it is.
        assert!(variables > 0, "{file}");
        assert_eq!(content.matches(":-").count(), variables, "{file}");
    }
}
