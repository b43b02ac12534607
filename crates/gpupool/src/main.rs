//! The one binary: subcommands and output.

fn main() {}
