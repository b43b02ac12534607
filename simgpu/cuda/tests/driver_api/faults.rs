//! Faults to order: wrong answers, slowness, a lost card.

use simgpu_device::{Machine, now_ns};

use crate::{
    api::{
        DEVICE_UNAVAILABLE, Handle, NOT_FOUND, NOT_INITIALIZED, OUT_OF_MEMORY, SUCCESS, cu, empty_kernel,
        get, launch, memory_info, start,
    },
    calls::{Array3, Opaque, Properties},
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the_ordered_call_fails_and_only_that_one",
        env: &[("SIMGPU_FAULTS", "cuMemAlloc_v2=2@3")],
        run: third_call,
    },
    Scenario {
        name: "a_card_can_be_lost_in_the_middle",
        env: &[("SIMGPU_FAULTS", "cuLaunchKernel=lose@3")],
        run: lost_in_the_middle,
    },
    Scenario { name: "a_lost_card_is_lost_for_every_family", env: &[], run: lost_for_all },
    Scenario {
        name: "a_newer_driver_knows_more_names",
        env: &[("SIMGPU_FAULTS", "extra=cuFutureCall")],
        run: future,
    },
    Scenario {
        name: "a_slow_call_is_slow",
        env: &[("SIMGPU_FAULTS", "cuCtxCreate_v2=slow:80ms")],
        run: slow,
    },
    Scenario {
        name: "initialisation_can_fail",
        env: &[("SIMGPU_FAULTS", "cuInit=100@1")],
        run: failing_init,
    },
    Scenario {
        name: "nonsense_is_reported_and_nothing_works",
        env: &[("SIMGPU_FAULTS", "cuInit")],
        run: nonsense,
    },
    Scenario {
        name: "a_lost_card_answers_unavailable_until_made_anew",
        env: &[("SIMGPU_CARDS", "2")],
        run: lost,
    },
];

fn lost_in_the_middle() {
    let _context = start();
    let kernel = empty_kernel();
    assert_eq!(
        [launch(kernel, 0), launch(kernel, 0), launch(kernel, 0)],
        [SUCCESS, SUCCESS, DEVICE_UNAVAILABLE]
    );
    assert!(Machine::open_from_env().unwrap().card(0).unwrap().lost());
}

fn future() {
    let find = |name: &std::ffi::CStr| {
        let (mut code, mut status) = (std::ptr::null_mut(), 9);
        (cu!(cuGetProcAddress_v2(name.as_ptr(), &raw mut code, 99000, 0, &raw mut status)), status, code)
    };
    let (answer, status, code) = find(c"cuFutureCall");
    assert_eq!((answer, status, code.is_null()), (SUCCESS, 0, false));
    // SAFETY: the driver gave it as a function.
    let call: extern "C" fn() -> i32 = unsafe { std::mem::transmute(code) };
    assert_eq!(call(), SUCCESS);
    let (answer, status, code) = find(c"cuOtherCall");
    assert_eq!((answer, status, code.is_null()), (NOT_FOUND, 1, true));
}

fn lost_for_all() {
    let _context = start();
    let (stream, kernel): (Handle, Handle) = (get!(cuStreamCreate(0)), empty_kernel());
    let plain: u64 = get!(cuMemAlloc_v2(512));
    let graph: Handle = get!(cuGraphCreate(0));
    let executable: Handle = get!(cuGraphInstantiateWithFlags(graph, 0));
    let properties = Properties { allocation: 1, location: 1, ..Properties::default() };
    let physical: Handle = get!(cuMemCreate(2 << 20, &raw const properties, 0));
    Machine::open_from_env().unwrap().card(0).unwrap().lose();
    let shape = Array3 { width: 4, height: 4, depth: 0, format: 1, channels: 1, flags: 0 };
    let (mut handle, mut token) = (0, Opaque::default());
    assert_eq!(cu!(cuArray3DCreate_v2(&raw mut handle, &raw const shape)), DEVICE_UNAVAILABLE);
    for handle_types in [0, 1] {
        let properties = Properties { handle_types, ..properties };
        let answer = cu!(cuMemCreate(&raw mut handle, 2 << 20, &raw const properties, 0));
        assert_eq!(answer, DEVICE_UNAVAILABLE);
    }
    assert_eq!(cu!(cuMemAllocAsync(&raw mut handle, 512, stream)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuMemAllocManaged(&raw mut handle, 512, 1)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuIpcGetMemHandle(&raw mut token, plain)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuGraphLaunch(executable, stream)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, 0)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuCtxSetLimit(2, 1 << 30)), DEVICE_UNAVAILABLE);
    assert_eq!(launch(kernel, stream), DEVICE_UNAVAILABLE);
    // What needs no card goes on: handles are given back.
    assert_eq!((cu!(cuMemRelease(physical)), cu!(cuGraphDestroy(graph))), (SUCCESS, SUCCESS));
}

fn third_call() {
    let _context = start();
    let answers: Vec<_> = (0..4)
        .map(|_| {
            let mut pointer = 0;
            cu!(cuMemAlloc_v2(&raw mut pointer, 512))
        })
        .collect();
    assert_eq!(answers, [SUCCESS, SUCCESS, OUT_OF_MEMORY, SUCCESS]);
}

fn slow() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let begun = now_ns();
    let _context: Handle = get!(cuCtxCreate_v2(0, 0));
    assert!(now_ns() >= begun + 80_000_000);
}

fn failing_init() {
    let mut count = 0;
    assert_eq!(cu!(cuInit(0)), 100);
    assert_eq!(cu!(cuDeviceGetCount(&raw mut count)), NOT_INITIALIZED);
    assert_eq!(cu!(cuInit(0)), SUCCESS);
}

fn nonsense() {
    assert_eq!(cu!(cuInit(0)), 802);
}

fn lost() {
    let context = start();
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let kernel = empty_kernel();
    let pointer: u64 = get!(cuMemAlloc_v2(512));
    card.lose();
    let (mut other, mut made) = (0, 0);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut other, 512)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuMemFree_v2(pointer)), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuCtxSynchronize()), DEVICE_UNAVAILABLE);
    assert_eq!(launch(kernel, 0), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuCtxCreate_v2(&raw mut made, 0, 0)), DEVICE_UNAVAILABLE);
    // The other card goes on.
    let _second: Handle = get!(cuCtxCreate_v2(0, 1));
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    // What was made before the loss stays dead when the card is back.
    card.recover();
    assert_eq!(cu!(cuCtxSetCurrent(context)), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), DEVICE_UNAVAILABLE);
    assert_eq!(cu!(cuCtxDestroy_v2(context)), SUCCESS);
    assert_eq!(card.used_memory(), 0);
    let _fresh: Handle = get!(cuCtxCreate_v2(0, 0));
    assert_eq!(memory_info().1 as u64, card.total_memory());
}
