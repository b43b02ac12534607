//! The driver's calls that build graphs node by node, and look at them.

use std::ffi::{c_char, c_void};

use gpupool_nvidia::cuda::{
    CU_GRAPH_USER_OBJECT_MOVE, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v3,
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphEdgeData,
    CUgraphNodeParams, CUgraphNodeType,
};

use crate::{
    calls::{
        entry::{entry, put, read, read_list},
        graph::params,
    },
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        event::EVENTS,
        graph::{
            GRAPHS, add, can_free, change_edges, copy, create, destroy, destroy_node, graph,
            node::NodeWork,
            owner,
            user_object::{self, USER_OBJECTS, UserObject},
            with_node,
        },
    },
};

/// What a node comes after, as programs pass it.
type List = *const Handle;

/// Adds a node of checked work.
///
/// # Safety
/// `out` is null or valid for a write, `after` is null or valid for reads of `count` handles; neither need be
/// aligned.
unsafe fn add_node(out: *mut Handle, graph: Handle, after: List, count: usize, work: NodeWork) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        let after = read_list(after, count)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, add(graph, &after, checked(graph, work)?)?)
    }
}

/// Checks what work needs besides its own parameters.
fn checked(handle: Handle, work: NodeWork) -> CuResult<NodeWork> {
    match work {
        NodeWork::Child(child) => copy(child).map(NodeWork::Child),
        NodeWork::Wait(event) | NodeWork::Record(event) if EVENTS.find(event).is_none() => {
            Err(CuError::INVALID_VALUE)
        }
        NodeWork::Free(pointer) if !can_free(handle, pointer)? => Err(CuError::INVALID_VALUE),
        work => Ok(work),
    }
}

/// Adds a node of any type.
///
/// # Safety
/// As for [`add_node`] and, where a kernel is described, [`params::kernel`]; `described` is null or valid for
/// a read and a write.
unsafe fn add_described(
    out: *mut Handle,
    graph: Handle,
    after: List,
    count: usize,
    described: *mut CUgraphNodeParams,
) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        let mut parameters = read(described)?;
        let work = params::work(&parameters)?;
        let memory = match &work {
            NodeWork::Allocate(memory) => Some(std::sync::Arc::clone(memory)),
            _ => None,
        };
        add_node(out, graph, after, count, work)?;
        if let Some(memory) = memory {
            params::answer(&mut parameters, &memory);
            put(described, parameters)?;
        }
    }
    Ok(())
}

/// Adds an allocation node, and tells its address.
///
/// # Safety
/// As for [`add_node`]; `described` is null or valid for a read and a write.
unsafe fn add_allocation(
    out: *mut Handle,
    graph: Handle,
    after: List,
    count: usize,
    described: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1,
) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        let mut allocation = read(described)?;
        let work = params::allocation(&allocation)?;
        let pointer = if let NodeWork::Allocate(memory) = &work { memory.base } else { 0 };
        add_node(out, graph, after, count, work)?;
        allocation.dptr = pointer;
        put(described, allocation)
    }
}

/// Writes a list: without room for one only how long it is.
///
/// # Safety
/// `count` is null or valid for a read and a write, `out` is null or valid for writes of `*count` values;
/// neither need be aligned.
unsafe fn give<T: Copy>(list: &[T], out: *mut T, count: *mut usize) -> CuResult {
    // SAFETY: by this function's contract: room for as many as the count says.
    unsafe {
        let room = read(count)?;
        if out.is_null() {
            return put(count, list.len());
        }
        for (place, value) in list.iter().take(room).enumerate() {
            put(out.add(place), *value)?;
        }
        put(count, room.min(list.len()))
    }
}

/// Writes the edges of a graph.
///
/// # Safety
/// `count` is null or valid for a read and a write, `from` and `to` are each null or valid for writes of
/// `*count` handles.
unsafe fn give_edges(handle: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) -> CuResult {
    let (first, second): (Vec<_>, Vec<_>) = graph(handle)?.edges().into_iter().unzip();
    // SAFETY: by this function's contract: both lists have the same room.
    unsafe {
        if from.is_null() != to.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let mut room = read(count)?;
        give(&first, from, &raw mut room)?;
        give(&second, to, count)
    }
}

fn dependents(node: Handle) -> CuResult<Vec<Handle>> {
    let edges = graph(owner(node)?)?.edges();
    Ok(edges.into_iter().filter(|(first, _)| *first == node).map(|(_, second)| second).collect())
}

