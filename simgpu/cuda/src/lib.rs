//! A libcuda.so.1 on simulated cards.
