//! A small nvidia-smi over NVML.

fn main() {}
