//! libFuzzer's entry to `proxy_protocol::exercise`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice::downstream::proxy_protocol::exercise(data));
