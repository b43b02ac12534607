//! Nodes of graphs: a unit of work each, with what has to be done before it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{
    CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_HOST, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
    CU_GRAPH_NODE_TYPE_MEM_FREE, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT, CUDA_MEMCPY3D, CUgraphNodeType,
};

use crate::{
    device::host_call::HostCall,
    handles::{Handle, fresh},
    memory::{
        graph_memory::GraphMemory,
        space::{MemoryCopy, MemoryFill},
    },
    objects::{launch::Launch, stream_work::StreamWork},
};

/// What a node does.
#[derive(Debug, Clone)]
pub(crate) enum NodeWork {
    Kernel(Arc<Launch>),
    /// With the description that the program gave, if it gave one.
    Copy(MemoryCopy, Option<Box<CUDA_MEMCPY3D>>),
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

/// A node of a graph: what it does, and after which nodes of the same graph.
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
    /// The type of node that does it.
    pub(crate) const fn kind(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(..) => CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(_) => CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Call(_) => CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Wait(_) => CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Record(_) => CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Allocate(_) => CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CU_GRAPH_NODE_TYPE_MEM_FREE,
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
