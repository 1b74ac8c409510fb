//! Tests with ffmpeg: seeking in an MP4 whose index is at its end.

use std::path::Path;

use sluice_lab::origin::{Latch, Resource};

use crate::harness::{Setup, serving};
use crate::tools::{installed, make_video, run, text};

/// Returns the checksum of the video frame at five seconds.
fn frame(folder: &Path, input: &str) -> String {
    let arguments = [
        "-v",
        "error",
        "-ss",
        "5",
        "-i",
        input,
        "-frames:v",
        "1",
        "-f",
        "md5",
        "-",
    ];
    text(&run(folder, "ffmpeg", &arguments))
}

#[test]
fn ffmpeg_seeks_in_a_video() {
    if !installed(&["ffmpeg"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let video = make_video(folder.path(), "mpeg4", "video.mp4");
    let index = video.windows(4).position(|four| four == b"moov");
    assert!(index > Some(video.len() / 2), "the index is at the end");
    let length = video.len() as u64;
    let resource = Resource::bytes(video)
        .header("Content-Type", "video/mp4")
        .cache_control("max-age=3600");
    let origin = serving("/video.mp4", resource);
    let edge = Setup::cached(&origin).start();
    let expected = frame(folder.path(), "video.mp4");
    let url = format!("http://{}/video.mp4", edge.http);
    for _ in 0..2 {
        assert_eq!(frame(folder.path(), &url), expected);
    }
    assert_eq!(origin.requests().len(), 1, "one fetch for all its jumps");
    assert_eq!(origin.read_record(|record| record.sent_total), length);
}

// The player first waits for the index at the end of the file. Each seek after that is served from
// the bytes that have arrived.
#[test]
fn ffmpeg_seeks_while_the_video_is_being_fetched() {
    if !installed(&["ffmpeg"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let video = make_video(folder.path(), "mpeg4", "video.mp4");
    let latch = Latch::at(video.len() as u64 / 2);
    let resource = Resource::bytes(video)
        .cache_control("max-age=3600")
        .hold_body(&latch);
    let origin = serving("/video.mp4", resource);
    let edge = Setup::cached(&origin).start();
    let expected = frame(folder.path(), "video.mp4");
    let url = format!("http://{}/video.mp4", edge.http);
    std::thread::scope(|scope| {
        let seeking = scope.spawn(|| frame(folder.path(), &url));
        crate::harness::eventually("it waits for the index", || edge.counter("requests") >= 2);
        latch.release();
        assert_eq!(seeking.join().expect("ffmpeg"), expected);
    });
    assert_eq!(origin.requests().len(), 1);
}
