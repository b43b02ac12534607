//! `cuInit`, and the driver's version.

use crate::{
    calls::entry::{early_entry, put},
    device::{environment, initialised::initialise},
    error::CuError,
};

early_entry! {
    cuInit(flags: u32) {
        if flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        initialise()
    }
    cuDriverGetVersion(version: *mut i32) {
        put(version, environment::version())
    }
}
