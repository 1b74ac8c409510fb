//! libFuzzer's entry to `sluice_fuzz::cache_control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::cache_control(data));
