//! libFuzzer's entry to `sluice_fuzz::authorization`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::authorization(data));
