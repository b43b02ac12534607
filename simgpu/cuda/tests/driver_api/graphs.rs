//! Graphs: built node by node or recorded, launched, changed; memory that they take.

use std::{
    ffi::c_void,
    ptr::{null, null_mut},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use simgpu_device::now_ns;

use crate::{
    api::{
        Handle, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, cu, empty_kernel, get, launch,
        memory_info, read, start,
    },
    calls::{AllocNode, HostNode, KernelNode, NodeParameters, SetNode},
    runner::Scenario,
};

const MS: u64 = 1_000_000;
const MIB: usize = 1 << 20;
const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];
const LONG: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "20ms")];

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_built_graph_does_its_work_in_its_order_each_time", env: LONG, run: built },
    Scenario { name: "a_graph_that_waits_for_itself_is_refused", env: &[], run: edges },
    Scenario { name: "a_graphs_memory_comes_from_the_card_when_it_runs", env: SMALL, run: memory },
    Scenario { name: "recorded_allocations_become_nodes", env: SMALL, run: recorded_memory },
    Scenario { name: "streams_join_a_recording_through_events", env: LONG, run: joined },
    Scenario { name: "what_cannot_be_recorded_spoils_the_recording", env: &[], run: spoiled },
    Scenario { name: "an_executable_graph_takes_new_parameters_but_no_new_shape", env: LONG, run: updated },
    Scenario { name: "copies_of_a_graph_are_graphs_of_their_own", env: &[], run: copies },
];

static CALLS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: *mut c_void) {
    CALLS.fetch_add(1, SeqCst);
}

const fn kernel_node(function: Handle) -> KernelNode {
    let (parameters, extra) = (null_mut(), null_mut());
    KernelNode { function, grid: [1; 3], block: [1; 3], shared: 0, parameters, extra, kernel: 0, context: 0 }
}

const fn set_node(to: u64, value: u32, width: usize) -> SetNode {
    SetNode { to, pitch: 0, value, element: 1, width, height: 1 }
}

fn graph() -> Handle {
    get!(cuGraphCreate(0))
}

fn ready(graph: Handle) -> Handle {
    get!(cuGraphInstantiateWithFlags(graph, 0))
}

fn add_kernel(graph: Handle, after: &[Handle], function: Handle) -> Handle {
    get!(cuGraphAddKernelNode_v2(graph, after.as_ptr(), after.len(), &kernel_node(function)))
}

fn add_set(graph: Handle, after: &[Handle], set: SetNode) -> Handle {
    get!(cuGraphAddMemsetNode(graph, after.as_ptr(), after.len(), &raw const set, 0))
}

fn run(executable: Handle) -> i32 {
    let code = cu!(cuGraphLaunch(executable, 0));
    assert_eq!(cu!(cuStreamSynchronize(0)), SUCCESS);
    code
}

