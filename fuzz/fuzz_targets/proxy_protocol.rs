//! libFuzzer's entry to `sluice_fuzz::proxy_preamble`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::proxy_preamble(data));
