//! Graphs that take memory: charged by what the driver reserves for the graphs of the process together, like a pool.
//!
//! The driver takes memory for a graph's allocations when the graph is made ready, or launched, as it likes. So before
//! either the whole of what the graph allocates is announced, and afterwards the reserve is read. In a process none of
//! whose graphs allocates, nothing of this is done, and launches of graphs are not looked at.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use gpupool_nvidia::cuda::{
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_SUCCESS, CUgraphNodeType, CUresult,
};

use crate::charging::memory_pools;
use crate::real::arguments::Arguments;
use crate::real::{self, call, unlisted};
use crate::state::account::Account;
use crate::state::tables::keys::GraphHandle;
use crate::state::tables::values::Bytes;
use crate::state::{self, PROCESS};
use crate::sys;
use crate::table::Entry;

/// A handle of the driver.
type Handle = *mut c_void;

/// How deep graphs in graphs are looked into.
const DEEPEST: u32 = 16;

/// A graph of this process allocates, or is about to be given a node that does.
pub(crate) fn allocate() {
    if PROCESS.graphs_allocate.swap(1, Ordering::SeqCst) == 0 {
        // Their launches go the long way from now on.
        state::close_row(Entry::cuGraphLaunch);
        state::close_row(Entry::cuGraphLaunch_ptsz);
    }
}

fn any() -> bool {
    PROCESS.graphs_allocate.load(Ordering::SeqCst) != 0
}

/// `cuGraphAddMemAllocNode`, `cuGraphAddNode`: nothing is taken yet.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose pointers are null or the program's, as NVIDIA documents
/// them. Read is the parameters' one (the fifth or the sixth): null, or to a structure that begins with the node's
/// type, 4 bytes.
pub(crate) unsafe fn add_node(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let parameters = match entry {
        Entry::cuGraphAddMemAllocNode => core::ptr::null_mut(),
        Entry::cuGraphAddNode => arguments.pointer::<CUgraphNodeType>(4),
        _ => arguments.pointer(5),
    };
    // SAFETY: the caller's arguments: the parameters of a node begin with its type.
    unsafe {
        if parameters.is_null() || parameters.read_unaligned() == CU_GRAPH_NODE_TYPE_MEM_ALLOC {
            allocate();
        }
        arguments.call(entry)
    }
}

/// Bytes that a graph allocates, those of the graphs in it included.
fn allocated_by(graph: usize, depth: u32) -> u64 {
    let mut count: usize = 0;
    let place = (&raw mut count).expose_provenance();
    // SAFETY: a place for the number.
    let code = unsafe { unlisted(b"cuGraphGetNodes", [graph, 0, place]) };
    let (room_for, length) = (count, count.saturating_mul(size_of::<usize>()));
    if code != CUDA_SUCCESS || count == 0 || depth == 0 {
        return 0;
    }
    let Ok(room) = sys::map_private(length) else { return 0 };
    let nodes = room.cast::<usize>();
    // SAFETY: room for as many handles as are told, and as many are read as there was room for.
    unsafe {
        let code = unlisted(b"cuGraphGetNodes", [graph, nodes.expose_provenance(), place]);
        let count = if code == CUDA_SUCCESS { count.min(room_for) } else { 0 };
        let bytes =
            (0..count).fold(0, |sum: u64, node| sum.saturating_add(allocated_at(*nodes.add(node), depth)));
        sys::unmap(room, length);
        bytes
    }
}

/// Bytes that a node allocates.
///
/// # Safety
/// `node` must be a node of a graph that lives.
unsafe fn allocated_at(node: usize, depth: u32) -> u64 {
    let mut kind = CUgraphNodeType::MAX;
    let mut child: usize = 0;
    let mut parameters = MaybeUninit::<AllocationParameters>::zeroed();
    // SAFETY: a node of the driver's, and places for the answers; all zero is such parameters too.
    unsafe {
        unlisted(b"cuGraphNodeGetType", [node, (&raw mut kind).expose_provenance()]);
        match kind {
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let place = parameters.as_mut_ptr().expose_provenance();
                unlisted(b"cuGraphMemAllocNodeGetParams", [node, place]);
                parameters.assume_init().known.bytesize as u64
            }
            CU_GRAPH_NODE_TYPE_GRAPH => {
                unlisted(b"cuGraphChildGraphNodeGetGraph", [node, (&raw mut child).expose_provenance()]);
                allocated_by(child, depth - 1)
            }
            _ => 0,
        }
    }
}