fn built() {
    let _context = start();
    let (kernel, graph) = (empty_kernel(), graph());
    let (first, second): (u64, u64) = (get!(cuMemAlloc_v2(64)), get!(cuMemAlloc_v2(64)));
    let event: Handle = get!(cuEventCreate(0));
    let set = add_set(graph, &[], set_node(first, 7, 64));
    // From the first to the second: x, y, z, level, type, host, device, array, reserved, pitch, height; extent.
    let copy = [0, 0, 0, 0, 2, 0, first, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, second, 0, 0, 0, 0, 64, 1, 1];
    let copied: Handle = get!(cuGraphAddMemcpyNode(graph, &raw const set, 1, &raw const copy, 0));
    let work = add_kernel(graph, &[copied], kernel);
    let host = HostNode { function: Some(count), argument: null_mut() };
    let called: Handle = get!(cuGraphAddHostNode(graph, &raw const work, 1, &raw const host));
    let child = self::graph();
    add_kernel(child, &[], kernel);
    let child: Handle = get!(cuGraphAddChildGraphNode(graph, &raw const called, 1, child));
    let mut described = NodeParameters { kind: 0, reserved: [0; 3], body: [0; 30] };
    // SAFETY: the body begins with the kernel's parameters.
    unsafe { (&raw mut described.body).cast::<KernelNode>().write(kernel_node(kernel)) };
    let last: Handle = get!(cuGraphAddNode_v2(graph, &raw const child, null(), 1, &raw mut described));
    let end: Handle = get!(cuGraphAddEventRecordNode(graph, &raw const last, 1, event));
    let kinds = [set, copied, work, called, child, last, end].map(|node| {
        let mut kind = 99;
        assert_eq!(cu!(cuGraphNodeGetType(node, &raw mut kind)), SUCCESS);
        kind
    });
    assert_eq!(kinds, [2, 1, 0, 3, 4, 0, 7]);
    assert_eq!((read(second, 1), CALLS.load(SeqCst)), (vec![0], 0));
    let executable = ready(graph);
    for round in 1..=2 {
        let begun = now_ns();
        assert_eq!(run(executable), SUCCESS);
        assert!(now_ns() >= begun + 60 * MS);
        assert_eq!((read(second, 64), CALLS.load(SeqCst)), (vec![7; 64], round));
        assert_eq!(cu!(cuEventQuery(event)), SUCCESS);
        assert_eq!(cu!(cuMemsetD8_v2(second, 0, 64)), SUCCESS);
    }
    // The executable graph needs the other no more.
    assert_eq!((cu!(cuGraphDestroy(graph)), run(executable)), (SUCCESS, SUCCESS));
    assert_eq!(
        [cu!(cuGraphExecDestroy(executable)), cu!(cuGraphExecDestroy(executable))],
        [SUCCESS, INVALID_VALUE]
    );
    assert_eq!(cu!(cuGraphLaunch(executable, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphDestroy(graph)), INVALID_VALUE);
}

fn edges() {
    let _context = start();
    let graph = graph();
    let empty =
        |after: &[Handle]| -> Handle { get!(cuGraphAddEmptyNode(graph, after.as_ptr(), after.len())) };
    let first = empty(&[]);
    let second = empty(&[first]);
    let third = empty(&[]);
    let depend = |from, to| cu!(cuGraphAddDependencies(graph, &raw const from, &raw const to, 1));
    assert_eq!([depend(second, third), depend(second, third)], [SUCCESS, INVALID_VALUE]);
    assert_eq!([depend(second, second), depend(second, 1234)], [INVALID_VALUE; 2]);
    let (mut from, mut to, mut count) = ([0; 9], [0; 9], 9);
    assert_eq!(cu!(cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &raw mut count)), SUCCESS);
    assert_eq!((count, from[..2].to_vec(), to[..2].to_vec()), (2, vec![first, second], vec![second, third]));
    let mut roots = 0;
    assert_eq!(cu!(cuGraphGetRootNodes(graph, null_mut(), &raw mut roots)), SUCCESS);
    assert_eq!(roots, 1);
    assert_eq!(depend(third, first), SUCCESS);
    let mut executable = 0;
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)), INVALID_VALUE);
    let mut parameters = [0; 4];
    assert_eq!(
        cu!(cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut parameters)),
        INVALID_VALUE
    );
    assert_eq!(parameters[3], 1);
    assert_eq!(cu!(cuGraphRemoveDependencies(graph, &raw const third, &raw const first, 1)), SUCCESS);
    assert_eq!(cu!(cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut parameters)), SUCCESS);
    assert_eq!(cu!(cuGraphDestroyNode(second)), SUCCESS);
    let mut node = 0;
    assert_eq!(cu!(cuGraphAddEmptyNode(&raw mut node, graph, &raw const second, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphAddEmptyNode(&raw mut node, graph, [first, first].as_ptr(), 2)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphAddEmptyNode(&raw mut node, graph, null(), 1)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphAddEmptyNode(null_mut(), graph, null(), 0)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphAddEmptyNode(&raw mut node, 77, null(), 0)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 1 << 30)), INVALID_VALUE);
}

fn alloc_node(size: usize) -> AllocNode {
    let mut properties = [0; 22];
    (properties[0], properties[2]) = (1, 1);
    AllocNode { properties, access: null(), access_count: 0, size, pointer: 0 }
}

fn add_alloc(graph: Handle, after: &[Handle], size: usize) -> (Handle, u64) {
    let mut allocation = alloc_node(size);
    let node = get!(cuGraphAddMemAllocNode(graph, after.as_ptr(), after.len(), &raw mut allocation));
    (node, allocation.pointer)
}

fn add_free(graph: Handle, after: Handle, pointer: u64) -> Handle {
    get!(cuGraphAddMemFreeNode(graph, &raw const after, 1, pointer))
}

