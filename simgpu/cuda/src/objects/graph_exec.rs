//! Executable graphs (`CUgraphExec`): the work of a graph, copied and put into an order in which it can be done.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use gpupool_nvidia::cuda::{
    CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED,
    CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH,
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, CUgraphExecUpdateResult, CUgraphInstantiate_flags,
};

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::{graph_memory, pool},
    objects::{
        event,
        graph::{Graph, graph, node::NodeWork, user_object::RetainedObjects},
        stream::TargetStream,
        stream_work::StreamWork,
    },
    sync::lock,
};

/// Every flag that an executable graph can have.
const FLAGS: CUgraphInstantiate_flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
    | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
    | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

/// A node of an executable graph.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The node's handle.
    pub(crate) node: Handle,
    pub(crate) work: NodeWork,
    pub(crate) enabled: bool,
    after: Vec<Handle>,
    /// The steps of a child graph.
    child: Vec<Self>,
}

/// A `CUgraphExec`; later changes of the graph that it was made of do not touch it.
#[derive(Debug)]
pub(crate) struct ExecutableGraph {
    pub(crate) flags: u64,
    pub(crate) id: u32,
    steps: Mutex<Vec<Step>>,
    /// The graph that has memory and can be made ready only once at a time, or 0.
    only_of: Handle,
    _retained: Arc<RetainedObjects>,
}

pub(crate) static EXECUTABLES: Registry<ExecutableGraph> = Registry::new();

fn steps(whole: &Graph) -> CuResult<Vec<Step>> {
    let nodes = whole.in_order()?.into_iter();
    nodes
        .map(|node| {
            let child = match node.work {
                NodeWork::Child(child) => steps(&*graph(child)?)?,
                _ => Vec::new(),
            };
            Ok(Step { node: node.handle, work: node.work, enabled: true, after: node.after, child })
        })
        .collect()
}

/// Makes a graph ready. Fails where its nodes wait for each other, and where it takes memory and is ready already.
pub(crate) fn instantiate(handle: Handle, flags: u64) -> CuResult<Handle> {
    if flags & !FLAGS != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let graph = graph(handle)?;
    let only_of = if graph.has_memory() { handle } else { 0 };
    if only_of != 0 && EXECUTABLES.any(|other| other.only_of == only_of) {
        return Err(CuError::INVALID_VALUE);
    }
    let steps = Mutex::new(steps(&graph)?);
    Ok(EXECUTABLES.add(ExecutableGraph {
        flags,
        id: graph.id,
        steps,
        only_of,
        _retained: Arc::clone(&graph.retained),
    }))
}

/// The executable graph behind a handle.
pub(crate) fn executable(handle: Handle) -> CuResult<Arc<ExecutableGraph>> {
    EXECUTABLES.find(handle).ok_or(CuError::INVALID_VALUE)
}

impl ExecutableGraph {
    /// Does the work in the stream's order. The memory that it needs at the same time is taken first: where that fails
    /// nothing is done.
    pub(crate) fn launch(&self, target: &TargetStream) -> CuResult {
        let steps = lock(&self.steps).clone();
        if self.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH != 0 {
            for memory in allocations(&steps).filter(|memory| memory.is_live()) {
                graph_memory::end(memory.base)?;
            }
        } else if allocations(&steps).any(|memory| memory.is_live()) {
            return Err(CuError::INVALID_VALUE);
        }
        reserve(&steps)?;
        run(&steps, target)
    }

    /// Takes the memory that a launch will need.
    pub(crate) fn upload(&self) -> CuResult {
        reserve(&lock(&self.steps))
    }

    /// Runs `change` on the step of a node.
    pub(crate) fn with_step<T>(
        &self,
        node: Handle,
        change: impl FnOnce(&mut Step) -> CuResult<T>,
    ) -> CuResult<T> {
        let mut steps = lock(&self.steps);
        change(steps.iter_mut().find(|step| step.node == node).ok_or(CuError::INVALID_VALUE)?)
    }

