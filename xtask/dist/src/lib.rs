//! Builds what is installed, shown and tested, and lays it out in one folder.
//!
//! `cargo xtask` asks for it, and so do tests that need built programs and libraries ([`given_or_built`]): a plain
//! `cargo test -p CRATE` builds them by itself. This room knows cargo and where it leaves things; it knows nothing of
//! what is done with them.

mod previous;

mod layout;

mod cargo;

mod error;

pub use cargo::{cargo, command, root, succeed, target_folder};
pub use error::Error;
pub use layout::{build, build_for_demo, given_or_built};
pub use previous::{previous_commit, previous_release};
