//! Streams and events: order, moments, recorded work.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use simgpu_device::now_ns;

use crate::{
    api::{
        Handle, INVALID_HANDLE, INVALID_VALUE, NOT_READY, SUCCESS, cu, empty_kernel, get, launch, read, start,
    },
    runner::{Scenario, eventually},
};

const MS: u64 = 1_000_000;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "work_takes_its_time_and_nobody_sees_it_done_before", env: LONG, run: takes_time },
    Scenario { name: "events_measure_the_work_between_them", env: LONG, run: elapsed },
    Scenario { name: "a_function_of_the_programs_runs_in_its_turn", env: LONG, run: host_function },
    Scenario { name: "a_stream_waits_for_another_devices_event", env: TWO_CARDS, run: across_devices },
    Scenario { name: "captured_work_is_done_when_the_graph_is_launched", env: LONG, run: capture },
    Scenario { name: "a_stream_waits_for_a_value_and_another_writes_it", env: LONG, run: values },
    Scenario {
        name: "a_thousand_launches_more_than_the_queue_holds_are_all_done",
        env: SHORT,
        run: deep_queue,
    },
];

const LONG: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "30ms")];
const SHORT: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "50us")];
const TWO_CARDS: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "30ms"), ("SIMGPU_CARDS", "2")];

fn takes_time() {
    let _context = start();
    let kernel = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    assert_eq!(cu!(cuStreamQuery(stream)), SUCCESS);
    let begun = now_ns();
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(launch(kernel, stream), SUCCESS);
    let query = cu!(cuStreamQuery(stream));
    assert!(query == NOT_READY || now_ns() > begun + 60 * MS, "done after {} ns", now_ns() - begun);
    assert_eq!(cu!(cuStreamSynchronize(stream)), SUCCESS);
    assert!(now_ns() >= begun + 60 * MS);
    assert_eq!(cu!(cuStreamQuery(stream)), SUCCESS);
    // A copy back waits for the default stream, hence for the kernel.
    let pointer: u64 = get!(cuMemAlloc_v2(4));
    let begun = now_ns();
    assert_eq!(launch(kernel, 0), SUCCESS);
    read(pointer, 4);
    assert!(now_ns() >= begun + 30 * MS);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    assert_eq!(launch(kernel, stream), INVALID_HANDLE);
}

fn elapsed() {
    let _context = start();
    let kernel = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    let (first, second, untimed): (Handle, Handle, Handle) =
        (get!(cuEventCreate(0)), get!(cuEventCreate(0)), get!(cuEventCreate(2)));
    let mut time = 0.0;
    assert_eq!(cu!(cuEventElapsedTime_v2(&raw mut time, first, second)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventQuery(first)), SUCCESS);
    assert_eq!(cu!(cuEventRecord(first, stream)), SUCCESS);
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(cu!(cuEventRecord(second, stream)), SUCCESS);
    assert_eq!(cu!(cuEventRecord(untimed, stream)), SUCCESS);
    assert_eq!(cu!(cuEventSynchronize(second)), SUCCESS);
    assert_eq!(cu!(cuEventElapsedTime_v2(&raw mut time, first, second)), SUCCESS);
    assert!(time >= 60.0, "{time}");
    assert_eq!(cu!(cuEventElapsedTime_v2(&raw mut time, second, first)), SUCCESS);
    assert!(time <= -60.0, "{time}");
    assert_eq!(cu!(cuEventElapsedTime_v2(&raw mut time, first, untimed)), INVALID_HANDLE);
}

static CALLED_AT: AtomicU64 = AtomicU64::new(0);

extern "C" fn note(argument: *mut c_void) {
    assert_eq!(argument as usize, 77);
    CALLED_AT.store(now_ns(), SeqCst);
}

fn host_function() {
    let _context = start();
    let kernel = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    let begun = now_ns();
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(cu!(cuLaunchHostFunc(stream, note, std::ptr::without_provenance_mut(77))), SUCCESS);
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(stream)), SUCCESS);
    let called = CALLED_AT.load(SeqCst);
    assert!(called >= begun + 30 * MS && now_ns() >= called + 30 * MS);
}