    /// Puts a graph of the same shape in the place of a child graph.
    pub(crate) fn set_child(&self, node: Handle, child: Handle) -> CuResult {
        let new = steps(&*graph(child)?)?;
        self.with_step(node, |step| {
            if !matches!(step.work, NodeWork::Child(_)) || difference(&step.child, &new).is_some() {
                return Err(CuError::INVALID_VALUE);
            }
            step.child = new;
            Ok(())
        })
    }

    /// Puts another graph's work in the place of its own. Where the two differ in more than parameters nothing changes;
    /// then it gives `CUgraphExecUpdateResult` and the node that differs.
    pub(crate) fn update(&self, handle: Handle) -> CuResult<Result<(), (CUgraphExecUpdateResult, Handle)>> {
        let new = steps(&*graph(handle)?)?;
        let mut own = lock(&self.steps);
        if let Some(difference) = difference(&own, &new) {
            return Ok(Err(difference));
        }
        *own = new;
        Ok(Ok(()))
    }
}

/// How two executable graphs differ in more than parameters, and the node of `new` that differs.
fn difference(own: &[Step], new: &[Step]) -> Option<(CUgraphExecUpdateResult, Handle)> {
    if own.len() != new.len() {
        return Some((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new.last().map_or(0, |step| step.node)));
    }
    // Nodes are told by their places.
    let places = |steps: &[Step], step: &Step| -> BTreeSet<Option<usize>> {
        step.after.iter().map(|first| steps.iter().position(|found| found.node == *first)).collect()
    };
    own.iter().zip(new).find_map(|(old, step)| {
        if old.work.kind() != step.work.kind() {
            return Some((CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, step.node));
        }
        if places(own, old) != places(new, step) {
            return Some((CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, step.node));
        }
        if let (NodeWork::Allocate(old), NodeWork::Allocate(new)) = (&old.work, &step.work)
            && !Arc::ptr_eq(old, new)
        {
            return Some((CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, step.node));
        }
        difference(&old.child, &step.child)
    })
}

fn allocations(steps: &[Step]) -> impl Iterator<Item = &Arc<graph_memory::GraphMemory>> {
    steps.iter().filter_map(|step| match &step.work {
        NodeWork::Allocate(memory) => Some(memory),
        _ => None,
    })
}

/// Sees to it that the graph pool has what the steps need at the same time.
fn reserve(steps: &[Step]) -> CuResult {
    let (mut now, mut most, mut device) = (0_u64, 0_u64, None);
    for step in steps {
        match &step.work {
            NodeWork::Allocate(memory) => {
                now = now.saturating_add(simgpu_device::round_up(memory.size));
                (most, device) = (most.max(now), Some(memory.device));
            }
            NodeWork::Free(base) => {
                let own = allocations(steps).find(|memory| memory.base == *base);
                now = now.saturating_sub(own.map_or(0, |memory| simgpu_device::round_up(memory.size)));
            }
            _ => {}
        }
    }
    let Some(device) = device else { return Ok(()) };
    pool::pool(pool::graph_pool_of(device)?)?.reserve(most)
}

fn run(steps: &[Step], target: &TargetStream) -> CuResult {
    for step in steps.iter().filter(|step| step.enabled) {
        match &step.work {
            NodeWork::Kernel(launch) => target.perform(&StreamWork::Kernel(Arc::clone(launch)))?,
            NodeWork::Copy(copy, _) => target.perform(&StreamWork::Copy(*copy))?,
            NodeWork::Fill(fill) => target.perform(&StreamWork::Fill(*fill))?,
            NodeWork::Call(call) => target.perform(&StreamWork::Call(*call))?,
            NodeWork::Child(_) => run(&step.child, target)?,
            NodeWork::Empty => {}
            NodeWork::Wait(event) => event::wait_in(target, *event, 0)?,
            NodeWork::Record(event) => event::record(*event, target, 0)?,
            NodeWork::Allocate(memory) => memory.begin(target.context().owner())?,
            NodeWork::Free(base) => graph_memory::end(*base)?,
        }
    }
    Ok(())
}
