//! libFuzzer's entry to `sluice_fuzz::signed_url`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::signed_url(data));
