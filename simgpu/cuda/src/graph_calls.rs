//! The driver's calls that record and launch graphs. Building a graph by hand, node by node, is not supported.

use std::ffi::{c_char, c_void};

use crate::{
    context::current,
    entry::{entry, put, put_if_wanted},
    error::{CuError, Res},
    graph::{self, Capture, EXECUTABLES, GRAPHS, Graph, USER_OBJECTS, UserObject},
    handles::Handle,
    stream::{legacy, own, target},
    sync::lock,
};

/// `CUstreamCaptureStatus`.
const NOT_CAPTURING: i32 = 0;
const CAPTURING: i32 = 1;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
struct InstantiateParameters {
    flags: u64,
    upload_stream: Handle,
    error_node: Handle,
    result: i32,
}

/// Where a question about a capture wants its answers.
struct Answers {
    status: *mut i32,
    id: *mut u64,
    graph: *mut Handle,
    dependencies: *mut *const Handle,
    edges: *mut *const c_void,
    count: *mut usize,
}

fn begin(stream: Handle, mode: u32) -> Res {
    if mode > 2 {
        return Err(CuError::INVALID_VALUE);
    }
    let target = target(stream)?;
    // The legacy default stream can't be captured.
    let stream = target.made().ok_or(CuError::STREAM_CAPTURE_UNSUPPORTED)?;
    let mut capture = lock(&stream.capture);
    if capture.is_some() {
        return Err(CuError::ILLEGAL_STATE);
    }
    *capture = Some(Capture::begin());
    Ok(())
}

unsafe fn end(stream: Handle, graph: *mut Handle) -> Res {
    let target = target(stream)?;
    let stream = target.made().ok_or(CuError::ILLEGAL_STATE)?;
    let capture = lock(&stream.capture).take().ok_or(CuError::ILLEGAL_STATE)?;
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(graph, capture.end()) }
}

unsafe fn is_capturing(stream: Handle, status: *mut i32) -> Res {
    let target = target(stream)?;
    let capturing = target.made().is_some_and(|stream| lock(&stream.capture).is_some());
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(status, if capturing { CAPTURING } else { NOT_CAPTURING }) }
}

unsafe fn describe(stream: Handle, wanted: &Answers) -> Res {
    let target = target(stream)?;
    let capture = target.made().map(|stream| lock(&stream.capture));
    let Some(capture) = capture.as_ref().and_then(|capture| capture.as_ref()) else {
        // SAFETY: the caller's pointer, as the driver API has it.
        return unsafe { put(wanted.status, NOT_CAPTURING) };
    };
    let tip = capture.tip.as_deref();
    // SAFETY: the caller's pointers, as the driver API has them.
    unsafe {
        put(wanted.status, CAPTURING)?;
        put_if_wanted(wanted.id, capture.id);
        put_if_wanted(wanted.graph, capture.graph);
        put_if_wanted(wanted.dependencies, tip.map_or(std::ptr::null(), std::ptr::from_ref));
        put_if_wanted(wanted.edges, std::ptr::null());
        put_if_wanted(wanted.count, usize::from(tip.is_some()));
    }
    Ok(())
}

fn instantiate(graph: Handle, flags: u64) -> Res<Handle> {
    let graph = GRAPHS.get(graph)?;
    Ok(EXECUTABLES.add(Graph { flags, ..Graph::clone(&graph) }))
}

fn launch(executable: Handle, stream: Handle) -> Res {
    let graph = EXECUTABLES.get(executable)?;
    let target = target(stream)?;
    graph.nodes.iter().try_for_each(|node| target.submit(node.job.clone()))
}

fn upload(executable: Handle, stream: Handle) -> Res {
    EXECUTABLES.get(executable)?;
    target(stream).map(|_| ())
}

unsafe fn instantiate_with(out: *mut Handle, graph: Handle, parameters: *mut InstantiateParameters) -> Res {
    if parameters.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; the driver API's contract for the rest.
    unsafe {
        let flags = (*parameters).flags;
        (*parameters).error_node = 0;
        (*parameters).result = 0;
        put(out, instantiate(graph, flags)?)
    }
}

