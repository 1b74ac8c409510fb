//! libFuzzer's entry to `sluice_fuzz::location`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::location(data));