fn across_devices() {
    let first = start();
    let kernel = empty_kernel();
    let event: Handle = get!(cuEventCreate(0));
    let begun = now_ns();
    assert_eq!(launch(kernel, 0), SUCCESS);
    assert_eq!(cu!(cuEventRecord(event, 0)), SUCCESS);
    let _second: Handle = get!(cuCtxCreate_v2(0, 1));
    let own = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    assert_eq!(cu!(cuStreamWaitEvent(stream, event, 0)), SUCCESS);
    assert_eq!(launch(own, stream), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(stream)), SUCCESS);
    assert!(now_ns() >= begun + 60 * MS);
    // Functions and streams of different contexts don't go together.
    assert_eq!(launch(kernel, stream), INVALID_HANDLE);
    assert_eq!(cu!(cuCtxSetCurrent(first)), SUCCESS);
    assert_eq!(cu!(cuEventRecord(event, stream)), INVALID_HANDLE);
}

fn capture() {
    let _context = start();
    let kernel = empty_kernel();
    let stream: Handle = get!(cuStreamCreate(0));
    let pointer: u64 = get!(cuMemAlloc_v2(16));
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 1, 16)), SUCCESS);
    let capturing = || {
        let mut status = -1;
        assert_eq!(cu!(cuStreamIsCapturing(stream, &raw mut status)), SUCCESS);
        status
    };
    assert_eq!(capturing(), 0);
    let begun = now_ns();
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 0)), SUCCESS);
    assert_eq!(capturing(), 1);
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert_eq!(cu!(cuLaunchHostFunc(stream, note, std::ptr::without_provenance_mut(77))), SUCCESS);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), SUCCESS);
    assert_eq!(capturing(), 0);
    let mut nodes = 0;
    assert_eq!(cu!(cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut nodes)), SUCCESS);
    assert_eq!((nodes, CALLED_AT.load(SeqCst)), (2, 0));
    let executable: Handle = get!(cuGraphInstantiateWithFlags(graph, 0));
    for _ in 0..2 {
        CALLED_AT.store(0, SeqCst);
        assert_eq!(cu!(cuGraphLaunch(executable, stream)), SUCCESS);
        assert_eq!(cu!(cuStreamSynchronize(stream)), SUCCESS);
        assert!(CALLED_AT.load(SeqCst) > begun + 30 * MS);
    }
    assert!(now_ns() >= begun + 60 * MS);
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 7)), INVALID_VALUE);
}

fn values() {
    let _context = start();
    let (first, second): (Handle, Handle) = (get!(cuStreamCreate(1)), get!(cuStreamCreate(1)));
    let pointer: u64 = get!(cuMemAlloc_v2(64));
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 0, 64)), SUCCESS);
    assert_eq!(cu!(cuStreamWaitValue32_v2(first, pointer, 5, 0)), SUCCESS);
    assert_eq!(cu!(cuStreamQuery(first)), NOT_READY);
    assert_eq!(cu!(cuStreamWriteValue32_v2(second, pointer, 4, 0)), SUCCESS);
    assert_eq!(cu!(cuStreamQuery(first)), NOT_READY);
    assert_eq!(cu!(cuStreamWriteValue32_v2(second, pointer, 6, 0)), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(first)), SUCCESS);
    assert_eq!(read(pointer, 4), [6, 0, 0, 0]);
    assert_eq!(cu!(cuStreamWaitValue32_v2(first, pointer + 1, 5, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuStreamWaitValue32_v2(first, 4, 5, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuStreamWriteValue32_v2(first, pointer, 5, 9)), INVALID_VALUE);
    let (to, from, sizes) = ([pointer + 32, pointer + 40], [pointer, pointer], [4, 2]);
    assert_eq!(
        cu!(cuMemcpyBatchAsync_v2(
            to.as_ptr(),
            from.as_ptr(),
            sizes.as_ptr(),
            2,
            std::ptr::null(),
            std::ptr::null(),
            0,
            first
        )),
        SUCCESS
    );
    assert_eq!(read(pointer + 32, 12), [6, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0]);
}

fn deep_queue() {
    let _context = start();
    let kernel = empty_kernel();
    let begun = now_ns();
    for _ in 0..2000 {
        assert_eq!(launch(kernel, 0), SUCCESS);
    }
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    assert!(now_ns() >= begun + 100 * MS);
    eventually("the queue is empty", || cu!(cuStreamQuery(0)) == SUCCESS);
}
