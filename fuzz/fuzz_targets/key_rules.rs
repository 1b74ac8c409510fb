//! libFuzzer's entry to `sluice_fuzz::key_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::key_rules(data));
