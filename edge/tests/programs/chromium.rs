//! Tests with Chromium, which plays a video and seeks in it, and loads a page over TLS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use sluice_lab::origin::{Origin, Resource};
use sluice_lab::process::{Launch, Process};

use crate::harness::{Setup, origin};
use crate::tools::{installed, run, was_slow};

/// Time limit of a browser run. A browser starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A web page that plays a video: it seeks to the eighth second, seeks back to the second one,
/// plays on, and reports the result.
const PAGE: &str = r#"<!doctype html><title>video</title>
<video id="video" src="/video.webm" muted preload="auto"></video>
<script>
  const video = document.getElementById("video");
  const told = [];
  const tell = (word) => fetch("/told?" + encodeURIComponent(word + " " + told.join(" ")));
  const seek = (to) => new Promise((seeked) => {
    video.onseeked = () => { told.push("at" + video.currentTime); seeked(); };
    video.currentTime = to;
  });
  video.onerror = () => tell("error" + video.error.code + video.error.message);
  video.onloadedmetadata = async () => {
    told.push("length" + Math.round(video.duration));
    await seek(8);
    await seek(2);
    video.ontimeupdate = () => {
      if (video.currentTime > 2.5) { video.ontimeupdate = null; tell("played"); }
    };
    await video.play();
  };
</script>"#;

fn make_video(folder: &Path) -> Vec<u8> {
    let source = "testsrc=duration=10:size=320x240:rate=10";
    let arguments = [
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        source,
        "-c:v",
        "libvpx",
        "-g",
        "10",
        "-b:v",
        "800k",
        "video.webm",
    ];
    run(folder, "ffmpeg", &arguments);
    fs::read(folder.join("video.webm")).expect("a video")
}

/// A web page that fetches data three times, and reports the lengths and the protocol.
const FETCHING: &str = r#"<!doctype html><title>data</title>
<script>
  (async () => {
    const told = [];
    for (let i = 0; i < 3; i++) {
      const reply = await fetch("/data?" + i);
      told.push((await reply.arrayBuffer()).byteLength);
    }
    told.push(performance.getEntriesByType("resource").at(-1).nextHopProtocol, isSecureContext);
    fetch("/told?" + told.join("_"));
  })();
</script>"#;

fn browse(folder: &Path, url: &str, options: &[String]) -> Process {
    let mut launch = Launch::new("chromium", "chromium", folder)
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
        .args([format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        )])
        .args(options)
        // With remote debugging on, the page stays open until the test ends the browser.
        .args(["--remote-debugging-port=0", url]);
    launch.env = vec![("HOME".to_owned(), folder.display().to_string())];
    launch.start().expect("chromium starts")
}

fn told(origin: &Origin) -> Option<String> {
    origin.read_record(|record| record.of("/told").next().map(|seen| seen.target.clone()))
}

#[test]
fn chromium_plays_a_video_and_seeks() {
    if !installed(&["chromium", "ffmpeg"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let video = make_video(folder.path());
    let origin = origin();
    origin.serve(
        "/page",
        Resource::bytes(PAGE).header("Content-Type", "text/html"),
    );
    origin.serve(
        "/video.webm",
        Resource::bytes(video)
            .header("Content-Type", "video/webm")
            .cache_control("max-age=3600"),
    );
    origin.serve("/told", Resource::status(200));
    let edge = Setup::cached(&origin).logged("json").start();
    let browser = browse(folder.path(), &format!("http://{}/page", edge.http), &[]);
    let heard = origin.wait_for(|record| record.count("/told") > 0, PATIENCE);
    assert!(heard, "nothing was told: {}", browser.stderr());
    let told = told(&origin).expect("a word");
    assert_eq!(told, "/told?played%20length10%20at8%20at2");
    let fetches = origin.read_record(|record| record.count("/video.webm"));
    assert!(fetches == 1 || was_slow(&edge), "{fetches}");
    let asked_for_ranges = edge
        .json_log(3)
        .iter()
        .any(|line| line["target"] == "/video.webm" && line["status"] == 206);
    assert!(asked_for_ranges);
}

/// Returns the option that makes Chromium trust the certificate in this file: the hash of its public key.
fn trusting(file: &Path) -> String {
    let chain = CertificateDer::from_pem_file(file).expect("a certificate");
    let (_, certificate) = x509_parser::parse_x509_certificate(&chain).expect("a certificate");
    let hash = Sha256::digest(certificate.tbs_certificate.subject_pki.raw);
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    format!("--ignore-certificate-errors-spki-list={hash}")
}

#[test]
fn chromium_loads_a_page_over_tls() {
    const LENGTH: usize = 1_000_000;
    if !installed(&["chromium"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = origin();
    let page = Resource::bytes(FETCHING).header("Content-Type", "text/html");
    origin.serve("/page", page);
    origin.serve("/data", Resource::offset(LENGTH as u64));
    origin.serve_rest(Resource::status(200));
    let edge = Setup::cached(&origin).encrypted().logged("json").start();
    let options = [trusting(&edge.file("tls.pem"))];
    let browser = browse(folder.path(), &edge.url("/page"), &options);
    let heard = origin.wait_for(|record| record.count("/told") > 0, PATIENCE);
    assert!(heard, "nothing was told: {}", browser.stderr());
    let told = told(&origin).expect("a report");
    assert_eq!(told, format!("/told?{LENGTH}_{LENGTH}_{LENGTH}_h2_true"));
    for line in edge.json_log(5) {
        assert_eq!(line["tls"], "TLSv1.3");
        assert_eq!(line["group"], "X25519MLKEM768");
        assert_eq!(line["cipher"], "TLS_AES_128_GCM_SHA256");
    }
}
