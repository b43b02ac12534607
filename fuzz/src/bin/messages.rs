//! Frames with descriptors, through a socket, with the engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpupool_fuzz::messages(data));