entry! {
    cuStreamBeginCapture(stream: Handle) { begin(stream, 0) }
    cuStreamBeginCapture_ptsz(stream: Handle) { begin(stream, 0) }
    cuStreamBeginCapture_v2(stream: Handle, mode: u32) { begin(stream, mode) }
    cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: u32) { begin(stream, mode) }
    cuStreamEndCapture(stream: Handle, graph: *mut Handle) { end(stream, graph) }
    cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) { end(stream, graph) }
    cuStreamIsCapturing(stream: Handle, status: *mut i32) { is_capturing(stream, status) }
    cuStreamIsCapturing_ptsz(stream: Handle, status: *mut i32) { is_capturing(stream, status) }
    cuStreamGetCaptureInfo(stream: Handle, status: *mut i32, id: *mut u64) {
        describe(stream, &Answers::short(status, id))
    }
    cuStreamGetCaptureInfo_ptsz(stream: Handle, status: *mut i32, id: *mut u64) {
        describe(stream, &Answers::short(status, id))
    }
    cuStreamGetCaptureInfo_v2(
        stream: Handle,
        status: *mut i32,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        count: *mut usize,
    ) {
        describe(stream, &Answers { graph, dependencies, count, ..Answers::short(status, id) })
    }
    cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle,
        status: *mut i32,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        count: *mut usize,
    ) {
        describe(stream, &Answers { graph, dependencies, count, ..Answers::short(status, id) })
    }
    cuStreamGetCaptureInfo_v3(
        stream: Handle,
        status: *mut i32,
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
        status: *mut i32,
        id: *mut u64,
        graph: *mut Handle,
        dependencies: *mut *const Handle,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        describe(stream, &Answers { status, id, graph, dependencies, edges, count })
    }
    cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        if mode.is_null() || mode.read_unaligned() > 2 {
            return Err(CuError::INVALID_VALUE);
        }
        put(mode, CAPTURE_MODE.replace(mode.read_unaligned()))
    }
    cuGraphCreate(graph: *mut Handle, flags: u32) {
        current()?;
        if flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        put(graph, GRAPHS.add(Graph::default()))
    }
    cuGraphClone(clone: *mut Handle, graph: Handle) {
        let graph = GRAPHS.get(graph)?;
        put(clone, GRAPHS.add(Graph::clone(&graph)))
    }
    cuGraphDestroy(graph: Handle) { GRAPHS.remove(graph).map(|_| ()) }
    cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize) {
        let graph = GRAPHS.get(graph)?;
        if count.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        if nodes.is_null() {
            return put(count, graph.nodes.len());
        }
        let room = count.read_unaligned();
        for (place, node) in graph.nodes.iter().take(room).enumerate() {
            put(nodes.add(place), node.handle)?;
        }
        put(count, room.min(graph.nodes.len()))
    }
    cuGraphInstantiate(
        out: *mut Handle,
        graph: Handle,
        _error_node: *mut Handle,
        _log: *mut c_char,
        _room: usize,
    ) { put(out, instantiate(graph, 0)?) }
    cuGraphInstantiate_v2(
        out: *mut Handle,
        graph: Handle,
        _error_node: *mut Handle,
        _log: *mut c_char,
        _room: usize,
    ) { put(out, instantiate(graph, 0)?) }
    cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64) { put(out, instantiate(graph, flags)?) }
    cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *mut InstantiateParameters) {
        instantiate_with(out, graph, parameters)
    }
    cuGraphInstantiateWithParams_ptsz(out: *mut Handle, graph: Handle, parameters: *mut InstantiateParameters) {
        instantiate_with(out, graph, parameters)
    }
    cuGraphLaunch(executable: Handle, stream: Handle) { launch(executable, legacy(stream)) }
    cuGraphLaunch_ptsz(executable: Handle, stream: Handle) { launch(executable, own(stream)) }
    cuGraphUpload(executable: Handle, stream: Handle) { upload(executable, legacy(stream)) }
    cuGraphUpload_ptsz(executable: Handle, stream: Handle) { upload(executable, own(stream)) }
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
    cuUserObjectRetain(object: Handle, count: u32) { graph::retain(object, count) }
    cuUserObjectRelease(object: Handle, count: u32) { graph::release(object, count) }
    cuGraphRetainUserObject(graph: Handle, object: Handle, count: u32, flags: u32) {
        let graph = GRAPHS.get(graph)?;
        // Flag 1 moves the caller's own references.
        if flags != 1 {
            graph::retain(object, count)?;
        }
        graph.kept.add(object, count);
        Ok(())
    }
    cuGraphReleaseUserObject(graph: Handle, object: Handle, count: u32) {
        GRAPHS.get(graph)?.kept.forget(object, count)?;
        graph::release(object, count)
    }
    cuGraphExecGetFlags(executable: Handle, flags: *mut u64) { put(flags, EXECUTABLES.get(executable)?.flags) }
    cuGraphExecDestroy(executable: Handle) { EXECUTABLES.remove(executable).map(|_| ()) }
}

thread_local! {
    /// The thread's capture mode: kept, and given back when asked.
    static CAPTURE_MODE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl Answers {
    const fn short(status: *mut i32, id: *mut u64) -> Self {
        let (graph, dependencies) = (std::ptr::null_mut(), std::ptr::null_mut());
        Self { status, id, graph, dependencies, edges: std::ptr::null_mut(), count: std::ptr::null_mut() }
    }
}
