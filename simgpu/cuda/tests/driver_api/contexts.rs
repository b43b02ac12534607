//! Contexts: the stack of a thread, the primary context, and what goes with them.

use simgpu_device::Machine;

use crate::{
    api::{
        CONTEXT_IS_DESTROYED, Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_INITIALIZED,
        SUCCESS, cu, empty_kernel, get, launch, memory_info, start,
    },
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "each_thread_has_its_own_stack_of_contexts",
        env: &[("SIMGPU_CARDS", "2")],
        run: stacks,
    },
    Scenario { name: "the_primary_context_lives_as_long_as_somebody_retains_it", env: &[], run: primary },
    Scenario { name: "a_context_takes_memory_and_gives_back_all_that_was_its", env: &[], run: costs },
    Scenario { name: "a_forked_child_has_no_driver", env: &[], run: forked },
];

fn current() -> Handle {
    get!(cuCtxGetCurrent())
}

fn stacks() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    assert_eq!(current(), 0);
    assert_eq!(cu!(cuCtxSynchronize()), INVALID_CONTEXT);
    let first: Handle = get!(cuCtxCreate_v2(0, 0));
    let second: Handle = get!(cuCtxCreate_v2(0, 1));
    assert_eq!(current(), second);
    let device: i32 = get!(cuCtxGetDevice());
    assert_eq!(device, 1);
    assert_eq!(get!(cuCtxPopCurrent_v2()), second);
    assert_eq!(current(), first);
    std::thread::spawn(move || {
        assert_eq!(current(), 0);
        assert_eq!(cu!(cuCtxPushCurrent_v2(second)), SUCCESS);
        assert_eq!(cu!(cuCtxSetCurrent(first)), SUCCESS);
        assert_eq!(get!(cuCtxPopCurrent_v2()), first);
        assert_eq!(current(), 0);
    })
    .join()
    .unwrap();
    assert_eq!(current(), first);
    assert_eq!(cu!(cuCtxDestroy_v2(first)), SUCCESS);
    assert_eq!(current(), 0);
    let mut none = 0;
    assert_eq!(cu!(cuCtxPopCurrent_v2(&raw mut none)), INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxSetCurrent(first)), INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxPushCurrent_v2(0x1234)), INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxCreate_v2(std::ptr::null_mut(), 0, 0)), INVALID_VALUE);
    // Destroyed while it is current elsewhere.
    let third: Handle = get!(cuCtxCreate_v2(0, 0));
    std::thread::spawn(move || cu!(cuCtxDestroy_v2(third))).join().unwrap();
    assert_eq!(cu!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
}

fn state() -> i32 {
    let (mut flags, mut active) = (0, -1);
    assert_eq!(cu!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active)), SUCCESS);
    active
}

fn primary() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    assert_eq!(state(), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), INVALID_CONTEXT);
    let context: Handle = get!(cuDevicePrimaryCtxRetain(0));
    assert_eq!(get!(cuDevicePrimaryCtxRetain(0)), context);
    assert_eq!((state(), current()), (1, 0));
    assert_eq!(cu!(cuCtxDestroy_v2(context)), INVALID_CONTEXT);
    assert_eq!(cu!(cuCtxSetCurrent(context)), SUCCESS);
    let pointer: u64 = get!(cuMemAlloc_v2(1 << 20));
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), SUCCESS);
    assert_eq!((state(), cu!(cuMemFree_v2(pointer))), (1, SUCCESS));
    let _left: u64 = get!(cuMemAlloc_v2(1 << 20));
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), SUCCESS);
    assert_eq!(state(), 0);
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    assert_eq!(card.used_memory(), 0);
    assert_eq!(cu!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
    // The handle comes back to life with the context, and reset ends it whoever retained it.
    assert_eq!(get!(cuDevicePrimaryCtxRetain(0)), context);
    assert_eq!(get!(cuDevicePrimaryCtxRetain(0)), context);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)), SUCCESS);
    assert_eq!((state(), card.used_memory()), (0, 0));
}

fn costs() {
    let outer = start();
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let cost = card.model().context_memory;
    assert_eq!(card.used_memory(), cost);
    let (free, total) = memory_info();
    assert_eq!(total as u64 - free as u64, cost);
    let inner: Handle = get!(cuCtxCreate_v2(0, 0));
    let pointer: u64 = get!(cuMemAlloc_v2(1000));
    let pooled: u64 = get!(cuMemAllocAsync(1000, 0));
    let stream: Handle = get!(cuStreamCreate(0));
    let kernel = empty_kernel();
    assert_eq!(launch(kernel, stream), SUCCESS);
    assert!(card.used_memory() > 2 * cost + 1000);
    assert_eq!(card.processes()[0].contexts, 2);
    assert_eq!(cu!(cuCtxDestroy_v2(inner)), SUCCESS);
    assert_eq!(current(), outer);
    assert_eq!(cu!(cuMemFree_v2(pointer)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(pooled)), INVALID_VALUE);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), INVALID_HANDLE);
    assert_eq!(launch(kernel, 0), INVALID_HANDLE);
    assert_eq!(cu!(cuCtxDestroy_v2(outer)), SUCCESS);
    assert_eq!(card.used_memory(), 0);
    assert!(card.processes().is_empty());
}

fn forked() {
    let context = start();
    // SAFETY: the child only asks the driver, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut pointer = 0;
        let answers =
            [cu!(cuInit(0)), cu!(cuMemAlloc_v2(&raw mut pointer, 512)), cu!(cuCtxDestroy_v2(context))];
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(answers != [NOT_INITIALIZED; 3])) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(cu!(cuCtxDestroy_v2(context)), SUCCESS);
}
