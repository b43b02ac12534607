//! Recording of streams: work that is submitted becomes nodes of a graph instead of being done.
//!
//! A recording begins in one stream and ends there; others join it by waiting for an event that was recorded in it.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread::ThreadId,
};

use crate::{
    error::{CuError, Res},
    handles::Handle,
    objects::graph::{self, Graph, node::Work},
    sync::lock,
};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL` and `…_RELAXED`: who may not make calls that could touch a recording.
const GLOBAL: u32 = 0;
pub(crate) const RELAXED: u32 = 2;

/// A recording in progress.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Never used twice in a process.
    pub(crate) id: u64,
    /// Handle of the graph to be.
    pub(crate) graph: Handle,
    mode: u32,
    thread: ThreadId,
    /// Whether the legacy default stream would wait for it.
    blocking: bool,
    /// Something happened that can't be recorded: it ends without a graph.
    broken: AtomicBool,
}

/// A stream's part in a recording.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) recording: Arc<Recording>,
    /// The nodes that the next one comes after. Boxed: programs hold its address while they record.
    pub(crate) tips: Box<[Handle]>,
    /// Whether it began here.
    origin: bool,
    /// Whether the graph was the program's before.
    into_own: bool,
}

static ACTIVE: Mutex<Vec<Arc<Recording>>> = Mutex::new(Vec::new());
/// How many there are in [`ACTIVE`]: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The thread's own mode.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the calling thread's mode, and gives the one before.
pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

impl Recording {
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Whether it has not ended.
    pub(crate) fn is_active(&self) -> bool {
        lock(&ACTIVE).iter().any(|active| active.id == self.id)
    }

    /// Lets it end without a graph.
    pub(crate) fn spoil(&self) {
        self.broken.store(true, Relaxed);
    }

    /// Notes that it has ended: nothing can spoil it any more.
    pub(crate) fn end(&self) {
        lock(&ACTIVE).retain(|active| active.id != self.id);
        COUNT.fetch_sub(1, Relaxed);
    }
}

impl Capture {
    /// Begins a recording, into a new graph or after nodes of one of the program's. `blocking` says whether the legacy
    /// default stream waits for the stream where it begins.
    pub(crate) fn begin(blocking: bool, mode: u32, into: Option<(Handle, &[Handle])>) -> Res<Self> {
        let (graph, tips) = match into {
            Some((handle, tips)) => {
                graph::graph(handle)?;
                (handle, tips.into())
            }
            None => (graph::create(), Box::default()),
        };
        let recording = Arc::new(Recording {
            id: IDS.fetch_add(1, Relaxed),
            graph,
            mode,
            thread: std::thread::current().id(),
            blocking,
            broken: AtomicBool::new(false),
        });
        lock(&ACTIVE).push(Arc::clone(&recording));
        COUNT.fetch_add(1, Relaxed);
        Ok(Self { recording, tips, origin: true, into_own: into.is_some() })
    }

    /// A stream's part in a recording that began elsewhere, after its nodes `tips`.
    pub(crate) fn part_of(recording: &Arc<Recording>, tips: &[Handle]) -> Self {
        Self { recording: Arc::clone(recording), tips: tips.into(), origin: false, into_own: false }
    }

    /// Whether the recording began in this stream.
    pub(crate) const fn is_origin(&self) -> bool {
        self.origin
    }

    /// The graph of a recording that has ended, where `left` are the last nodes of the other streams. Fails where
    /// one of these does not come before the end, or something happened that can't be recorded; then there is no graph.
    pub(crate) fn finish(&self, left: &[Handle]) -> Res<Handle> {
        let recording = &self.recording;
        let before = graph::graph(recording.graph).map(|graph| ancestors(&graph, &self.tips))?;
        let verdict = if recording.is_broken() {
            Err(CuError::STREAM_CAPTURE_INVALIDATED)
        } else if left.iter().any(|tip| !before.contains(tip)) {
            Err(CuError::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(recording.graph)
        };
        if verdict.is_err() && !self.into_own {
            graph::destroy(recording.graph)?;
        }
        verdict
    }

    /// Adds work after what the stream has recorded so far.
    pub(crate) fn record(&mut self, work: Work) -> Res {
        if self.recording.is_broken() {
            return Err(CuError::STREAM_CAPTURE_INVALIDATED);
        }
        let node = graph::add(self.recording.graph, &self.tips, work)?;
        self.tips = Box::new([node]);
        Ok(())
    }

    /// Adds a node that frees what a node of the same graph allocated, or what is allocated already.
    pub(crate) fn record_free(&mut self, pointer: u64) -> Res {
        if !graph::can_free(self.recording.graph, pointer)? {
            return Err(CuError::INVALID_VALUE);
        }
        self.record(Work::Free(pointer))
    }

    /// Lets what comes next come after `tips` too.
    pub(crate) fn join(&mut self, tips: &[Handle]) {
        let all: BTreeSet<_> = self.tips.iter().chain(tips).copied().collect();
        self.tips = all.into_iter().collect();
    }
}

/// What comes before `tips`, and they themselves.
fn ancestors(graph: &Graph, tips: &[Handle]) -> BTreeSet<Handle> {
    let nodes = graph.nodes();
    let mut found: BTreeSet<Handle> = tips.iter().copied().collect();
    let mut open = tips.to_vec();
    while let Some(next) = open.pop() {
        let after = nodes.iter().find(|node| node.handle == next).map(|node| &node.after);
        open.extend(after.into_iter().flatten().copied().filter(|first| found.insert(*first)));
    }
    found
}

/// Fails, and spoils the recordings concerned, where the calling thread's mode forbids calls that could touch one.
pub(crate) fn forbid() -> Res {
    if COUNT.load(Relaxed) == 0 {
        return Ok(());
    }
    let (mode, here) = (MODE.get(), std::thread::current().id());
    spoil(CuError::STREAM_CAPTURE_UNSUPPORTED, |recording| {
        let own = recording.thread == here && recording.mode != RELAXED;
        mode != RELAXED && (own || (mode == GLOBAL && recording.mode == GLOBAL))
    })
}

/// Fails, and spoils every recording, where there is one: the caller waits for all work.
pub(crate) fn forbid_all() -> Res {
    if COUNT.load(Relaxed) == 0 { Ok(()) } else { spoil(CuError::STREAM_CAPTURE_UNSUPPORTED, |_| true) }
}

/// Fails, and spoils the recordings of streams that the legacy default stream waits for: the caller works in that one.
pub(crate) fn forbid_legacy() -> Res {
    if COUNT.load(Relaxed) == 0 {
        return Ok(());
    }
    spoil(CuError::STREAM_CAPTURE_IMPLICIT, |recording| recording.blocking)
}

fn spoil(error: CuError, concerned: impl Fn(&Recording) -> bool) -> Res {
    let active = lock(&ACTIVE);
    let mut any = false;
    for recording in active.iter().filter(|recording| concerned(recording)) {
        recording.spoil();
        any = true;
    }
    if any { Err(error) } else { Ok(()) }
}
