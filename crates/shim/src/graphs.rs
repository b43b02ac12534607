//! Graphs that take memory: charged by what the driver reserves for the graphs of the process together, like a pool.
//!
//! The driver takes memory for a graph's allocations when the graph is made ready, or launched, as it likes. So before
//! either the whole of what the graph allocates is announced, and afterwards the reserve is read. In a process none of
//! whose graphs allocates, nothing of this is done, and launches of graphs are not looked at.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use crate::account::Account;
use crate::arguments::Arguments;
use crate::code::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::pointers::{Kind, Piece};
use crate::pools;
use crate::process::{self, PROCESS};
use crate::real::{self, call, unlisted};
use crate::sys;
use crate::table::Entry;

/// A handle of the driver.
type Handle = *mut c_void;

/// `CU_GRAPH_NODE_TYPE_GRAPH` and `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
const CHILD: c_int = 4;
const ALLOCATION: c_int = 10;
/// Where the bytes are in `CUDA_MEM_ALLOC_NODE_PARAMS`, in words of eight bytes, and room for all of it.
const BYTES: usize = 13;
const PARAMETERS: usize = 32;
/// How deep graphs in graphs are looked into.
const DEEPEST: u32 = 16;

/// A graph of this process allocates, or is about to be given a node that does.
pub(crate) fn allocate() {
    if PROCESS.graphs_allocate.swap(1, Ordering::SeqCst) == 0 {
        // Their launches go the long way from now on.
        process::close_row(Entry::cuGraphLaunch);
        process::close_row(Entry::cuGraphLaunch_ptsz);
    }
}

fn any() -> bool {
    PROCESS.graphs_allocate.load(Ordering::SeqCst) != 0
}

/// `cuGraphAddMemAllocNode`, `cuGraphAddNode`: nothing is taken yet.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn add_node(entry: Entry, arguments: &Arguments) -> CuResult {
    let parameters = match entry {
        Entry::cuGraphAddMemAllocNode => core::ptr::null_mut(),
        Entry::cuGraphAddNode => arguments.pointer::<c_int>(4),
        _ => arguments.pointer(5),
    };
    // SAFETY: the caller's arguments: the parameters of a node begin with its kind.
    unsafe {
        if parameters.is_null() || parameters.read_unaligned() == ALLOCATION {
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
    if code != SUCCESS || count == 0 || depth == 0 {
        return 0;
    }
    let Ok(room) = sys::map_private(length) else { return 0 };
    let nodes = room.cast::<usize>();
    // SAFETY: room for as many handles as are told, and as many are read as there was room for.
    unsafe {
        let code = unlisted(b"cuGraphGetNodes", [graph, nodes.expose_provenance(), place]);
        let count = if code == SUCCESS { count.min(room_for) } else { 0 };
        let bytes =
            (0..count).fold(0, |sum: u64, node| sum.saturating_add(allocated_at(*nodes.add(node), depth)));
        sys::unmap(room, length);
        bytes
    }
}

/// Bytes that a node allocates.
unsafe fn allocated_at(node: usize, depth: u32) -> u64 {
    let mut kind: c_int = -1;
    let mut child: usize = 0;
    let mut parameters = [0_u64; PARAMETERS];
    // SAFETY: a node of the driver's, and places for the answers.
    unsafe {
        unlisted(b"cuGraphNodeGetType", [node, (&raw mut kind).expose_provenance()]);
        match kind {
            ALLOCATION => {
                let place = parameters.as_mut_ptr().expose_provenance();
                unlisted(b"cuGraphMemAllocNodeGetParams", [node, place]);
                parameters.get(BYTES).copied().unwrap_or(0)
            }
            CHILD => {
                unlisted(b"cuGraphChildGraphNodeGetGraph", [node, (&raw mut child).expose_provenance()]);
                allocated_by(child, depth - 1)
            }
            _ => 0,
        }
    }
}

/// `cuGraphInstantiate` in all its forms, whose second argument is the graph.
pub(crate) unsafe fn instantiate(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let bytes = if any() { allocated_by(arguments.word(1), DEEPEST) } else { 0 };
    // SAFETY: the caller's arguments; what is destroyed was made a moment ago, and told to nobody.
    unsafe {
        if bytes == 0 {
            return arguments.call(entry);
        }
        let (code, fits) = with_room(account, bytes, || arguments.call(entry));
        if code != SUCCESS {
            return code;
        }
        let made = arguments.written(0);
        if !fits || PROCESS.pointers.insert(Kind::Graph.of(made), Piece::note(bytes)).is_err() {
            call!(Entry::cuGraphExecDestroy, made => u64);
            call!(Entry::cuDeviceGraphMemTrim, 0 => c_int);
            pools::settle_all();
            return OUT_OF_MEMORY;
        }
        code
    }
}

/// Announces `bytes`, works, and charges what the driver has then reserved. Whether that is within the limit.
fn with_room(account: &Account, bytes: u64, work: impl FnOnce() -> CuResult) -> (CuResult, bool) {
    let Some(reservation) = pools::reserve_for_graphs(account, bytes) else { return (OUT_OF_MEMORY, false) };
    let code = work();
    let over = pools::settle_graphs(account, reservation.bytes());
    reservation.cancel();
    (code, over == 0 || !account.over_limit())
}

/// `cuGraphUpload(graph, stream)`, and `cuGraphLaunch` in a process whose graphs allocate.
pub(crate) unsafe fn upload(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let graph = Kind::Graph.of(arguments.word(0) as u64);
    let bytes = if any() { PROCESS.pointers.get(graph).map(|piece| piece.bytes) } else { None };
    // SAFETY: the caller's arguments.
    unsafe {
        match bytes {
            None => arguments.call(entry),
            Some(bytes) => with_room(account, bytes, || arguments.call(entry)).0,
        }
    }
}

/// `cuGraphExecDestroy(graph)`.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments) -> CuResult {
    let key = Kind::Graph.of(arguments.word(0) as u64);
    let piece = PROCESS.pointers.remove(key);
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    if let Some(piece) = piece {
        if code == SUCCESS {
            pools::settle_all();
        } else {
            let _ = PROCESS.pointers.insert(key, piece);
        }
    }
    code
}

/// A launch of a graph that may allocate; its row is told by the entry point, as of all families.
unsafe extern "C" fn launch(graph: Handle, stream: Handle) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { launch_as(Entry::cuGraphLaunch, graph, stream) }
}

unsafe extern "C" fn launch_ptsz(graph: Handle, stream: Handle) -> CuResult {
    // SAFETY: the caller's arguments.
    unsafe { launch_as(Entry::cuGraphLaunch_ptsz, graph, stream) }
}

unsafe fn launch_as(entry: Entry, graph: Handle, stream: Handle) -> CuResult {
    let arguments = Arguments::two(graph, stream);
    // SAFETY: the caller's arguments.
    unsafe {
        match process::account() {
            Some(account) => upload(entry, &arguments, &account),
            None => arguments.call(entry),
        }
    }
}

/// What a launch of a row calls in the end.
pub(crate) fn launcher(entry: Entry) -> usize {
    let hook: unsafe extern "C" fn(Handle, Handle) -> CuResult = match entry {
        Entry::cuGraphLaunch if any() => launch,
        Entry::cuGraphLaunch_ptsz if any() => launch_ptsz,
        _ => return real::callable(entry),
    };
    (hook as *const ()).expose_provenance()
}
