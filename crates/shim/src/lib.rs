//! The library that is loaded into every GPU program of a sharing group.
