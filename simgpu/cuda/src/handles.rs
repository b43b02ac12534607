//! Handles: numbers that look like pointers, are never used twice, and lead to objects.
//!
//! A program never looks behind a handle; here a wrong one is an error and not a crash.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    error::{CuError, CuResult},
    sync::{read, write},
};

/// A `CUcontext`, `CUstream`, … as the program holds it.
pub(crate) type Handle = u64;

/// Above every address that Linux gives to programs by itself, so that a handle is no pointer by accident.
static NEXT: AtomicU64 = AtomicU64::new(0x5147_0000_0000_0000);

/// A handle that was never used before.
pub(crate) fn fresh() -> Handle {
    NEXT.fetch_add(64, Relaxed)
}

/// All live objects of one kind.
#[derive(Debug)]
pub(crate) struct Registry<T>(RwLock<BTreeMap<Handle, Arc<T>>>);

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Keeps `object` under a new handle.
    pub(crate) fn add(&self, object: T) -> Handle {
        let handle = fresh();
        self.put(handle, Arc::new(object));
        handle
    }

    /// Keeps `object` under a handle that it brings along.
    pub(crate) fn put(&self, handle: Handle, object: Arc<T>) {
        write(&self.0).insert(handle, object);
    }

    /// The object, or `CUDA_ERROR_INVALID_HANDLE`.
    pub(crate) fn get(&self, handle: Handle) -> CuResult<Arc<T>> {
        self.find(handle).ok_or(CuError::INVALID_HANDLE)
    }

    /// The object, if the handle is one of this kind.
    pub(crate) fn find(&self, handle: Handle) -> Option<Arc<T>> {
        read(&self.0).get(&handle).cloned()
    }

    /// Takes the object out, or `CUDA_ERROR_INVALID_HANDLE`.
    pub(crate) fn remove(&self, handle: Handle) -> CuResult<Arc<T>> {
        write(&self.0).remove(&handle).ok_or(CuError::INVALID_HANDLE)
    }

    /// Takes out every object that `gone` says is gone.
    pub(crate) fn remove_all(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = write(&self.0);
        let handles: Vec<_> =
            objects.iter().filter(|(_, object)| gone(object)).map(|(&handle, _)| handle).collect();
        handles.into_iter().filter_map(|handle| objects.remove(&handle)).collect()
    }

    /// The handle of the first object that `wanted` holds for.
    pub(crate) fn handle_of(&self, wanted: impl Fn(&T) -> bool) -> Option<Handle> {
        read(&self.0).iter().find(|(_, object)| wanted(object)).map(|(handle, _)| *handle)
    }

    /// Shows every object to `look`, which must not come back here.
    pub(crate) fn each(&self, mut look: impl FnMut(&T)) {
        read(&self.0).values().for_each(|object| look(object));
    }

    /// Whether `wanted` holds for any object.
    pub(crate) fn any(&self, wanted: impl Fn(&T) -> bool) -> bool {
        read(&self.0).values().any(|object| wanted(object))
    }
}
