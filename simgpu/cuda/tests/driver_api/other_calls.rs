//! Calls that few programs make: memory of other interfaces, parts of a card, the linker, the oldest forms; and what
//! modules and limits take.

use std::{ffi::c_void, ptr::null_mut};

use simgpu_device::{Machine, now_ns};

use crate::{
    api::{
        Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, OUT_OF_MEMORY,
        SUCCESS, cu, empty_kernel, get, memory_info, read, start,
    },
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "imported_memory_counts_once_however_often_it_comes", env: SMALL, run: external },
    Scenario { name: "a_green_context_has_a_part_of_a_card", env: &[], run: green },
    Scenario { name: "what_was_linked_can_be_loaded", env: &[], run: linked },
    Scenario { name: "the_oldest_calls_still_work", env: TIMED, run: oldest },
    Scenario { name: "code_takes_memory_of_the_card", env: &[], run: code },
    Scenario { name: "larger_limits_take_memory_and_smaller_ones_give_it_back", env: SMALL, run: limits },
    Scenario { name: "a_cooperative_launch_on_many_devices_runs_on_each", env: TWO, run: many },
];

const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];
const TIMED: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "20ms")];
const TWO: &[(&str, &str)] = &[("SIMGPU_KERNEL_TIME", "20ms"), ("SIMGPU_CARDS", "2")];
const MIB: usize = 1 << 20;
const MS: u64 = 1_000_000;

