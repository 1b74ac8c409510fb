//! libFuzzer's entry to `sluice_fuzz::tls_connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::tls_connection(data));
