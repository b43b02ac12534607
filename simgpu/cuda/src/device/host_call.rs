//! Functions of the program's that are called in a stream's order.

use std::ffi::c_void;

/// A function of the program's that is called when its turn in the stream has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) argument: *mut c_void,
}

// SAFETY: the program passes both to be used on a thread of the driver's.
unsafe impl Send for HostCall {}
// SAFETY: as above; the driver never looks behind the argument.
unsafe impl Sync for HostCall {}
