//! Packets with descriptors whose closing takes long, with the engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpupool_fuzz::descriptors(data));