/// Used now and at most, reserved now and at most.
fn levels() -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute| {
        let mut value = 0;
        assert_eq!(cu!(cuDeviceGetGraphMemAttribute(0, attribute, &raw mut value)), SUCCESS);
        value
    })
}

fn memory() {
    let _context = start();
    let (free, _) = memory_info();
    let used = || free - memory_info().0;
    let graph = graph();
    let (node, pointer) = add_alloc(graph, &[], 40 * MIB);
    let set = add_set(graph, &[node], set_node(pointer, 5, 40 * MIB));
    let freed = add_free(graph, set, pointer);
    let (_, second) = add_alloc(graph, &[freed], 30 * MIB);
    assert_ne!(pointer, second);
    let executable = ready(graph);
    let mut other = 0;
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut other, graph, 0)), INVALID_VALUE, "once at a time");
    assert_eq!((used(), levels()), (0, [0; 4]), "nothing before it runs");
    assert_eq!((cu!(cuGraphUpload(executable, 0)), used()), (SUCCESS, 64 * MIB));
    assert_eq!(run(executable), SUCCESS);
    // What lives at the same time is what it takes: 40 MiB, then 30.
    let mib = MIB as u64;
    assert_eq!((used(), levels()), (64 * MIB, [30 * mib, 40 * mib, 64 * mib, 64 * mib]));
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 1, 1)), INVALID_VALUE, "freed by the graph");
    assert_eq!(cu!(cuMemsetD8_v2(second, 1, 30 * MIB)), SUCCESS, "lives on");
    assert_eq!(run(executable), INVALID_VALUE, "not while its memory lives");
    assert_eq!(cu!(cuDeviceGraphMemTrim(0)), SUCCESS);
    assert_eq!(used(), 30 * MIB);
    assert_eq!([cu!(cuMemFree_v2(second)), cu!(cuMemFree_v2(second))], [SUCCESS, INVALID_VALUE]);
    assert_eq!((run(executable), cu!(cuMemFreeAsync(second, 0))), (SUCCESS, SUCCESS));
    assert_eq!(cu!(cuDeviceGraphMemTrim(0)), SUCCESS);
    assert_eq!((used(), levels()[0]), (0, 0));
    assert_eq!(cu!(cuDeviceSetGraphMemAttribute(0, 3, &0)), SUCCESS);
    assert_eq!(cu!(cuDeviceSetGraphMemAttribute(0, 2, &0)), INVALID_VALUE);
    assert_eq!(levels()[3], 0);
    // A graph that needs more than there is does nothing at all.
    let large = self::graph();
    let target: u64 = get!(cuMemAlloc_v2(1));
    let set = add_set(large, &[], set_node(target, 9, 1));
    add_alloc(large, &[set], memory_info().1);
    let executable = ready(large);
    assert_eq!((run(executable), read(target, 1)), (OUT_OF_MEMORY, vec![0]));
    let mut node = 0;
    let (mut huge, mut empty) = (alloc_node(usize::MAX), alloc_node(0));
    assert_eq!(cu!(cuGraphAddMemAllocNode(&raw mut node, large, null(), 0, &raw mut huge)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuGraphAddMemAllocNode(&raw mut node, large, null(), 0, &raw mut empty)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphAddMemFreeNode(&raw mut node, large, null(), 0, target)), INVALID_VALUE);
    let mut clone = 0;
    assert_eq!(cu!(cuGraphClone(&raw mut clone, large)), NOT_SUPPORTED);
}

