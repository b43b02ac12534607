//! What a newcomer or a developer types: demo, test, dist, bench.

fn main() {}
