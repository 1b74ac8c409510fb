//! Tests of browsers that play a video and seek in it.

use sluice_lab::origin::Resource;

use super::{Browser, logged, serve_page};
use crate::harness::{Setup, origin};
use crate::tools::{make_video, was_slow};

const PAGE: &str = include_str!("../pages/video.html");

/// Plays a video over HTTP/2 with TLS, or over HTTP/1.1 in clear text.
fn play(browser: Browser, encrypted: bool) {
    if !browser.is_installed_with(&["ffmpeg"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let video = Resource::bytes(make_video(folder.path(), "libvpx", "video.webm"))
        .header("Content-Type", "video/webm");
    let origin = origin();
    serve_page(&origin, PAGE);
    origin.serve("/video.webm", video.cache_control("max-age=3600"));
    let setup = Setup::cached(&origin).logged("json");
    let (setup, version) = match encrypted {
        true => (setup.encrypted(), "HTTP/2.0"),
        false => (setup.in_clear_text(), "HTTP/1.1"),
    };
    let edge = setup.start();
    let visit = browser.open(&edge, "/page");
    let report = visit.report(&origin);
    assert_eq!(report, "played%20length10%20at8%20at2");
    let fetches = origin.read_record(|record| record.count("/video.webm"));
    assert!(fetches == 1 || was_slow(&edge), "{fetches}");
    let parts = logged(&edge, "/video.webm", 1);
    assert!(parts.iter().any(|line| line["status"] == 206), "{parts:?}");
    assert!(
        parts.iter().all(|line| line["version"] == version),
        "{parts:?}"
    );
}

#[test]
fn chromium_plays_a_video_and_seeks() {
    play(Browser::Chromium, false);
}

#[test]
fn chromium_plays_a_video_and_seeks_over_http2() {
    play(Browser::Chromium, true);
}

#[test]
fn firefox_plays_a_video_and_seeks_over_http2() {
    play(Browser::Firefox, true);
}
