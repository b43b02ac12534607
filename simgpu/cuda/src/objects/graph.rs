//! Graphs (`CUgraph`): nodes and the edges between them, before they are made executable.

pub(crate) mod node;
pub(crate) mod user_object;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry, fresh},
    memory::graph_memory,
    objects::graph::{
        node::{GraphNode, NodeWork},
        user_object::RetainedObjects,
    },
    sync::lock,
};

/// A graph that can still be changed.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) id: u32,
    nodes: Mutex<Vec<GraphNode>>,
    /// Objects of the program's that live as long as the graph and all that was made of it.
    pub(crate) retained: Arc<RetainedObjects>,
}

/// An edge: what comes first, what comes after.
pub(crate) type Edge = (Handle, Handle);

pub(crate) static GRAPHS: Registry<Graph> = Registry::new();
/// Which graph a node belongs to.
static OWNERS: Mutex<BTreeMap<Handle, Handle>> = Mutex::new(BTreeMap::new());
static IDS: AtomicU32 = AtomicU32::new(1);

impl Graph {
    fn new(nodes: Vec<GraphNode>, retained: Arc<RetainedObjects>) -> Self {
        Self { id: IDS.fetch_add(1, Relaxed), nodes: Mutex::new(nodes), retained }
    }

    /// All nodes, in the order in which they were added.
    pub(crate) fn nodes(&self) -> Vec<GraphNode> {
        lock(&self.nodes).clone()
    }

    /// The nodes in an order in which they can be done. Fails where they wait for each other.
    pub(crate) fn in_order(&self) -> CuResult<Vec<GraphNode>> {
        let mut waiting = self.nodes();
        let (mut done, mut order) = (BTreeSet::new(), Vec::new());
        while !waiting.is_empty() {
            let before = order.len();
            waiting.retain(|node| {
                let ready = node.after.iter().all(|first| done.contains(first));
                if ready {
                    done.insert(node.handle);
                    order.push(node.clone());
                }
                !ready
            });
            if order.len() == before {
                return Err(CuError::INVALID_VALUE);
            }
        }
        Ok(order)
    }

    /// Every edge.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let nodes = self.nodes();
        nodes.iter().flat_map(|node| node.after.iter().map(|&first| (first, node.handle))).collect()
    }

    /// Whether it takes memory or gives some back: such a graph can't be copied.
    pub(crate) fn has_memory(&self) -> bool {
        lock(&self.nodes).iter().any(|node| matches!(node.work, NodeWork::Allocate(_) | NodeWork::Free(_)))
    }
}

/// Makes an empty graph.
pub(crate) fn create() -> Handle {
    GRAPHS.add(Graph::new(Vec::new(), Arc::default()))
}

/// The graph behind a handle.
pub(crate) fn graph(handle: Handle) -> CuResult<Arc<Graph>> {
    GRAPHS.find(handle).ok_or(CuError::INVALID_VALUE)
}

/// Ends a graph with its nodes.
pub(crate) fn destroy(handle: Handle) -> CuResult {
    let graph = GRAPHS.remove(handle).map_err(|_| CuError::INVALID_VALUE)?;
    lock(&OWNERS).retain(|_, owner| *owner != handle);
    for node in graph.nodes() {
        if let NodeWork::Child(child) = node.work {
            let _ = destroy(child);
        }
    }
    Ok(())
}

/// Copies a graph: the nodes of the copy know which ones they are of. Fails where it takes memory.
pub(crate) fn copy(handle: Handle) -> CuResult<Handle> {
    let original = graph(handle)?;
    if original.has_memory() {
        return Err(CuError::NOT_SUPPORTED);
    }
    let mut nodes = original.nodes();
    let new: BTreeMap<Handle, Handle> = nodes.iter().map(|node| (node.handle, fresh())).collect();
    for node in &mut nodes {
        (node.original, node.handle) = (node.handle, new[&node.handle]);
        node.after = node.after.iter().filter_map(|first| new.get(first).copied()).collect();
        if let NodeWork::Child(child) = &mut node.work {
            *child = copy(*child)?;
        }
    }
    let made = GRAPHS.add(Graph::new(nodes, Arc::clone(&original.retained)));
    lock(&OWNERS).extend(new.values().map(|&node| (node, made)));
    Ok(made)
}

/// Adds a node that comes after others of the same graph.
pub(crate) fn add(handle: Handle, after: &[Handle], work: NodeWork) -> CuResult<Handle> {
    let graph = graph(handle)?;
    let mut nodes = lock(&graph.nodes);
    let distinct: BTreeSet<_> = after.iter().collect();
    let known = after.iter().all(|first| nodes.iter().any(|node| node.handle == *first));
    if !known || distinct.len() != after.len() {
        return Err(CuError::INVALID_VALUE);
    }
    let node = GraphNode::new(work, after.to_vec());
    let made = node.handle;
    nodes.push(node);
    drop(nodes);
    lock(&OWNERS).insert(made, handle);
    Ok(made)
}

/// Whether a node of a graph may free what is at `base`: what another of its nodes allocates, or what is allocated now;
/// and no other node frees it.
pub(crate) fn can_free(handle: Handle, base: u64) -> CuResult<bool> {
    let nodes = graph(handle)?.nodes();
    let own =
        nodes.iter().any(|node| matches!(&node.work, NodeWork::Allocate(memory) if memory.base == base));
    let freed = nodes.iter().any(|node| matches!(node.work, NodeWork::Free(other) if other == base));
    Ok((own || graph_memory::can_be_freed(base)) && !freed)
}

/// The graph that a node belongs to.
pub(crate) fn owner(node: Handle) -> CuResult<Handle> {
    lock(&OWNERS).get(&node).copied().ok_or(CuError::INVALID_VALUE)
}

/// Runs `work` on a node.
pub(crate) fn with_node<T>(node: Handle, work: impl FnOnce(&mut GraphNode) -> CuResult<T>) -> CuResult<T> {
    let graph = graph(owner(node)?)?;
    let mut nodes = lock(&graph.nodes);
    work(nodes.iter_mut().find(|found| found.handle == node).ok_or(CuError::INVALID_VALUE)?)
}

/// Ends a node; what came after it no longer does. Memory nodes stay as long as their graph.
pub(crate) fn destroy_node(node: Handle) -> CuResult {
    let owner = owner(node)?;
    let graph = graph(owner)?;
    if with_node(node, |node| Ok(matches!(node.work, NodeWork::Allocate(_) | NodeWork::Free(_))))? {
        return Err(CuError::NOT_SUPPORTED);
    }
    let mut nodes = lock(&graph.nodes);
    nodes.retain(|found| found.handle != node);
    nodes.iter_mut().for_each(|found| found.after.retain(|first| *first != node));
    drop(nodes);
    lock(&OWNERS).remove(&node);
    Ok(())
}

/// Adds edges between nodes of a graph, or takes them away.
pub(crate) fn change_edges(handle: Handle, edges: &[Edge], add: bool) -> CuResult {
    let graph = graph(handle)?;
    let mut nodes = lock(&graph.nodes);
    let known = |node| nodes.iter().any(|found| found.handle == node);
    let fits = |&(first, second): &Edge| {
        let there = nodes.iter().any(|found| found.handle == second && found.after.contains(&first));
        first != second && known(first) && known(second) && there != add
    };
    if !edges.iter().all(fits) {
        return Err(CuError::INVALID_VALUE);
    }
    for &(first, second) in edges {
        if let Some(node) = nodes.iter_mut().find(|found| found.handle == second) {
            if add {
                node.after.push(first);
            } else {
                node.after.retain(|known| *known != first);
            }
        }
    }
    Ok(())
}
