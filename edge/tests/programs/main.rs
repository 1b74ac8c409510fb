//! Tests with real clients through the real program: curl, wget, ffmpeg, Chromium, apt.
//!
//! If a client is not installed, its tests are skipped with a message; with `CI=true` they fail.

mod apt;
mod chromium;
mod curl;
mod ffmpeg;
#[allow(
    dead_code,
    reason = "shared with the tests of behaviour, which use the rest"
)]
#[path = "../behaviour/harness/mod.rs"]
mod harness;
mod tools;
mod wget;
