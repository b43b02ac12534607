//! Graphs: pieces of work recorded from a stream, to be done later and again.
//!
//! A graph here is a list: work that was captured from one stream has one order.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    error::Res,
    handles::{Handle, Registry, fresh},
    stream::Job,
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

    pub(crate) fn record(&mut self, job: Job) -> Res {
        let handle = fresh();
        self.nodes.push(Node { handle, job });
        self.tip = Some(Box::new(handle));
        Ok(())
    }

    /// The handle of the finished graph.
    pub(crate) fn end(self) -> Handle {
        GRAPHS.put(self.graph, Arc::new(Graph { nodes: self.nodes.into(), flags: 0 }));
        self.graph
    }
}
