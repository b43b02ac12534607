//! A libnvidia-ml.so.1 on simulated cards.
