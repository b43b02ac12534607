//! The driver's calls that read and change what nodes do, in graphs and in executable ones.

use gpupool_nvidia::cuda::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v3,
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphNodeParams,
};

use crate::{
    calls::{
        entry::{entry, put, read},
        graph::params,
    },
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        event::EVENTS,
        graph::{copy, destroy, node::NodeWork, with_node},
        graph_exec::executable,
    },
};

/// The work of a node, which must be of the kind that `wanted` finds.
fn found<T>(node: Handle, wanted: impl FnOnce(&NodeWork) -> Option<T>) -> CuResult<T> {
    with_node(node, |node| wanted(&node.work).ok_or(CuError::INVALID_VALUE))
}

/// Puts new work of the same kind in the place of a node's. Memory nodes can't be changed.
fn replace(old: &mut NodeWork, new: NodeWork) -> CuResult {
    if old.kind() != new.kind() || matches!(new, NodeWork::Allocate(_) | NodeWork::Free(_)) {
        return Err(CuError::INVALID_VALUE);
    }
    if let NodeWork::Wait(event) | NodeWork::Record(event) = new
        && EVENTS.find(event).is_none()
    {
        return Err(CuError::INVALID_VALUE);
    }
    *old = new;
    Ok(())
}

fn set(node: Handle, work: NodeWork) -> CuResult {
    with_node(node, |node| replace(&mut node.work, work))
}

/// As [`set`], in an executable graph only.
fn set_in(handle: Handle, node: Handle, work: NodeWork) -> CuResult {
    executable(handle)?.with_step(node, |step| match work {
        NodeWork::Child(_) => Err(CuError::NOT_SUPPORTED),
        work => replace(&mut step.work, work),
    })
}

fn kernel_of(node: Handle) -> CuResult<CUDA_KERNEL_NODE_PARAMS_v3> {
    found(
        node,
        |work| if let NodeWork::Kernel(launch) = work { Some(params::of_kernel(launch)) } else { None },
    )
}

fn set_child(handle: Handle, node: Handle, child: Handle) -> CuResult {
    let copied = copy(child)?;
    let set = executable(handle)?.set_child(node, copied);
    destroy(copied)?;
    set
}

/// Whether a node can be switched off: kernels, copies and fills can.
const fn can_be_disabled(work: &NodeWork) -> bool {
    matches!(work, NodeWork::Kernel(_) | NodeWork::Copy(..) | NodeWork::Fill(_))
}

