//! libFuzzer's entry to `sluice_fuzz::date`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::date(data));
