//! The driver's calls that make graphs ready, launch and update them.

use std::ffi::c_char;

use gpupool_nvidia::cuda::{
    CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_GRAPH_INSTANTIATE_ERROR, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_GRAPH_INSTANTIATE_SUCCESS, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo,
};

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        graph_exec::{EXECUTABLES, executable, instantiate},
        stream::{legacy, own, target},
    },
};

/// Makes an executable graph.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn make_ready(out: *mut Handle, graph: Handle, flags: u64) -> CuResult {
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract.
    unsafe { put(out, instantiate(graph, flags)?) }
}

fn launch(handle: Handle, stream: Handle) -> CuResult {
    let (executable, target) = (executable(handle)?, target(stream)?);
    if target.is_capturing() {
        return Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
    }
    executable.launch(&target)
}

fn upload(handle: Handle, stream: Handle) -> CuResult {
    let executable = executable(handle)?;
    target(stream)?.not_capturing()?;
    executable.upload()
}

/// As [`make_ready`], with a structure that takes the outcome too.
///
/// # Safety
/// `out` is null or valid for a write, `parameters` is null or valid for a read and a write; neither need be
/// aligned.
unsafe fn make_ready_with(
    out: *mut Handle,
    graph: Handle,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    which: fn(Handle) -> Handle,
) -> CuResult {
    // SAFETY: by this function's contract.
    unsafe {
        let mut given = read(parameters)?;
        let mut made = 0;
        let ready = make_ready(&raw mut made, graph, given.flags);
        given.hErrNode_out = 0;
        given.result_out =
            if ready.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
        put(parameters, given)?;
        ready?;
        if given.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD != 0 {
            upload(made, which(given.hUploadStream))?;
        }
        put(out, made)
    }
}

/// Updates an executable graph; says how it went and which node was in the way.
fn update(handle: Handle, graph: Handle) -> CuResult<(CUgraphExecUpdateResult, Handle)> {
    Ok(executable(handle)?.update(graph)?.err().unwrap_or((CU_GRAPH_EXEC_UPDATE_SUCCESS, 0)))
}

const fn verdict(result: CUgraphExecUpdateResult) -> CuResult {
    if result == CU_GRAPH_EXEC_UPDATE_SUCCESS { Ok(()) } else { Err(CuError::GRAPH_EXEC_UPDATE_FAILURE) }
}

entry! {
    cuGraphInstantiate(out: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _room: usize) {
        make_ready(out, graph, 0)
    }
    cuGraphInstantiate_v2(out: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _room: usize) {
        make_ready(out, graph, 0)
    }
    cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) { make_ready(out, graph, flags) }
    cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) {
        make_ready_with(out, graph, parameters, legacy)
    }
    cuGraphInstantiateWithParams_ptsz(out: *mut Handle, graph: Handle, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) {
        make_ready_with(out, graph, parameters, own)
    }
    cuGraphLaunch(handle: Handle, stream: Handle) { launch(handle, legacy(stream)) }
    cuGraphLaunch_ptsz(handle: Handle, stream: Handle) { launch(handle, own(stream)) }
    cuGraphUpload(handle: Handle, stream: Handle) { upload(handle, legacy(stream)) }
    cuGraphUpload_ptsz(handle: Handle, stream: Handle) { upload(handle, own(stream)) }
    cuGraphExecUpdate(handle: Handle, graph: Handle, node: *mut Handle, result: *mut CUgraphExecUpdateResult) {
        let (found, in_the_way) = update(handle, graph)?;
        put(node, in_the_way)?;
        put(result, found)?;
        verdict(found)
    }
    cuGraphExecUpdate_v2(handle: Handle, graph: Handle, result: *mut CUgraphExecUpdateResultInfo) {
        let (found, node) = update(handle, graph)?;
        put(result, CUgraphExecUpdateResultInfo { result: found, errorNode: node, errorFromNode: 0 })?;
        verdict(found)
    }
    cuGraphExecGetFlags(handle: Handle, flags: *mut u64) { put(flags, executable(handle)?.flags) }
    cuGraphExecGetId(handle: Handle, id: *mut u32) { put(id, executable(handle)?.id) }
    cuGraphExecDestroy(handle: Handle) {
        EXECUTABLES.remove(handle).map(|_| ()).map_err(|_| CuError::INVALID_VALUE)
    }
}
