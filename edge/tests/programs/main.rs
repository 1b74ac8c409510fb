//! Tests with real clients (browsers, curl, nghttp, h2load, wget, ffmpeg, apt, gRPC, Prometheus) and the real program.
//!
//! If a client is not installed, its tests are skipped with a message. With `CI=true` they fail
//! instead.

mod apt;
mod browsers;
mod curl;
mod ffmpeg;
mod grpc;
#[allow(
    dead_code,
    reason = "shared with the tests of behaviour, which use the rest"
)]
#[path = "../behaviour/harness/mod.rs"]
mod harness;
mod http2;
mod http2_origins;
mod languages;
mod prometheus;
mod tools;
mod wget;
