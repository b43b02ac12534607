//! Every exported name, generated from `entry_points.tsv`: the table, and the names that nothing here implements.

use crate::{calls::entry::run, error::CuError};

/// One exported function.
#[derive(Debug)]
pub(crate) struct EntryPoint {
    pub(crate) base: &'static str,
    /// The CUDA version that introduced it.
    pub(crate) version: i32,
    /// Whether its default stream is the calling thread's own.
    pub(crate) per_thread: bool,
    pub(crate) code: extern "C" fn() -> i32,
}

/// Exports a name of the driver API that is not implemented.
macro_rules! unsupported {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the names are the driver API's")]
        extern "C" fn $name() -> i32 {
            $crate::calls::exports::unsupported(stringify!($name))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));

fn unsupported(name: &str) -> i32 {
    run(name, || Err(CuError::NOT_SUPPORTED))
}
