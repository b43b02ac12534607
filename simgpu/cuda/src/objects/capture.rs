//! Capture of streams: work that is submitted becomes nodes of a graph instead of being done.
//!
//! A capture begins in one stream and ends there; others join it by waiting for an event that was recorded in it.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::ThreadId,
};

use gpupool_nvidia::cuda::{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED};

use crate::{
    error::{CuError, CuResult},
    handles::Handle,
    objects::graph::{self, Graph, node::NodeWork},
    sync::lock,
};

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct CaptureSequence {
    /// Never used twice in a process.
    pub(crate) id: u64,
    /// Handle of the graph to be.
    pub(crate) graph: Handle,
    mode: u32,
    thread: ThreadId,
    /// Whether the legacy default stream would wait for it.
    blocking: bool,
    /// Something happened that can't be captured: it ends without a graph.
    invalidated: AtomicBool,
}

/// A stream's part in a capture.
#[derive(Debug)]
pub(crate) struct StreamCapture {
    pub(crate) sequence: Arc<CaptureSequence>,
    /// The nodes that the next one comes after. Boxed: programs hold its address while they record.
    pub(crate) dependencies: Box<[Handle]>,
    /// Whether it began here.
    origin: bool,
    /// Whether the graph was the program's before.
    into_own: bool,
}

static ACTIVE: Mutex<Vec<Arc<CaptureSequence>>> = Mutex::new(Vec::new());
/// How many there are in [`ACTIVE`]: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The thread's own mode.
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Sets the calling thread's mode, and gives the one before.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

impl CaptureSequence {
    pub(crate) fn is_invalidated(&self) -> bool {
        self.invalidated.load(Relaxed)
    }

    /// Whether it has not ended.
    pub(crate) fn is_active(&self) -> bool {
        lock(&ACTIVE).iter().any(|active| active.id == self.id)
    }

    /// Lets it end without a graph.
    pub(crate) fn invalidate(&self) {
        self.invalidated.store(true, Relaxed);
    }

    /// Notes that it has ended: nothing can invalidate it any more.
    pub(crate) fn end(&self) {
        lock(&ACTIVE).retain(|active| active.id != self.id);
        COUNT.fetch_sub(1, Relaxed);
    }
}

impl StreamCapture {
    /// Begins a capture, into a new graph or after nodes of one of the program's. `blocking` says whether the legacy
    /// default stream waits for the stream where it begins.
    pub(crate) fn begin(blocking: bool, mode: u32, into: Option<(Handle, &[Handle])>) -> CuResult<Self> {
        let (graph, dependencies) = match into {
            Some((handle, dependencies)) => {
                graph::graph(handle)?;
                (handle, dependencies.into())
            }
            None => (graph::create(), Box::default()),
        };
        let sequence = Arc::new(CaptureSequence {
            id: IDS.fetch_add(1, Relaxed),
            graph,
            mode,
            thread: std::thread::current().id(),
            blocking,
            invalidated: AtomicBool::new(false),
        });
        lock(&ACTIVE).push(Arc::clone(&sequence));
        COUNT.fetch_add(1, Relaxed);
        Ok(Self { sequence, dependencies, origin: true, into_own: into.is_some() })
    }

    /// A stream's part in a capture that began elsewhere, after its nodes `dependencies`.
    pub(crate) fn part_of(sequence: &Arc<CaptureSequence>, dependencies: &[Handle]) -> Self {
        Self {
            sequence: Arc::clone(sequence),
            dependencies: dependencies.into(),
            origin: false,
            into_own: false,
        }
    }

    /// Whether the capture began in this stream.
    pub(crate) const fn is_origin(&self) -> bool {
        self.origin
    }

    /// The graph of a capture that has ended, where `left` are the last nodes of the other streams. Fails where
    /// one of these does not come before the end, or something happened that can't be captured; then there is no graph.
    pub(crate) fn finish(&self, left: &[Handle]) -> CuResult<Handle> {
        let sequence = &self.sequence;
        let before = graph::graph(sequence.graph).map(|graph| ancestors(&graph, &self.dependencies))?;
        let verdict = if sequence.is_invalidated() {
            Err(CuError::STREAM_CAPTURE_INVALIDATED)
        } else if left.iter().any(|tip| !before.contains(tip)) {
            Err(CuError::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(sequence.graph)
        };
        if verdict.is_err() && !self.into_own {
            graph::destroy(sequence.graph)?;
        }
        verdict
    }

    /// Adds work after what the stream has recorded so far.
    pub(crate) fn record(&mut self, work: NodeWork) -> CuResult {
        if self.sequence.is_invalidated() {
            return Err(CuError::STREAM_CAPTURE_INVALIDATED);
        }
        let node = graph::add(self.sequence.graph, &self.dependencies, work)?;
        self.dependencies = Box::new([node]);
        Ok(())
    }

    /// Adds a node that frees what a node of the same graph allocated, or what is allocated already.
    pub(crate) fn record_free(&mut self, pointer: u64) -> CuResult {
        if !graph::can_free(self.sequence.graph, pointer)? {
            return Err(CuError::INVALID_VALUE);
        }
        self.record(NodeWork::Free(pointer))
    }

    /// Lets what comes next come after `dependencies` too.
    pub(crate) fn join(&mut self, dependencies: &[Handle]) {
        let all: BTreeSet<_> = self.dependencies.iter().chain(dependencies).copied().collect();
        self.dependencies = all.into_iter().collect();
    }
}

/// What comes before `dependencies`, and they themselves.
fn ancestors(graph: &Graph, dependencies: &[Handle]) -> BTreeSet<Handle> {
    let nodes = graph.nodes();
    let mut found: BTreeSet<Handle> = dependencies.iter().copied().collect();
    let mut open = dependencies.to_vec();
    while let Some(next) = open.pop() {
        let after = nodes.iter().find(|node| node.handle == next).map(|node| &node.after);
        open.extend(after.into_iter().flatten().copied().filter(|first| found.insert(*first)));
    }
    found
}

/// Fails, and invalidates the captures concerned, where the calling thread's mode forbids calls that could touch one.
pub(crate) fn forbid() -> CuResult {
    if COUNT.load(Relaxed) == 0 {
        return Ok(());
    }
    let (mode, here) = (MODE.get(), std::thread::current().id());
    invalidate(CuError::STREAM_CAPTURE_UNSUPPORTED, |sequence| {
        let own = sequence.thread == here && sequence.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        mode != CU_STREAM_CAPTURE_MODE_RELAXED
            && (own
                || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && sequence.mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
    })
}

/// Fails, and invalidates every capture, where there is one: the caller waits for all work.
pub(crate) fn forbid_all() -> CuResult {
    if COUNT.load(Relaxed) == 0 { Ok(()) } else { invalidate(CuError::STREAM_CAPTURE_UNSUPPORTED, |_| true) }
}

/// Fails, and invalidates the captures of streams that the legacy default stream waits for: the caller works in that
/// one.
pub(crate) fn forbid_legacy() -> CuResult {
    if COUNT.load(Relaxed) == 0 {
        return Ok(());
    }
    invalidate(CuError::STREAM_CAPTURE_IMPLICIT, |sequence| sequence.blocking)
}

fn invalidate(error: CuError, concerned: impl Fn(&CaptureSequence) -> bool) -> CuResult {
    let active = lock(&ACTIVE);
    let mut any = false;
    for sequence in active.iter().filter(|sequence| concerned(sequence)) {
        sequence.invalidate();
        any = true;
    }
    if any { Err(error) } else { Ok(()) }
}