fn file(size: usize) -> i32 {
    // SAFETY: a new file; its name ends with a zero byte.
    unsafe {
        let file = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(file, i64::try_from(size).unwrap()), 0);
        file
    }
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`: type, descriptor, size.
fn description(kind: u32, descriptor: i32, size: usize) -> [u64; 13] {
    let mut all = [0; 13];
    (all[0], all[1], all[3]) = (u64::from(kind), u64::from(descriptor.cast_unsigned()), size as u64);
    all
}

fn external() {
    let _context = start();
    let (free, _) = memory_info();
    let used = || free - memory_info().0;
    let descriptor = file(8 * MIB);
    // SAFETY: the descriptor is ours.
    let second = unsafe { libc::dup(descriptor) };
    let mut memory = 0;
    let mut import = |kind, descriptor, size| {
        cu!(cuImportExternalMemory(&raw mut memory, &description(kind, descriptor, size)))
    };
    assert_eq!([import(0, descriptor, MIB), import(99, descriptor, MIB)], [INVALID_VALUE; 2]);
    assert_eq!(import(2, descriptor, MIB), NOT_SUPPORTED);
    assert_eq!(
        [import(1, -1, MIB), import(1, descriptor, 9 * MIB), import(1, descriptor, 0)],
        [INVALID_VALUE; 3]
    );
    let first: Handle = get!(cuImportExternalMemory(&description(1, descriptor, 8 * MIB)));
    let again: Handle = get!(cuImportExternalMemory(&description(1, second, 8 * MIB)));
    assert_eq!(used(), 8 * MIB);
    let mut buffer = [0; 11];
    (buffer[0], buffer[1]) = (4096, 4 << 20);
    let (one, other): (u64, u64) = (
        get!(cuExternalMemoryGetMappedBuffer(first, &raw const buffer)),
        get!(cuExternalMemoryGetMappedBuffer(again, &raw const buffer)),
    );
    assert_eq!(cu!(cuMemsetD8_v2(one, 6, 4 * MIB)), SUCCESS);
    assert_eq!(read(other, 3), [6; 3]);
    buffer[1] = 8 << 20;
    let mut pointer = 0;
    assert_eq!(
        cu!(cuExternalMemoryGetMappedBuffer(&raw mut pointer, first, &raw const buffer)),
        INVALID_VALUE
    );
    assert_eq!((cu!(cuMemFree_v2(one)), cu!(cuMemFree_v2(other))), (SUCCESS, SUCCESS));
    assert_eq!((cu!(cuDestroyExternalMemory(first)), used()), (SUCCESS, 8 * MIB));
    assert_eq!((cu!(cuDestroyExternalMemory(again)), used()), (SUCCESS, 0));
    assert_eq!(cu!(cuDestroyExternalMemory(again)), INVALID_HANDLE);
}

fn green() {
    let _context = start();
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let before = card.used_memory();
    let mut all = [0_u32; 36];
    assert_eq!(cu!(cuDeviceGetDevResource(0, &raw mut all, 1)), SUCCESS);
    assert_eq!((all[0], all[24]), (1, card.model().multiprocessors));
    assert_eq!(cu!(cuDeviceGetDevResource(0, &raw mut all, 77)), 914);
    let (mut parts, mut rest, mut count) = ([[0_u32; 36]; 3], [0_u32; 36], 3);
    let split = |parts: *mut [u32; 36], count: *mut u32, rest: *mut [u32; 36], least| {
        cu!(cuDevSmResourceSplitByCount(parts, count, &raw const all, rest, 0, least))
    };
    assert_eq!(split(parts.as_mut_ptr(), &raw mut count, &raw mut rest, 31), SUCCESS);
    assert_eq!((count, parts.map(|part| part[24]), rest[24]), (3, [32; 3], 12));
    assert_eq!(split(null_mut(), &raw mut count, null_mut(), 50), SUCCESS);
    assert_eq!((count, split(null_mut(), &raw mut count, null_mut(), 1000)), (2, 915));
    let description: Handle = get!(cuDevResourceGenerateDesc(parts.as_ptr(), 2));
    let mut made = 0;
    assert_eq!(cu!(cuGreenCtxCreate(&raw mut made, description, 0, 0)), INVALID_VALUE);
    let green: Handle = get!(cuGreenCtxCreate(description, 0, 1));
    let context: Handle = get!(cuCtxFromGreenCtx(green));
    assert_eq!(card.used_memory(), before + card.model().context_memory);
    let stream: Handle = get!(cuGreenCtxStreamCreate(green, 1, 0));
    assert_eq!((cu!(cuCtxSetCurrent(context)), cu!(cuStreamSynchronize(stream))), (SUCCESS, SUCCESS));
    let pointer: u64 = get!(cuMemAlloc_v2(MIB));
    assert_ne!(pointer, 0);
    assert_eq!([cu!(cuGreenCtxDestroy(green)), cu!(cuGreenCtxDestroy(green))], [SUCCESS, INVALID_CONTEXT]);
    assert_eq!(card.used_memory(), before);
}

fn linked() {
    let _context = start();
    let link: Handle = {
        let mut link = 0;
        assert_eq!(cu!(cuLinkCreate_v2(0, null_mut(), null_mut(), &raw mut link)), SUCCESS);
        link
    };
    let text = c".version 8.0 .target sm_75 .address_size 64 .visible .entry empty() { ret; }";
    let bytes = text.to_bytes_with_nul();
    let add = |kind, data: *const u8, size| {
        cu!(cuLinkAddData_v2(link, kind, data.cast(), size, c"a".as_ptr(), 0, null_mut(), null_mut()))
    };
    assert_eq!([add(9, bytes.as_ptr(), bytes.len()), add(1, std::ptr::null(), 5)], [INVALID_VALUE; 2]);
    assert_eq!(add(1, bytes.as_ptr(), bytes.len()), SUCCESS);
    let (mut image, mut size) = (null_mut::<c_void>(), 0);
    assert_eq!(cu!(cuLinkComplete(link, &raw mut image, &raw mut size)), SUCCESS);
    let module: Handle = get!(cuModuleLoadData(image));
    let _function: Handle = get!(cuModuleGetFunction(module, c"empty".as_ptr()));
    assert_eq!([cu!(cuLinkDestroy(link)), cu!(cuLinkDestroy(link))], [SUCCESS, INVALID_HANDLE]);
}

fn oldest() {
    let _context = start();
    let kernel = empty_kernel();
    assert_eq!(cu!(cuFuncSetBlockShape(kernel, 0, 1, 1)), INVALID_VALUE);
    assert_eq!(
        (cu!(cuFuncSetBlockShape(kernel, 32, 1, 1)), cu!(cuParamSeti(kernel, 0, 5))),
        (SUCCESS, SUCCESS)
    );
    let begun = now_ns();
    assert_eq!((cu!(cuLaunchGrid(kernel, 3, 2)), cu!(cuCtxSynchronize())), (SUCCESS, SUCCESS));
    assert!(now_ns() >= begun + 20 * MS);
    assert_eq!(cu!(cuLaunchGrid(kernel, 0, 2)), INVALID_VALUE);
    let mut pointer = 0_u32;
    let (free, _) = memory_info();
    assert_eq!(cu!(cuMemAlloc(&raw mut pointer, 1000)), SUCCESS);
    assert_eq!(free - memory_info().0, 1024);
    let data = [1_u8, 2, 3];
    assert_eq!(cu!(cuMemcpyHtoD(pointer, data.as_ptr().cast(), 3)), SUCCESS);
    assert_eq!(read(u64::from(pointer), 3), data);
    let (mut base, mut size) = (0, 0);
    assert_eq!(cu!(cuMemGetAddressRange(&raw mut base, &raw mut size, pointer + 7)), SUCCESS);
    assert_eq!((base, size), (pointer, 1000));
    assert_eq!([cu!(cuMemFree(pointer)), cu!(cuMemFree(pointer))], [SUCCESS, INVALID_VALUE]);
    assert_eq!(cu!(cuMemGetAddressRange(&raw mut base, &raw mut size, pointer)), NOT_FOUND);
    assert_eq!(memory_info().0, free);
}

fn code() {
    let context = start();
    let (free, _) = memory_info();
    let text = c".version 8.0 .target sm_75 .address_size 64 .visible .entry empty() { ret; }";
    let module: Handle = get!(cuModuleLoadData(text.as_ptr().cast()));
    assert_eq!(free - memory_info().0, 65536);
    assert_eq!((cu!(cuModuleUnload(module)), memory_info().0), (SUCCESS, free));
    // A library takes nothing before its code is used in a context.
    let none = null_mut();
    let library: Handle =
        get!(cuLibraryLoadData(text.as_ptr().cast(), null_mut(), none, 0, null_mut(), none, 0));
    let kernel: Handle = get!(cuLibraryGetKernel(library, c"empty".as_ptr()));
    assert_eq!(memory_info().0, free);
    assert_eq!((crate::api::launch(kernel, 0), crate::api::launch(kernel, 0)), (SUCCESS, SUCCESS));
    assert_eq!(free - memory_info().0, 65536);
    assert_eq!((cu!(cuLibraryUnload(library)), memory_info().0), (SUCCESS, free));
    let _kernel = empty_kernel();
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    assert_eq!((cu!(cuCtxDestroy_v2(context)), card.used_memory()), (SUCCESS, 0));
}

fn limits() {
    let context = start();
    let (free, _) = memory_info();
    let used = || free - memory_info().0;
    let set = |limit, value| cu!(cuCtxSetLimit(limit, value));
    // Heap, then stack: one for every thread that can be resident.
    assert_eq!((set(2, 72 * MIB), used()), (SUCCESS, 64 * MIB));
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let threads = (card.model().multiprocessors * card.model().threads_per_multiprocessor) as usize;
    assert_eq!((set(0, 2048), used()), (SUCCESS, (64 * MIB + 1024 * threads).next_multiple_of(2 * MIB)));
    assert_eq!([set(2, 1 << 60), set(2, usize::MAX)], [OUT_OF_MEMORY; 2]);
    assert_eq!([set(0, MIB), set(77, 1), set(-1, 1)], [INVALID_VALUE, 215, 215]);
    let mut value = 0;
    assert_eq!(cu!(cuCtxGetLimit(&raw mut value, 2)), SUCCESS);
    assert_eq!((value, set(2, MIB), set(0, 1024), used()), (72 * MIB, SUCCESS, SUCCESS, 0));
    assert_eq!(set(2, 72 * MIB), SUCCESS);
    assert_eq!((cu!(cuCtxDestroy_v2(context)), card.used_memory()), (SUCCESS, 0));
}

fn many() {
    let first = start();
    let (kernel, stream): (Handle, Handle) = (empty_kernel(), get!(cuStreamCreate(0)));
    let _second: Handle = get!(cuCtxCreate_v2(0, 1));
    let (other, other_stream): (Handle, Handle) = (empty_kernel(), get!(cuStreamCreate(0)));
    // Function, grid, block and shared memory, stream, parameters.
    let one =
        |function: Handle, stream: Handle| [function, 1 | 1 << 32, 1 | 1 << 32, 1 | 1 << 32, 0, stream, 0];
    let list = [one(kernel, stream), one(other, other_stream)];
    let begun = now_ns();
    assert_eq!(cu!(cuLaunchCooperativeKernelMultiDevice(list.as_ptr(), 2, 0)), SUCCESS);
    assert_eq!(
        (cu!(cuStreamSynchronize(stream)), cu!(cuStreamSynchronize(other_stream))),
        (SUCCESS, SUCCESS)
    );
    assert!(now_ns() >= begun + 20 * MS);
    let twice = [list[0], list[0]];
    assert_eq!(cu!(cuLaunchCooperativeKernelMultiDevice(twice.as_ptr(), 2, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuLaunchCooperativeKernelMultiDevice(list.as_ptr(), 0, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuCtxSetCurrent(first)), SUCCESS);
}
