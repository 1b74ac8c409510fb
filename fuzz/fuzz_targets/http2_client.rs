//! libFuzzer's entry to `sluice_fuzz::http2_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::http2_client(data));
