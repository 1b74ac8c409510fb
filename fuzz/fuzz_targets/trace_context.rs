//! libFuzzer's entry to `sluice_fuzz::trace_context`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice_fuzz::trace_context(data));
