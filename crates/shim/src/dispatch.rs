//! How programs get to the hooks.
//!
//! * `entry_points`: a function for every row of the table;
//! * `bindings`: which hook a row leads to;
//! * `trampolines`, `words`: the assembly between the two;
//! * `resolver`: `dlsym` and `cuGetProcAddress`, which hand out entry points.
//!
//! The top floor: nothing uses it but programs.

mod bindings;
mod entry_points;
mod resolver;
mod trampolines;
mod words;

use crate::table::Entry;

/// Address of the function that a program gets for a row.
fn address(entry: Entry) -> usize {
    entry_points::address(entry)
}
