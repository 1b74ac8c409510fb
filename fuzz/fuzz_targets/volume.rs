//! libFuzzer's entry to `sluice_fuzz::volume`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::volume(data));
