//! The driver's calls that record streams.

use std::ffi::c_void;

use gpupool_nvidia::cuda::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_SET_CAPTURE_DEPENDENCIES,
    CUstreamCaptureStatus,
};

use crate::{
    calls::entry::{entry, put, put_if_wanted, read_list},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{capture, graph::graph, stream::target},
    sync::lock,
};

/// Where a question about a capture wants its answers.
struct Answers {
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut Handle,
    dependencies: *mut *const Handle,
    edges: *mut *const c_void,
    count: *mut usize,
}

impl Answers {
    const fn short(status: *mut CUstreamCaptureStatus, id: *mut u64) -> Self {
        let (graph, dependencies) = (std::ptr::null_mut(), std::ptr::null_mut());
        Self { status, id, graph, dependencies, edges: std::ptr::null_mut(), count: std::ptr::null_mut() }
    }
}

fn begin(stream: Handle, mode: u32, into: Option<(Handle, &[Handle])>) -> CuResult {
    let target = target(stream)?;
    // The default streams can't be captured.
    target.made().ok_or(CuError::STREAM_CAPTURE_UNSUPPORTED)?.begin_capture(mode, into)
}

/// Ends a capture; the graph is 0 where it fails.
///
/// # Safety
/// `graph` is null or valid for a write; it need not be aligned.
unsafe fn end(stream: Handle, graph: *mut Handle) -> CuResult {
    if graph.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let target = target(stream)?;
    let ended = target.made().ok_or(CuError::ILLEGAL_STATE)?.end_capture();
    // SAFETY: by this function's contract.
    unsafe { put(graph, *ended.as_ref().unwrap_or(&0))? };
    ended.map(|_| ())
}

/// Tells what a stream is captured into.
///
/// # Safety
/// Every pointer in `wanted` is null or valid for a write; none need be aligned.
unsafe fn describe(stream: Handle, wanted: &Answers) -> CuResult {
    let target = target(stream)?;
    let capture = target.made().map(|stream| lock(&stream.capture));
    let capture = capture.as_ref().and_then(|capture| capture.as_ref());
    let status = match capture {
        Some(capture) if capture.sequence.is_invalidated() => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        Some(_) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
        None => CU_STREAM_CAPTURE_STATUS_NONE,
    };
    // SAFETY: by this function's contract.
    unsafe {
        put(wanted.status, status)?;
        if let (Some(capture), CU_STREAM_CAPTURE_STATUS_ACTIVE) = (capture, status) {
            let dependencies = &capture.dependencies;
            put_if_wanted(wanted.id, capture.sequence.id);
            put_if_wanted(wanted.graph, capture.sequence.graph);
            put_if_wanted(
                wanted.dependencies,
                if dependencies.is_empty() { std::ptr::null() } else { dependencies.as_ptr() },
            );
            put_if_wanted(wanted.edges, std::ptr::null());
            put_if_wanted(wanted.count, dependencies.len());
        }
    }
    Ok(())
}

/// Sets what the next piece of work comes after, or adds to it.
///
/// # Safety
/// `list` is null or valid for reads of `count` handles; it need not be aligned.
unsafe fn update(stream: Handle, list: *const Handle, count: usize, flags: u32) -> CuResult {
    let target = target(stream)?;
    // SAFETY: by this function's contract.
    let dependencies = unsafe { read_list(list, count)? };
    let stream = target.made().ok_or(CuError::ILLEGAL_STATE)?;
    let mut capture = lock(&stream.capture);
    let capture = capture.as_mut().ok_or(CuError::ILLEGAL_STATE)?;
    let known = graph(capture.sequence.graph)?.nodes();
    if flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES
        || !dependencies.iter().all(|tip| known.iter().any(|node| node.handle == *tip))
    {
        return Err(CuError::INVALID_VALUE);
    }
    if flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES {
        capture.dependencies = dependencies.into();
    } else {
        capture.join(&dependencies);
    }
    Ok(())
}

/// Begins a capture after nodes of a graph of the program's.
///
/// # Safety
/// As for [`update`].
unsafe fn begin_into(
    stream: Handle,
    graph: Handle,
    list: *const Handle,
    count: usize,
    mode: u32,
) -> CuResult {
    // SAFETY: by this function's contract.
    let dependencies = unsafe { read_list(list, count)? };
    begin(stream, mode, Some((graph, &dependencies)))
}

entry! {
    cuStreamBeginCapture(stream: Handle) { begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, None) }
    cuStreamBeginCapture_ptsz(stream: Handle) { begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, None) }
    cuStreamBeginCapture_v2(stream: Handle, mode: u32) { begin(stream, mode, None) }
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: u32) { begin(stream, mode, None) }
    cuStreamBeginCaptureToGraph(
        stream: Handle,
        graph: Handle,
        dependencies: *const Handle,
        _edges: *const c_void,
        count: usize,
        mode: u32,
    ) { begin_into(stream, graph, dependencies, count, mode) }
    cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle,
        graph: Handle,
        dependencies: *const Handle,
        _edges: *const c_void,
        count: usize,
        mode: u32,
    ) { begin_into(stream, graph, dependencies, count, mode) }
    cuStreamEndCapture(stream: Handle, graph: *mut Handle) { end(stream, graph) }
    cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) { end(stream, graph) }
    cuStreamIsCapturing(stream: Handle, status: *mut CUstreamCaptureStatus) {
        describe(stream, &Answers::short(status, std::ptr::null_mut()))
    }
    cuStreamIsCapturing_ptsz(stream: Handle, status: *mut CUstreamCaptureStatus) {
        describe(stream, &Answers::short(status, std::ptr::null_mut()))
    }
    cuStreamGetCaptureInfo(stream: Handle, status: *mut CUstreamCaptureStatus, id: *mut u64) {
        describe(stream, &Answers::short(status, id))
    }
    cuStreamGetCaptureInfo_ptsz(stream: Handle, status: *mut CUstreamCaptureStatus, id: *mut u64) {
        describe(stream, &Answers::short(status, id))
    }
    cuStreamGetCaptureInfo_v2(
        stream: Handle,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        count: *mut usize,
    ) {
        describe(stream, &Answers { graph, dependencies, count, ..Answers::short(status, id) })
    }
    cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        count: *mut usize,
    ) {
        describe(stream, &Answers { graph, dependencies, count, ..Answers::short(status, id) })
    }
    cuStreamGetCaptureInfo_v3(
        stream: Handle,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        describe(stream, &Answers { status, id, graph, dependencies, edges, count })
    }
    cuStreamGetCaptureInfo_v3_ptsz(
        stream: Handle,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        describe(stream, &Answers { status, id, graph, dependencies, edges, count })
    }
    cuStreamUpdateCaptureDependencies(stream: Handle, list: *const Handle, count: usize, flags: u32) {
        update(stream, list, count, flags)
    }
    cuStreamUpdateCaptureDependencies_ptsz(stream: Handle, list: *const Handle, count: usize, flags: u32) {
        update(stream, list, count, flags)
    }
    cuStreamUpdateCaptureDependencies_v2(
        stream: Handle,
        list: *const Handle,
        _edges: *const c_void,
        count: usize,
        flags: u32,
    ) { update(stream, list, count, flags) }
    cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: Handle,
        list: *const Handle,
        _edges: *const c_void,
        count: usize,
        flags: u32,
    ) { update(stream, list, count, flags) }
    cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        if mode.is_null() || mode.read_unaligned() > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CuError::INVALID_VALUE);
        }
        put(mode, capture::exchange_mode(mode.read_unaligned()))
    }
}
