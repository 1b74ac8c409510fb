//! libFuzzer's entry to `head::exercise`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sluice::downstream::http1::head::exercise(data));
