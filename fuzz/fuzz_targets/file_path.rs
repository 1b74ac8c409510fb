//! libFuzzer's entry to `sluice_fuzz::file_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::file_path(data));
