//! Tests with Chromium and Firefox, which load pages whose scripts report their results to the origin.

mod downloads;
mod images;
mod streams;
mod videos;
mod websocket_server;

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sluice_lab::origin::{Origin, Resource};
use sluice_lab::process::{Launch, Process};
use tempfile::TempDir;

use crate::harness::{Edge, eventually, setup};
use crate::tools::{installed, run};

/// Time limit of a browser run. A browser starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A browser that tests can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Browser {
    Chromium,
    Firefox,
}

impl Browser {
    /// Whether this browser and further programs are installed. If not, prints a message; with `CI=true`, fails the test.
    fn is_installed_with(self, programs: &[&str]) -> bool {
        let own: &[&str] = match self {
            Browser::Chromium => &["chromium"],
            Browser::Firefox => &["firefox-esr", "certutil"],
        };
        installed(&[own, programs].concat())
    }

    /// Starts the browser with a new profile, in which the certificate of the edge is trusted, and opens a page of the
    /// edge.
    fn open(self, edge: &Edge, page: &str) -> Visit {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let profile = folder.path().join("profile");
        fs::create_dir(&profile).expect("a folder");
        let url = edge.url(page);
        let mut launch = match self {
            Browser::Chromium => chromium(&profile, edge, &url),
            Browser::Firefox => firefox(&profile, &url),
        };
        launch.folder = folder.path().to_owned();
        launch.env = vec![("HOME".to_owned(), folder.path().display().to_string())];
        Visit {
            process: launch.start().expect("the browser starts"),
            _folder: folder,
        }
    }
}

/// A running browser that shows a page.
struct Visit {
    process: Process,
    _folder: TempDir,
}

impl Visit {
    /// Waits until the page has reported this many results, and returns them in their order.
    fn reports(&self, origin: &Origin, count: usize) -> Vec<String> {
        let heard = origin.wait_for(|record| record.count("/pass/told") >= count, PATIENCE);
        let read = |record: &sluice_lab::origin::Record| -> Vec<String> {
            let targets = record.of("/pass/told").map(|seen| &seen.target);
            let query = |target: &String| target.trim_start_matches("/pass/told?").to_owned();
            targets.map(query).collect()
        };
        let reports = origin.read_record(read);
        assert!(heard, "only {reports:?}: {}", self.process.stderr());
        reports
    }

    /// Waits for the only report of a page.
    fn report(&self, origin: &Origin) -> String {
        self.reports(origin, 1).swap_remove(0)
    }
}

/// Serves a page at `/page`, and takes its reports.
fn serve_page(origin: &Origin, page: &str) {
    let page = Resource::bytes(page.to_owned()).header("Content-Type", "text/html; charset=utf-8");
    origin.serve("/page", page);
    origin.serve("/pass/told", Resource::status(200));
    origin.serve("/favicon.ico", Resource::status(404));
}

/// Waits until the access log has this many lines for targets that begin so, and returns those that it has then.
fn logged(edge: &Edge, target: &str, count: usize) -> Vec<Value> {
    let find = || -> Vec<Value> {
        let begins = |line: &Value| {
            line["target"]
                .as_str()
                .is_some_and(|found| found.starts_with(target))
        };
        edge.json_log(1).into_iter().filter(begins).collect()
    };
    eventually("lines in the access log", || find().len() >= count);
    find()
}

fn chromium(profile: &Path, edge: &Edge, url: &str) -> Launch {
    let certificate = edge.file("tls.pem");
    let trust = certificate.is_file().then(|| trusting(&certificate));
    Launch::new("browser", "chromium", profile)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
            "--autoplay-policy=no-user-gesture-required",
            // The browser can reach no address except those of this test.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ])
        .args([format!("--user-data-dir={}", profile.display())])
        .args(trust)
        // With remote debugging on, the page stays open until the test ends the browser.
        .args(["--remote-debugging-port=0", url])
}

/// Returns the option that makes Chromium trust the certificate in this file: the hash of its public key.
fn trusting(file: &Path) -> String {
    let chain = CertificateDer::from_pem_file(file).expect("a certificate");
    let (_, certificate) = x509_parser::parse_x509_certificate(&chain).expect("a certificate");
    let hash = Sha256::digest(certificate.tbs_certificate.subject_pki.raw);
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("--ignore-certificate-errors-spki-list={hash}")
}

/// Settings of Firefox: nothing is loaded except pages of this test, and a video may play without a click.
const PREFERENCES: &str = r#"
user_pref("app.normandy.enabled", false);
user_pref("app.update.enabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("browser.safebrowsing.downloads.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("extensions.update.enabled", false);
user_pref("media.autoplay.default", 0);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("network.dns.disabled", true);
user_pref("network.proxy.type", 0);
user_pref("services.settings.server", "data:,");
user_pref("toolkit.telemetry.enabled", false);
"#;

fn firefox(profile: &Path, url: &str) -> Launch {
    fs::write(profile.join("user.js"), PREFERENCES).expect("written");
    fs::write(profile.join("ca.pem"), setup::authority_pem()).expect("written");
    let add = [
        "-A", "-d", "sql:.", "-n", "test", "-t", "C,,", "-i", "ca.pem",
    ];
    run(
        profile,
        "certutil",
        &[&["-N", "-d", "sql:.", "--empty-password"], &[][..]].concat(),
    );
    run(profile, "certutil", &add);
    Launch::new("browser", "firefox-esr", profile)
        .args(["--headless", "--no-remote", "--profile"])
        .args([profile.display().to_string(), url.to_owned()])
}
