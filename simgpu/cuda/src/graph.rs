//! Graphs: pieces of work recorded from a stream, to be done later and again.
//!
//! A graph here is a list: work that was captured from one stream has one order.

use std::{
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    error::{CuError, Res},
    handles::{Handle, Registry, fresh},
    stream::Job,
    sync::lock,
};

/// A recorded piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    pub(crate) job: Job,
}

/// A graph, or one made ready to be launched; neither changes any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Arc<[Node]>,
    /// Flags it was made ready with.
    pub(crate) flags: u64,
    /// Objects of the program's that live as long as the graph and all that was made of it.
    pub(crate) kept: Arc<Kept>,
}

/// A recording in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Never used twice in a process.
    pub(crate) id: u64,
    /// Handle of the graph to be.
    pub(crate) graph: Handle,
    nodes: Vec<Node>,
    /// The node that the next one depends on. Boxed: programs hold its address while they record.
    pub(crate) tip: Option<Box<Handle>>,
}

pub(crate) static GRAPHS: Registry<Graph> = Registry::new();
pub(crate) static EXECUTABLES: Registry<Graph> = Registry::new();
static CAPTURES: AtomicU64 = AtomicU64::new(1);

impl Capture {
    /// An empty recording. Its graph exists from the start: programs ask for it while they record.
    pub(crate) fn begin() -> Self {
        let graph = GRAPHS.add(Graph::default());
        Self { id: CAPTURES.fetch_add(1, Relaxed), graph, nodes: Vec::new(), tip: None }
    }

    pub(crate) fn record(&mut self, job: Job) {
        let handle = fresh();
        self.nodes.push(Node { handle, job });
        self.tip = Some(Box::new(handle));
    }

    /// The handle of the finished graph.
    pub(crate) fn end(self) -> Handle {
        let kept = GRAPHS.find(self.graph).map(|graph| Arc::clone(&graph.kept)).unwrap_or_default();
        GRAPHS.put(self.graph, Arc::new(Graph { nodes: self.nodes.into(), flags: 0, kept }));
        self.graph
    }
}

/// The program's function that ends one of its objects.
type End = unsafe extern "C" fn(*mut c_void);

/// An object of the program's: it is ended when its last reference is given up.
#[derive(Debug)]
pub(crate) struct UserObject {
    object: *mut c_void,
    end: End,
    references: AtomicU32,
}

// SAFETY: the program passes object and function to be used on any thread.
unsafe impl Send for UserObject {}
// SAFETY: as above.
unsafe impl Sync for UserObject {}

pub(crate) static USER_OBJECTS: Registry<UserObject> = Registry::new();

/// References that a graph holds: object and number.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Vec<(Handle, u32)>>);

impl UserObject {
    pub(crate) fn new(object: *mut c_void, end: End, references: u32) -> Self {
        Self { object, end, references: AtomicU32::new(references) }
    }
}

/// Adds references to an object.
pub(crate) fn retain(object: Handle, count: u32) -> Res {
    USER_OBJECTS.get(object)?.references.fetch_add(count, Relaxed);
    Ok(())
}

/// Gives references up, and ends the object with the last.
pub(crate) fn release(object: Handle, count: u32) -> Res {
    let found = USER_OBJECTS.get(object)?;
    let before = found.references.fetch_update(Relaxed, Relaxed, |held| held.checked_sub(count));
    if before.map_err(|_| CuError::INVALID_VALUE)? == count {
        USER_OBJECTS.remove(object)?;
        // SAFETY: the program gave the function to be called once, now.
        unsafe { (found.end)(found.object) };
    }
    Ok(())
}

impl Kept {
    pub(crate) fn add(&self, object: Handle, count: u32) {
        lock(&self.0).push((object, count));
    }

    /// Forgets as many references to an object as it was told to keep at once.
    pub(crate) fn forget(&self, object: Handle, count: u32) -> Res {
        let mut kept = lock(&self.0);
        let place = kept.iter().position(|entry| *entry == (object, count)).ok_or(CuError::INVALID_VALUE)?;
        kept.swap_remove(place);
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (object, count) in std::mem::take(&mut *lock(&self.0)) {
            let _ = release(object, count);
        }
    }
}
