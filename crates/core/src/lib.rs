//! Pure decisions: the vocabulary and the pool.
