//! The simulated cards: their state in shared memory.