entry! {
    cuGraphKernelNodeGetParams(node: Handle, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        put(out, params::without_context(&kernel_of(node)?))
    }
    cuGraphKernelNodeGetParams_v2(node: Handle, out: *mut CUDA_KERNEL_NODE_PARAMS_v3) { put(out, kernel_of(node)?) }
    cuGraphKernelNodeSetParams(node: Handle, kernel: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(node, params::kernel(&params::with_context(&read(kernel)?))?)
    }
    cuGraphKernelNodeSetParams_v2(node: Handle, kernel: *const CUDA_KERNEL_NODE_PARAMS_v3) {
        set(node, params::kernel(&read(kernel)?)?)
    }
    cuGraphMemcpyNodeGetParams(node: Handle, out: *mut CUDA_MEMCPY3D) {
        let body = found(node, |work| match work {
            NodeWork::Copy(copy, body) => Some(params::of_copy(copy, body.as_deref())),
            _ => None,
        })?;
        put(out, body)
    }
    cuGraphMemcpyNodeSetParams(node: Handle, body: *const CUDA_MEMCPY3D) { set(node, params::copy(read(body)?)?) }
    cuGraphMemsetNodeGetParams(node: Handle, out: *mut CUDA_MEMSET_NODE_PARAMS) {
        put(out, found(node, |work| if let NodeWork::Fill(fill) = work { Some(params::of_fill(fill)) } else { None })?)
    }
    cuGraphMemsetNodeSetParams(node: Handle, fill: *const CUDA_MEMSET_NODE_PARAMS) {
        set(node, params::fill(&read(fill)?)?)
    }
    cuGraphHostNodeGetParams(node: Handle, out: *mut CUDA_HOST_NODE_PARAMS) {
        put(out, found(node, |work| if let NodeWork::Call(call) = work { Some(params::of_call(call)) } else { None })?)
    }
    cuGraphHostNodeSetParams(node: Handle, host: *const CUDA_HOST_NODE_PARAMS) {
        set(node, params::call(&read(host)?)?)
    }
    cuGraphChildGraphNodeGetGraph(node: Handle, out: *mut Handle) {
        put(out, found(node, |work| if let NodeWork::Child(child) = work { Some(*child) } else { None })?)
    }
    cuGraphEventRecordNodeGetEvent(node: Handle, out: *mut Handle) {
        put(out, found(node, |work| if let NodeWork::Record(event) = work { Some(*event) } else { None })?)
    }
    cuGraphEventRecordNodeSetEvent(node: Handle, event: Handle) { set(node, NodeWork::Record(event)) }
    cuGraphEventWaitNodeGetEvent(node: Handle, out: *mut Handle) {
        put(out, found(node, |work| if let NodeWork::Wait(event) = work { Some(*event) } else { None })?)
    }
    cuGraphEventWaitNodeSetEvent(node: Handle, event: Handle) { set(node, NodeWork::Wait(event)) }
    cuGraphMemAllocNodeGetParams(node: Handle, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1) {
        let allocation = found(node, |work| match work {
            NodeWork::Allocate(memory) => Some(params::of_allocation(memory)),
            _ => None,
        })?;
        put(out, allocation)
    }
    cuGraphMemFreeNodeGetParams(node: Handle, out: *mut u64) {
        put(out, found(node, |work| if let NodeWork::Free(pointer) = work { Some(*pointer) } else { None })?)
    }
    cuGraphNodeGetParams(node: Handle, out: *mut CUgraphNodeParams) {
        put(out, found(node, |work| Some(params::of(work)))?)
    }
    cuGraphNodeSetParams(node: Handle, described: *const CUgraphNodeParams) {
        set(node, params::work(&read(described)?)?)
    }
    cuGraphNodeSetParams_v2(node: Handle, described: *const CUgraphNodeParams) {
        set(node, params::work(&read(described)?)?)
    }
    cuGraphKernelNodeGetAttribute(node: Handle, attribute: u32, value: *mut [u64; 8]) {
        kernel_of(node)?;
        put(value, with_node(node, |node| Ok(node.attributes.get(&attribute).copied().unwrap_or_default()))?)
    }
    cuGraphKernelNodeSetAttribute(node: Handle, attribute: u32, value: *const [u64; 8]) {
        kernel_of(node)?;
        let value = read(value)?;
        with_node(node, |node| {
            node.attributes.insert(attribute, value);
            Ok(())
        })
    }
    cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle) {
        kernel_of(to)?;
        kernel_of(from)?;
        let attributes = with_node(from, |node| Ok(node.attributes.clone()))?;
        with_node(to, |node| {
            node.attributes = attributes;
            Ok(())
        })
    }
    cuGraphExecKernelNodeSetParams(handle: Handle, node: Handle, kernel: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set_in(handle, node, params::kernel(&params::with_context(&read(kernel)?))?)
    }
    cuGraphExecKernelNodeSetParams_v2(handle: Handle, node: Handle, kernel: *const CUDA_KERNEL_NODE_PARAMS_v3) {
        set_in(handle, node, params::kernel(&read(kernel)?)?)
    }
    cuGraphExecMemcpyNodeSetParams(handle: Handle, node: Handle, body: *const CUDA_MEMCPY3D, _context: Handle) {
        set_in(handle, node, params::copy(read(body)?)?)
    }
    cuGraphExecMemsetNodeSetParams(
        handle: Handle,
        node: Handle,
        fill: *const CUDA_MEMSET_NODE_PARAMS,
        _context: Handle,
    ) {
        set_in(handle, node, params::fill(&read(fill)?)?)
    }
    cuGraphExecHostNodeSetParams(handle: Handle, node: Handle, host: *const CUDA_HOST_NODE_PARAMS) {
        set_in(handle, node, params::call(&read(host)?)?)
    }
    cuGraphExecChildGraphNodeSetParams(handle: Handle, node: Handle, child: Handle) {
        set_child(handle, node, child)
    }
    cuGraphExecEventRecordNodeSetEvent(handle: Handle, node: Handle, event: Handle) {
        set_in(handle, node, NodeWork::Record(event))
    }
    cuGraphExecEventWaitNodeSetEvent(handle: Handle, node: Handle, event: Handle) {
        set_in(handle, node, NodeWork::Wait(event))
    }
    cuGraphExecNodeSetParams(handle: Handle, node: Handle, described: *const CUgraphNodeParams) {
        match params::work(&read(described)?)? {
            NodeWork::Child(child) => set_child(handle, node, child),
            work => set_in(handle, node, work),
        }
    }
    cuGraphNodeSetEnabled(handle: Handle, node: Handle, enabled: u32) {
        executable(handle)?.with_step(node, |step| {
            if !can_be_disabled(&step.work) {
                return Err(CuError::INVALID_VALUE);
            }
            step.enabled = enabled != 0;
            Ok(())
        })
    }
    cuGraphNodeGetEnabled(handle: Handle, node: Handle, enabled: *mut u32) {
        put(enabled, executable(handle)?.with_step(node, |step| Ok(u32::from(step.enabled)))?)
    }
}
