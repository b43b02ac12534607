//! Nodes: one piece of work each.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    device::host_call::HostCall,
    handles::{Handle, fresh},
    memory::{
        graph_memory::GraphMemory,
        space::{MemoryCopy, MemoryFill},
    },
    objects::{launch::Launch, memcpy3d::Body, stream_work::StreamWork},
};

/// What a node does.
#[derive(Debug, Clone)]
pub(crate) enum NodeWork {
    Kernel(Arc<Launch>),
    /// With the description that the program gave, if it gave one.
    Copy(MemoryCopy, Option<Box<Body>>),
    Fill(MemoryFill),
    Call(HostCall),
    /// A whole graph, which belongs to the node.
    Child(Handle),
    Empty,
    /// Waits for an event.
    Wait(Handle),
    /// Records an event.
    Record(Handle),
    Allocate(Arc<GraphMemory>),
    Free(u64),
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct GraphNode {
    pub(crate) handle: Handle,
    /// The node that it is a copy of, or 0.
    pub(crate) original: Handle,
    /// Its number, never used twice in a process.
    pub(crate) number: u32,
    pub(crate) work: NodeWork,
    /// What has to be done before it.
    pub(crate) after: Vec<Handle>,
    /// `CUkernelNodeAttrValue`s: kept, and given back when asked.
    pub(crate) attributes: BTreeMap<u32, [u64; 8]>,
}

static NUMBERS: AtomicU32 = AtomicU32::new(1);

impl GraphNode {
    pub(crate) fn new(work: NodeWork, after: Vec<Handle>) -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { handle: fresh(), original: 0, number, work, after, attributes: BTreeMap::new() }
    }
}

impl NodeWork {
    /// `CUgraphNodeType`.
    pub(crate) const fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(..) => 1,
            Self::Fill(_) => 2,
            Self::Call(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }
}

impl From<StreamWork> for NodeWork {
    fn from(job: StreamWork) -> Self {
        match job {
            StreamWork::Kernel(launch) => Self::Kernel(launch),
            StreamWork::Copy(copy) => Self::Copy(copy, None),
            StreamWork::Fill(fill) => Self::Fill(fill),
            StreamWork::Call(call) => Self::Call(call),
        }
    }
}
