//! Real programs get what they want through the real program: curl, wget, ffmpeg, chromium, apt.
//!
//! Where one is not installed its tests are skipped, and say so; with `CI=true` they fail.

mod apt;
mod chromium;
mod curl;
mod ffmpeg;
#[allow(
    dead_code,
    reason = "shared with the tests of behaviour, which use the rest"
)]
#[path = "../behaviour/harness.rs"]
mod harness;
mod tools;
mod wget;
