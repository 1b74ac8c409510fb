//! libFuzzer's entry to `sluice_fuzz::range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::range(data));