/// What the driver tells of an allocation, with room for what later drivers may add.
#[derive(Clone, Copy)]
#[repr(C)]
struct AllocationParameters {
    known: CUDA_MEM_ALLOC_NODE_PARAMS_v1,
    later: [u64; 16],
}

/// `cuGraphInstantiate` in all its forms, whose second argument is the graph.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose pointers are null or the program's, as NVIDIA documents
/// them. Read is the first: null, or to a `CUgraphExec`, 8 bytes, which the driver writes.
pub(crate) unsafe fn instantiate(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let bytes = if any() { allocated_by(arguments.word(1), DEEPEST) } else { 0 };
    // SAFETY: the caller's arguments; what is destroyed was made a moment ago, and told to nobody.
    unsafe {
        if bytes == 0 {
            return arguments.call(entry);
        }
        let (code, fits) = with_room(account, bytes, || arguments.call(entry));
        if code != CUDA_SUCCESS {
            return code;
        }
        let made = arguments.written(0);
        if !fits || PROCESS.tables.graphs.insert(GraphHandle(made), Bytes(bytes)).is_err() {
            call!(Entry::cuGraphExecDestroy, made => u64);
            call!(Entry::cuDeviceGraphMemTrim, 0 => c_int);
            memory_pools::settle_all();
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        code
    }
}

/// Announces `bytes`, works, and charges what the driver has then reserved. Whether that is within the limit.
fn with_room(account: &Account, bytes: u64, work: impl FnOnce() -> CUresult) -> (CUresult, bool) {
    let Some(reservation) = memory_pools::reserve_for_graphs(account, bytes) else {
        return (CUDA_ERROR_OUT_OF_MEMORY, false);
    };
    let code = work();
    let over = memory_pools::settle_graphs(account, reservation.bytes());
    reservation.cancel();
    (code, over == 0 || !account.over_limit())
}

/// `cuGraphUpload(graph, stream)`, and `cuGraphLaunch` in a process whose graphs allocate.
///
/// # Safety
/// `arguments` are those of a call of the row's function: two handles, which are not followed here: `CUgraphExec` and
/// `CUstream`.
pub(crate) unsafe fn upload(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let graph = GraphHandle(arguments.word(0) as u64);
    let bytes = if any() { PROCESS.tables.graphs.get(graph) } else { None };
    // SAFETY: the caller's arguments.
    unsafe {
        match bytes {
            None => arguments.call(entry),
            Some(Bytes(bytes)) => with_room(account, bytes, || arguments.call(entry)).0,
        }
    }
}

/// `cuGraphExecDestroy(graph)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function: a `CUgraphExec`, which is not followed here.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let graph = GraphHandle(arguments.word(0) as u64);
    let bytes = PROCESS.tables.graphs.remove(graph);
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if let Some(bytes) = bytes {
        if code == CUDA_SUCCESS {
            memory_pools::settle_all();
        } else {
            PROCESS.tables.graphs.set(graph, bytes);
        }
    }
    code
}

/// A launch of a graph that may allocate; its row is told by the entry point, as of all families.
///
/// # Safety
/// `graph` and `stream` are a `CUgraphExec` and a `CUstream` of the driver's, which are not followed here.
unsafe extern "C" fn launch(graph: Handle, stream: Handle) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { launch_as(Entry::cuGraphLaunch, graph, stream) }
}

/// The same in the semantics of the thread's own default stream.
///
/// # Safety
/// `graph` and `stream` are a `CUgraphExec` and a `CUstream` of the driver's, which are not followed here.
unsafe extern "C" fn launch_ptsz(graph: Handle, stream: Handle) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { launch_as(Entry::cuGraphLaunch_ptsz, graph, stream) }
}

/// A launch of the row `entry`.
///
/// # Safety
/// `entry` is a row of a function of these two arguments, a `CUgraphExec` and a `CUstream` of the driver's, which are
/// not followed here.
unsafe fn launch_as(entry: Entry, graph: Handle, stream: Handle) -> CUresult {
    let arguments = Arguments::two(graph, stream);
    // SAFETY: the caller's arguments.
    unsafe {
        match state::account() {
            Some(account) => upload(entry, &arguments, &account),
            None => arguments.call(entry),
        }
    }
}

/// What a launch of a row calls in the end.
pub(crate) fn launcher(entry: Entry) -> usize {
    let hook: unsafe extern "C" fn(Handle, Handle) -> CUresult = match entry {
        Entry::cuGraphLaunch if any() => launch,
        Entry::cuGraphLaunch_ptsz if any() => launch_ptsz,
        _ => return real::callable(entry),
    };
    (hook as *const ()).expose_provenance()
}
