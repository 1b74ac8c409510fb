//! libFuzzer's entry to `sluice_fuzz::chunked_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::chunked_body(data));
