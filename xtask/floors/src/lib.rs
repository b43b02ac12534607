//! Holds the modules of a crate to its floors.
//!
//! Each crate declares its floors in a file `FLOORS` beside its manifest: a floor per line, the top one first, names of
//! modules separated by blanks, `#` before a comment. What is held:
//!
//! * every module on top of a crate stands on exactly one floor and uses only modules of lower floors; the crate's root
//!   is above them all, and none of them uses what the root declares;
//! * the root declares its modules in that order, so that the module tree shows the floors;
//! * inside a module with children, at any depth, siblings use one another in one direction only. A child may use what
//!   its parent's file declares, since a folder is one room and its file is its face;
//! * a module with children is written `room.rs` and `room/`, never `room/mod.rs`.
//!
//! Read are `use` lines and every other path that begins with `crate`, `self` or `super`, inside macros too; a name that a
//! module passes on from another is followed to where it comes from. Code for tests (`#[cfg(test)]`) is left out.
//!
//! This room knows no crate of the workspace and no cargo: it is given folders and says what is wrong in them.

mod check;

mod error;

mod floors;
mod tree;

mod paths;

pub use check::{Breach, check};
pub use error::Error;
pub use floors::{FLOORS, Floors, FloorsError};
pub use tree::TreeError;