fn dependencies(node: Handle) -> CuResult<Vec<Handle>> {
    with_node(node, |node| Ok(node.after.clone()))
}

/// Adds edges, or takes them away.
///
/// # Safety
/// `from` and `to` are each null or valid for reads of `count` handles; they need not be aligned.
unsafe fn edges(handle: Handle, from: List, to: List, count: usize, add: bool) -> CuResult {
    // SAFETY: by this function's contract.
    let (from, to) = unsafe { (read_list(from, count)?, read_list(to, count)?) };
    let edges: Vec<_> = from.into_iter().zip(to).collect();
    change_edges(handle, &edges, add)
}

entry! {
    cuGraphCreate(out: *mut Handle, flags: u32) {
        if flags != 0 || out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, create())
    }
    cuGraphClone(out: *mut Handle, handle: Handle) {
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, copy(handle)?)
    }
    cuGraphDestroy(handle: Handle) { destroy(handle) }
    cuGraphDestroyNode(node: Handle) { destroy_node(node) }
    cuGraphAddKernelNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        kernel: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        add_node(out, graph, after, count, params::kernel(&params::with_context(&read(kernel)?))?)
    }
    cuGraphAddKernelNode_v2(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        kernel: *const CUDA_KERNEL_NODE_PARAMS_v3,
    ) {
        add_node(out, graph, after, count, params::kernel(&read(kernel)?)?)
    }
    cuGraphAddMemcpyNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        copy: *const CUDA_MEMCPY3D,
        _context: Handle,
    ) { add_node(out, graph, after, count, params::copy(read(copy)?)?) }
    cuGraphAddMemsetNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        set: *const CUDA_MEMSET_NODE_PARAMS,
        _context: Handle,
    ) { add_node(out, graph, after, count, params::fill(&read(set)?)?) }
    cuGraphAddHostNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        host: *const CUDA_HOST_NODE_PARAMS,
    ) {
        add_node(out, graph, after, count, params::call(&read(host)?)?)
    }
    cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: List, count: usize, child: Handle) {
        add_node(out, graph, after, count, NodeWork::Child(child))
    }
    cuGraphAddEmptyNode(out: *mut Handle, graph: Handle, after: List, count: usize) {
        add_node(out, graph, after, count, NodeWork::Empty)
    }
    cuGraphAddEventRecordNode(out: *mut Handle, graph: Handle, after: List, count: usize, event: Handle) {
        add_node(out, graph, after, count, NodeWork::Record(event))
    }
    cuGraphAddEventWaitNode(out: *mut Handle, graph: Handle, after: List, count: usize, event: Handle) {
        add_node(out, graph, after, count, NodeWork::Wait(event))
    }
    cuGraphAddMemAllocNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        allocation: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1,
    ) { add_allocation(out, graph, after, count, allocation) }
    cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, after: List, count: usize, pointer: u64) {
        add_node(out, graph, after, count, NodeWork::Free(pointer))
    }
    cuGraphAddNode(
        out: *mut Handle,
        graph: Handle,
        after: List,
        count: usize,
        described: *mut CUgraphNodeParams,
    ) { add_described(out, graph, after, count, described) }
    cuGraphAddNode_v2(
        out: *mut Handle,
        graph: Handle,
        after: List,
        _edges: *const c_void,
        count: usize,
        described: *mut CUgraphNodeParams,
    ) { add_described(out, graph, after, count, described) }
    cuGraphAddNode_v3(
        out: *mut Handle,
        graph: Handle,
        after: List,
        _edges: *const c_void,
        count: usize,
        described: *mut CUgraphNodeParams,
    ) { add_described(out, graph, after, count, described) }
    cuGraphAddDependencies(graph: Handle, from: List, to: List, count: usize) { edges(graph, from, to, count, true) }
    cuGraphAddDependencies_v2(graph: Handle, from: List, to: List, _edges: *const c_void, count: usize) {
        edges(graph, from, to, count, true)
    }
    cuGraphRemoveDependencies(graph: Handle, from: List, to: List, count: usize) {
        edges(graph, from, to, count, false)
    }
    cuGraphRemoveDependencies_v2(graph: Handle, from: List, to: List, _edges: *const c_void, count: usize) {
        edges(graph, from, to, count, false)
    }
    cuGraphGetNodes(handle: Handle, nodes: *mut Handle, count: *mut usize) {
        let all: Vec<_> = graph(handle)?.nodes().iter().map(|node| node.handle).collect();
        give(&all, nodes, count)
    }
    cuGraphGetRootNodes(handle: Handle, nodes: *mut Handle, count: *mut usize) {
        let nodes_ = graph(handle)?.nodes();
        let roots: Vec<_> =
            nodes_.iter().filter(|node| node.after.is_empty()).map(|node| node.handle).collect();
        give(&roots, nodes, count)
    }
    cuGraphGetEdges(handle: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) {
        give_edges(handle, from, to, count)
    }
    cuGraphGetEdges_v2(
        handle: Handle,
        from: *mut Handle,
        to: *mut Handle,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        if !data.is_null() {
            data.write_bytes(0, read(count)?.min(graph(handle)?.edges().len()));
        }
        give_edges(handle, from, to, count)
    }
    cuGraphNodeGetDependencies(node: Handle, list: *mut Handle, count: *mut usize) {
        give(&dependencies(node)?, list, count)
    }
    cuGraphNodeGetDependencies_v2(node: Handle, list: *mut Handle, data: *mut CUgraphEdgeData, count: *mut usize) {
        let all = dependencies(node)?;
        if !data.is_null() {
            data.write_bytes(0, read(count)?.min(all.len()));
        }
        give(&all, list, count)
    }
    cuGraphNodeGetDependentNodes(node: Handle, list: *mut Handle, count: *mut usize) {
        give(&dependents(node)?, list, count)
    }
    cuGraphNodeGetDependentNodes_v2(node: Handle, list: *mut Handle, data: *mut CUgraphEdgeData, count: *mut usize) {
        let all = dependents(node)?;
        if !data.is_null() {
            data.write_bytes(0, read(count)?.min(all.len()));
        }
        give(&all, list, count)
    }
    cuGraphNodeGetType(node: Handle, kind: *mut CUgraphNodeType) {
        put(kind, with_node(node, |node| Ok(node.work.kind()))?)
    }
    cuGraphNodeFindInClone(out: *mut Handle, original: Handle, clone: Handle) {
        let nodes = graph(clone)?.nodes();
        let found = nodes.iter().find(|node| node.original == original).ok_or(CuError::INVALID_VALUE)?;
        put(out, found.handle)
    }
    cuGraphNodeGetContainingGraph(node: Handle, out: *mut Handle) { put(out, owner(node)?) }
    cuGraphNodeGetLocalId(node: Handle, id: *mut u32) { put(id, with_node(node, |node| Ok(node.number))?) }
    cuGraphNodeGetToolsId(node: Handle, id: *mut u64) {
        put(id, with_node(node, |node| Ok(u64::from(node.number)))?)
    }
    cuGraphGetId(handle: Handle, id: *mut u32) { put(id, graph(handle)?.id) }
    cuGraphDebugDotPrint(handle: Handle, path: *const c_char, _flags: u32) {
        if path.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let path = std::ffi::CStr::from_ptr(path).to_str().map_err(|_| CuError::INVALID_VALUE)?;
        let edges = graph(handle)?.edges();
        let lines: Vec<_> = edges.iter().map(|(first, second)| format!("  n{first} -> n{second}\n")).collect();
        let text = format!("digraph {{\n{}}}\n", lines.concat());
        std::fs::write(path, text).map_err(|_| CuError::OPERATING_SYSTEM)
    }
    cuUserObjectCreate(
        out: *mut Handle,
        object: *mut c_void,
        end: Option<unsafe extern "C" fn(*mut c_void)>,
        references: u32,
        _flags: u32,
    ) {
        let end = end.filter(|_| references > 0).ok_or(CuError::INVALID_VALUE)?;
        put(out, USER_OBJECTS.add(UserObject::new(object, end, references)))
    }
    cuUserObjectRetain(object: Handle, count: u32) { user_object::retain(object, count) }
    cuUserObjectRelease(object: Handle, count: u32) { user_object::release(object, count) }
    cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) {
        let graph = GRAPHS.get(graph)?;
        // With the flag the caller's own references move.
        if flags != CU_GRAPH_USER_OBJECT_MOVE {
            user_object::retain(object, count)?;
        }
        graph.retained.add(object, count);
        Ok(())
    }
    cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32) {
        GRAPHS.get(graph)?.retained.forget(object, count)?;
        user_object::release(object, count)
    }
}
