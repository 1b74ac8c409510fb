//! Tests with apt, which uses the edge as a package mirror and as a proxy.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Setup, origin};
use crate::tools::{installed, run, text};

const PACKAGES: [&str; 3] = ["lab-one", "lab-two", "lab-three"];

/// Builds a package and serves it at the origin. Returns the package's entry for the repository
/// index.
fn publish(folder: &Path, origin: &Origin, name: &str) -> String {
    let control = format!(
        "Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Lab <lab@example.com>\nDescription: a test\n"
    );
    let content = folder.join(name);
    fs::create_dir_all(content.join("DEBIAN")).expect("a folder");
    fs::write(content.join("DEBIAN/control"), &control).expect("a file");
    // The content depends on the package's name, so that packages differ in size.
    fs::write(content.join("file"), name.repeat(1000)).expect("a file");
    run(
        folder,
        "dpkg-deb",
        &["--root-owner-group", "-b", name, "package.deb"],
    );
    let package = fs::read(folder.join("package.deb")).expect("a package");
    let (size, hash) = (package.len(), sha256(folder, "package.deb"));
    serve(origin, &format!("{name}.deb"), package);
    format!("{control}Filename: ./{name}.deb\nSize: {size}\nSHA256: {hash}\n\n")
}

fn serve(origin: &Origin, name: &str, body: Vec<u8>) {
    let resource = Resource::bytes(body).cache_control("max-age=3600");
    origin.serve(&format!("/repo/{name}"), resource);
}

fn sha256(folder: &Path, file: &str) -> String {
    let said = text(&run(folder, "sha256sum", &[file]));
    said.split(' ').next().expect("a sum").to_owned()
}

/// Creates an origin with a flat repository of three packages.
fn repository(folder: &Path) -> Origin {
    let origin = origin();
    let index: String = PACKAGES
        .iter()
        .map(|name| publish(folder, &origin, name))
        .collect();
    fs::write(folder.join("Packages"), &index).expect("a file");
    let release = format!(
        "Suite: lab\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        sha256(folder, "Packages"),
        index.len()
    );
    serve(&origin, "Packages", index.into());
    serve(&origin, "Release", release.into());
    origin
}

/// The folder of one machine's apt state, with a configuration that knows only the repository under
/// test.
struct Machine {
    folder: PathBuf,
    options: Vec<String>,
}

impl Machine {
    fn new(folder: &Path, name: &str, source: &str, proxy: Option<&str>) -> Machine {
        let folder = folder.join(name);
        for inside in [
            "state/lists/partial",
            "cache/archives/partial",
            "etc",
            "got",
        ] {
            fs::create_dir_all(folder.join(inside)).expect("a folder");
        }
        fs::write(
            folder.join("sources.list"),
            format!("deb [trusted=yes] {source} ./\n"),
        )
        .expect("a file");
        fs::write(folder.join("status"), "").expect("a file");
        let at = |inside: &str| folder.join(inside).display().to_string();
        let options = [
            format!("Dir::State={}", at("state")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            format!("Dir::Etc={}", at("etc")),
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            "Dir::Etc::SourceParts=-".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=0".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
            format!("Acquire::http::Proxy={}", proxy.unwrap_or("false")),
        ];
        let options = options
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option]);
        Machine {
            options: options.collect(),
            folder,
        }
    }

    fn apt(&self, arguments: &[&str]) {
        let options = self.options.iter().map(String::as_str);
        let all: Vec<&str> = options.chain(arguments.iter().copied()).collect();
        run(&self.folder.join("got"), "apt-get", &all);
    }

    /// Updates the index, downloads all packages, and checks that `dpkg-deb` can read them.
    fn get_all(&self) {
        self.apt(&["update"]);
        self.apt(&[&["download"], &PACKAGES[..]].concat());
        for name in PACKAGES {
            let file = format!("{name}_1.0_all.deb");
            let said = run(
                &self.folder.join("got"),
                "dpkg-deb",
                &["-f", &file, "Package"],
            );
            assert_eq!(text(&said).trim(), name);
        }
    }
}

fn assert_each_fetched_once(origin: &Origin) {
    for name in PACKAGES {
        let asked = origin.read_record(|record| record.count(&format!("/repo/{name}.deb")));
        assert_eq!(asked, 1, "{name}");
    }
}

#[test]
fn apt_downloads_packages_from_a_mirror() {
    if !installed(&["apt-get", "dpkg-deb", "sha256sum"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = repository(folder.path());
    let edge = Setup::cached(&origin).start();
    let source = format!("http://{}/repo", edge.http);
    for name in ["first", "second"] {
        Machine::new(folder.path(), name, &source, None).get_all();
    }
    assert_each_fetched_once(&origin);
}

#[test]
fn apt_downloads_packages_through_a_proxy() {
    if !installed(&["apt-get", "dpkg-deb", "sha256sum"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = repository(folder.path());
    let edge = Setup::cached(&origin).start();
    let proxy = format!("http://{}", edge.http);
    let source = "http://mirror.example/repo";
    for name in ["first", "second"] {
        Machine::new(folder.path(), name, source, Some(&proxy)).get_all();
    }
    assert_each_fetched_once(&origin);
    let named = |seen: &sluice_lab::origin::Seen| seen.header("host") == Some("mirror.example");
    assert!(origin.requests().iter().all(named));
}