fn recorded_memory() {
    let _context = start();
    let (free, _) = memory_info();
    let stream: Handle = get!(cuStreamCreate(1));
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 2)), SUCCESS);
    let (first, second): (u64, u64) =
        (get!(cuMemAllocAsync(10 * MIB, stream)), get!(cuMemAllocAsync(10 * MIB, stream)));
    assert_eq!(cu!(cuMemsetD8Async(first, 1, 10 * MIB, stream)), SUCCESS, "it will be there");
    assert_eq!(cu!(cuMemFreeAsync(first, stream)), SUCCESS);
    assert_eq!(cu!(cuMemFreeAsync(first, stream)), INVALID_VALUE);
    let plain: u64 = get!(cuMemAlloc_v2(512));
    assert_eq!(cu!(cuMemFreeAsync(plain, stream)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(plain)), SUCCESS);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), SUCCESS);
    assert_eq!(memory_info().0, free);
    // With automatic freeing it can be launched again and again.
    let executable: Handle = get!(cuGraphInstantiateWithFlags(graph, 1));
    for _ in 0..3 {
        assert_eq!(run(executable), SUCCESS);
        assert_eq!((free - memory_info().0, levels()[0]), (32 * MIB, 10 << 20));
    }
    assert_eq!((cu!(cuGraphExecDestroy(executable)), cu!(cuGraphDestroy(graph))), (SUCCESS, SUCCESS));
    assert_eq!(cu!(cuMemsetD8_v2(second, 1, 10 * MIB)), SUCCESS, "it lives until somebody frees it");
    assert_eq!((cu!(cuMemFree_v2(second)), cu!(cuDeviceGraphMemTrim(0))), (SUCCESS, SUCCESS));
    assert_eq!(memory_info().0, free);
}

fn capturing(stream: Handle) -> i32 {
    let mut status = -1;
    assert_eq!(cu!(cuStreamIsCapturing(stream, &raw mut status)), SUCCESS);
    status
}

fn joined() {
    let _context = start();
    let kernel = empty_kernel();
    let (first, second): (Handle, Handle) = (get!(cuStreamCreate(1)), get!(cuStreamCreate(1)));
    let (fork, join, outside): (Handle, Handle, Handle) =
        (get!(cuEventCreate(2)), get!(cuEventCreate(2)), get!(cuEventCreate(2)));
    assert_eq!(cu!(cuEventRecord(outside, second)), SUCCESS);
    let record = |joining: bool| {
        assert_eq!(cu!(cuStreamBeginCapture_v2(first, 0)), SUCCESS);
        assert_eq!((launch(kernel, first), cu!(cuEventRecord(fork, first))), (SUCCESS, SUCCESS));
        assert_eq!((capturing(second), cu!(cuStreamWaitEvent(second, fork, 0))), (0, SUCCESS));
        assert_eq!(capturing(second), 1);
        assert_eq!((launch(kernel, second), cu!(cuEventRecord(join, second))), (SUCCESS, SUCCESS));
        assert_eq!(cu!(cuStreamWaitEvent(second, outside, 0)), 905);
        if joining {
            assert_eq!((cu!(cuStreamWaitEvent(first, join, 0)), launch(kernel, first)), (SUCCESS, SUCCESS));
        }
        let mut graph = 99;
        assert_eq!(cu!(cuStreamEndCapture(second, &raw mut graph)), 903, "it did not begin there");
        (cu!(cuStreamEndCapture(first, &raw mut graph)), graph)
    };
    assert_eq!((record(false), capturing(first), capturing(second)), ((904, 0), 0, 0));
    let (code, graph) = record(true);
    assert_eq!((code, capturing(second)), (SUCCESS, 0));
    let mut edges = 0;
    assert_eq!(cu!(cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut edges)), SUCCESS);
    assert_eq!(edges, 3);
    let begun = now_ns();
    assert_eq!(run(ready(graph)), SUCCESS);
    assert!(now_ns() >= begun + 60 * MS);
    // An event that was recorded says nothing afterwards.
    assert_eq!((cu!(cuEventQuery(fork)), cu!(cuStreamWaitEvent(first, fork, 0))), (907, 907));
}

fn spoiled() {
    let _context = start();
    let kernel = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    let mut pointer = 0;
    let check = |name: &str, spoil: &mut dyn FnMut() -> i32, expected: i32| {
        assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 0)), SUCCESS);
        assert_eq!((launch(kernel, stream), spoil()), (SUCCESS, expected), "{name}");
        assert_eq!((capturing(stream), launch(kernel, stream)), (2, 901), "{name}");
        let mut graph = 99;
        assert_eq!((cu!(cuStreamEndCapture(stream, &raw mut graph)), graph), (901, 0), "{name}");
        assert_eq!((capturing(stream), launch(kernel, stream)), (0, SUCCESS));
    };
    check("synchronise the stream", &mut || cu!(cuStreamSynchronize(stream)), 900);
    check("query the stream", &mut || cu!(cuStreamQuery(stream)), 900);
    let event: Handle = get!(cuEventCreate(0));
    check("query an event", &mut || cu!(cuEventQuery(event)), 900);
    check("synchronise all", &mut || cu!(cuCtxSynchronize()), 900);
    check("allocate", &mut || cu!(cuMemAlloc_v2(&raw mut pointer, 512)), 900);
    check("work in the legacy stream", &mut || launch(kernel, 0), 906);
    // A relaxed recording forbids less.
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 2)), SUCCESS);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut pointer, 512)), SUCCESS);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), SUCCESS);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), 401);
    assert_eq!(cu!(cuStreamBeginCapture_v2(0, 0)), 900);
}

