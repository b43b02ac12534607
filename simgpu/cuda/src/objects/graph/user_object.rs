//! User objects: resources of the program that are released when the last graph that retains them has gone.

use std::{
    ffi::c_void,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    sync::lock,
};

/// The program's function that releases the resource behind a user object; called once.
type Destructor = unsafe extern "C" fn(*mut c_void);

/// A `CUuserObject`, with its count of references.
#[derive(Debug)]
pub(crate) struct UserObject {
    object: *mut c_void,
    end: Destructor,
    references: AtomicU32,
}

// SAFETY: the program passes object and function to be used on any thread.
unsafe impl Send for UserObject {}
// SAFETY: as above.
unsafe impl Sync for UserObject {}

pub(crate) static USER_OBJECTS: Registry<UserObject> = Registry::new();

/// References to user objects that a graph and all that was made of it hold: object and number.
#[derive(Debug, Default)]
pub(crate) struct RetainedObjects(Mutex<Vec<(Handle, u32)>>);

impl UserObject {
    pub(crate) fn new(object: *mut c_void, end: Destructor, references: u32) -> Self {
        Self { object, end, references: AtomicU32::new(references) }
    }
}

/// Adds references to an object.
pub(crate) fn retain(object: Handle, count: u32) -> CuResult {
    USER_OBJECTS.get(object)?.references.fetch_add(count, Relaxed);
    Ok(())
}

/// Gives references up; with the last one the program's destructor is called.
pub(crate) fn release(object: Handle, count: u32) -> CuResult {
    let found = USER_OBJECTS.get(object)?;
    let before = found.references.fetch_update(Relaxed, Relaxed, |held| held.checked_sub(count));
    if before.map_err(|_| CuError::INVALID_VALUE)? == count {
        USER_OBJECTS.remove(object)?;
        // SAFETY: the program gave the function to be called once, now.
        unsafe { (found.end)(found.object) };
    }
    Ok(())
}

impl RetainedObjects {
    pub(crate) fn add(&self, object: Handle, count: u32) {
        lock(&self.0).push((object, count));
    }

    /// Forgets as many references to an object as it was told to keep at once.
    pub(crate) fn forget(&self, object: Handle, count: u32) -> CuResult {
        let mut retained = lock(&self.0);
        let place =
            retained.iter().position(|entry| *entry == (object, count)).ok_or(CuError::INVALID_VALUE)?;
        retained.swap_remove(place);
        Ok(())
    }
}

impl Drop for RetainedObjects {
    fn drop(&mut self) {
        for (object, count) in std::mem::take(&mut *lock(&self.0)) {
            let _ = release(object, count);
        }
    }
}
