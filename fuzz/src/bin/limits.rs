//! Pages of limits, with the engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpupool_fuzz::limits(data));