fn updated() {
    let _context = start();
    let (kernel, other) = (empty_kernel(), empty_kernel());
    let target: u64 = get!(cuMemAlloc_v2(16));
    let make = |value, function| {
        let graph = graph();
        let set = add_set(graph, &[], set_node(target, value, 16));
        let work = add_kernel(graph, &[set], function);
        (graph, set, work)
    };
    let (first, set, work) = make(1, kernel);
    let executable = ready(first);
    assert_eq!(cu!(cuGraphMemsetNodeSetParams(set, &set_node(target, 2, 16))), SUCCESS);
    assert_eq!((run(executable), read(target, 1)), (SUCCESS, vec![1]), "made ready before");
    assert_eq!(cu!(cuGraphExecMemsetNodeSetParams(executable, set, &set_node(target, 3, 16), 0)), SUCCESS);
    assert_eq!((run(executable), read(target, 1)), (SUCCESS, vec![3]));
    let mut now = SetNode::default();
    assert_eq!(cu!(cuGraphMemsetNodeGetParams(set, &raw mut now)), SUCCESS);
    assert_eq!(now, set_node(target, 2, 16));
    let mut kernel_now = kernel_node(0);
    assert_eq!(cu!(cuGraphKernelNodeGetParams_v2(work, &raw mut kernel_now)), SUCCESS);
    assert_eq!(kernel_now.function, kernel);
    assert_eq!(cu!(cuGraphKernelNodeGetParams_v2(set, &raw mut kernel_now)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(executable, work, &kernel_node(other))), SUCCESS);
    assert_eq!(cu!(cuGraphExecKernelNodeSetParams_v2(executable, set, &kernel_node(other))), INVALID_VALUE);
    let (second, ..) = make(4, other);
    let mut result = [99; 3];
    assert_eq!(cu!(cuGraphExecUpdate_v2(executable, second, &raw mut result)), SUCCESS);
    assert_eq!((run(executable), read(target, 1), result[0] & 0xFFFF), (SUCCESS, vec![4], 0));
    let (third, _, last) = make(5, other);
    add_kernel(third, &[last], kernel);
    assert_eq!(cu!(cuGraphExecUpdate_v2(executable, third, &raw mut result)), 910);
    assert_eq!((run(executable), read(target, 1), result[0] & 0xFFFF), (SUCCESS, vec![4], 2));
}

fn copies() {
    let _context = start();
    let target: u64 = get!(cuMemAlloc_v2(16));
    let graph = graph();
    let set = add_set(graph, &[], set_node(target, 1, 16));
    let clone: Handle = get!(cuGraphClone(graph));
    let mut copy = 0;
    assert_eq!(cu!(cuGraphNodeFindInClone(&raw mut copy, set, clone)), SUCCESS);
    assert_ne!(copy, set);
    assert_eq!(cu!(cuGraphNodeFindInClone(&raw mut copy, set, graph)), INVALID_VALUE);
    assert_eq!(cu!(cuGraphMemsetNodeSetParams(copy, &set_node(target, 2, 16))), SUCCESS);
    assert_eq!((run(ready(graph)), read(target, 1)), (SUCCESS, vec![1]));
    assert_eq!((run(ready(clone)), read(target, 1)), (SUCCESS, vec![2]));
    // Nodes can be switched off in what is launched.
    let executable = ready(graph);
    assert_eq!(cu!(cuGraphNodeSetEnabled(executable, set, 0)), SUCCESS);
    assert_eq!((run(executable), read(target, 1)), (SUCCESS, vec![2]));
    assert_eq!(cu!(cuGraphDestroy(graph)), SUCCESS);
    assert_eq!(cu!(cuGraphDestroyNode(set)), INVALID_VALUE);
}
