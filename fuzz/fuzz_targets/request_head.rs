//! libFuzzer's entry to `sluice_fuzz::request_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::request_head(data));
