//! libFuzzer's entry to `sluice_fuzz::judged`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::judged(data));
