//! The driver's calls that make graphs ready, launch and update them.

use std::ffi::c_char;

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        graph_exec::{EXECUTABLES, executable, instantiate},
        stream::{legacy, own, target},
    },
};

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct InstantiateParameters {
    flags: u64,
    upload_stream: Handle,
    error_node: Handle,
    result: i32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UpdateResult {
    result: u32,
    node: Handle,
    from_node: Handle,
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`, and `CUDA_GRAPH_INSTANTIATE_ERROR`.
const UPLOAD: u64 = 2;
const FAILED: i32 = 1;

unsafe fn make_ready(out: *mut Handle, graph: Handle, flags: u64) -> CuResult {
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the caller's pointer, as the driver API has it.
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

unsafe fn make_ready_with(
    out: *mut Handle,
    graph: Handle,
    parameters: *mut InstantiateParameters,
    which: fn(Handle) -> Handle,
) -> CuResult {
    // SAFETY: the driver API's contract.
    unsafe {
        let mut given = read(parameters)?;
        let mut made = 0;
        let ready = make_ready(&raw mut made, graph, given.flags);
        given.error_node = 0;
        given.result = if ready.is_ok() { 0 } else { FAILED };
        put(parameters, given)?;
        ready?;
        if given.flags & UPLOAD != 0 {
            upload(made, which(given.upload_stream))?;
        }
        put(out, made)
    }
}

/// Updates an executable graph; says how it went and which node was in the way.
fn update(handle: Handle, graph: Handle) -> CuResult<(u32, Handle)> {
    Ok(executable(handle)?.update(graph)?.err().unwrap_or((0, 0)))
}

const fn verdict(result: u32) -> CuResult {
    if result == 0 { Ok(()) } else { Err(CuError::GRAPH_EXEC_UPDATE_FAILURE) }
}

entry! {
    cuGraphInstantiate(out: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _room: usize) {
        make_ready(out, graph, 0)
    }
    cuGraphInstantiate_v2(out: *mut Handle, graph: Handle, _node: *mut Handle, _log: *mut c_char, _room: usize) {
        make_ready(out, graph, 0)
    }
    cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) { make_ready(out, graph, flags) }
    cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *mut InstantiateParameters) {
        make_ready_with(out, graph, parameters, legacy)
    }
    cuGraphInstantiateWithParams_ptsz(out: *mut Handle, graph: Handle, parameters: *mut InstantiateParameters) {
        make_ready_with(out, graph, parameters, own)
    }
    cuGraphLaunch(handle: Handle, stream: Handle) { launch(handle, legacy(stream)) }
    cuGraphLaunch_ptsz(handle: Handle, stream: Handle) { launch(handle, own(stream)) }
    cuGraphUpload(handle: Handle, stream: Handle) { upload(handle, legacy(stream)) }
    cuGraphUpload_ptsz(handle: Handle, stream: Handle) { upload(handle, own(stream)) }
    cuGraphExecUpdate(handle: Handle, graph: Handle, node: *mut Handle, result: *mut u32) {
        let (found, in_the_way) = update(handle, graph)?;
        put(node, in_the_way)?;
        put(result, found)?;
        verdict(found)
    }
    cuGraphExecUpdate_v2(handle: Handle, graph: Handle, result: *mut UpdateResult) {
        let (found, node) = update(handle, graph)?;
        put(result, UpdateResult { result: found, node, from_node: 0 })?;
        verdict(found)
    }
    cuGraphExecGetFlags(handle: Handle, flags: *mut u64) { put(flags, executable(handle)?.flags) }
    cuGraphExecGetId(handle: Handle, id: *mut u32) { put(id, executable(handle)?.id) }
    cuGraphExecDestroy(handle: Handle) {
        EXECUTABLES.remove(handle).map(|_| ()).map_err(|_| CuError::INVALID_VALUE)
    }
}
