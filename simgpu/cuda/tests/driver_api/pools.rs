//! Memory pools: what they reserve, keep and give back.

use crate::{
    api::{Handle, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, cu, get, memory_info, start},
    runner::Scenario,
};

const MIB: u64 = 1 << 20;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_pool_reserves_in_steps_and_gives_back_at_a_synchronisation", env: &[], run: steps },
    Scenario { name: "a_pool_keeps_what_its_threshold_allows", env: &[], run: threshold },
    Scenario {
        name: "a_pool_uses_the_last_of_a_card",
        env: &[("SIMGPU_CARDS", "Sim-4GB")],
        run: last_of_card,
    },
    Scenario { name: "a_destroyed_pool_lasts_until_its_last_allocation", env: &[], run: destroyed },
];

/// `CUmemPool_attribute`: release threshold, reserved now, reserved at most, used now.
const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;

fn value(pool: Handle, attribute: u32) -> u64 {
    let mut value = 0;
    assert_eq!(cu!(cuMemPoolGetAttribute(pool, attribute, &raw mut value)), SUCCESS);
    value
}

fn steps() {
    let _context = start();
    let (free, _) = memory_info();
    let pool: Handle = get!(cuDeviceGetDefaultMemPool(0));
    let first: u64 = get!(cuMemAllocAsync(1000, 0));
    assert_eq!((value(pool, USED), value(pool, RESERVED)), (1024, 32 * MIB));
    assert_eq!(memory_info().0, free - 32 * (1 << 20));
    let second: u64 = get!(cuMemAllocAsync(40 << 20, 0));
    assert_eq!(value(pool, RESERVED), 64 * MIB);
    assert_eq!(cu!(cuMemFreeAsync(second, 0)), SUCCESS);
    assert_eq!(value(pool, RESERVED), 64 * MIB);
    assert_eq!(cu!(cuStreamSynchronize(0)), SUCCESS);
    assert_eq!((value(pool, RESERVED), value(pool, RESERVED_HIGH)), (2 * MIB, 64 * MIB));
    assert_eq!(cu!(cuMemFreeAsync(second, 0)), INVALID_VALUE);
    // The plain call frees a pool's memory too.
    assert_eq!(cu!(cuMemFree_v2(first)), SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(0)), SUCCESS);
    assert_eq!((value(pool, USED), value(pool, RESERVED)), (0, 0));
    assert_eq!(memory_info().0, free);
    let plain: u64 = get!(cuMemAlloc_v2(512));
    assert_eq!(cu!(cuMemFreeAsync(plain, 0)), INVALID_VALUE);
}

fn threshold() {
    let _context = start();
    let pool: Handle = get!(cuDeviceGetDefaultMemPool(0));
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, THRESHOLD, &u64::MAX)), SUCCESS);
    assert_eq!(value(pool, THRESHOLD), u64::MAX);
    let pointer: u64 = get!(cuMemAllocAsync(100 << 20, 0));
    assert_eq!(cu!(cuMemFreeAsync(pointer, 0)), SUCCESS);
    assert_eq!(cu!(cuCtxSynchronize()), SUCCESS);
    assert_eq!((value(pool, USED), value(pool, RESERVED)), (0, 128 * MIB));
    assert_eq!(cu!(cuMemPoolTrimTo(pool, 50 << 20)), SUCCESS);
    assert_eq!(value(pool, RESERVED), 50 * MIB);
    assert_eq!(cu!(cuMemPoolTrimTo(pool, 0)), SUCCESS);
    assert_eq!(value(pool, RESERVED), 0);
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, RESERVED_HIGH, &0)), SUCCESS);
    assert_eq!(value(pool, RESERVED_HIGH), 0);
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, RESERVED_HIGH, &5)), INVALID_VALUE);
}

fn last_of_card() {
    let _context = start();
    let (free, _) = memory_info();
    let _most: u64 = get!(cuMemAlloc_v2(free - (7 << 20)));
    let mut pointer = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut pointer, 8 << 20, 0)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAllocAsync(&raw mut pointer, 6 << 20, 0)), SUCCESS);
    assert_eq!(memory_info().0, 1 << 20);
}

fn destroyed() {
    let _context = start();
    let (free, _) = memory_info();
    // CUmemPoolProps: pinned, no handles, on device, number 0.
    let mut properties = [0; 24];
    (properties[0], properties[2]) = (1, 1);
    let pool: Handle = get!(cuMemPoolCreate(&raw const properties));
    let pointer: u64 = get!(cuMemAllocFromPoolAsync(5000, pool, 0));
    assert_eq!(cu!(cuMemPoolDestroy(pool)), SUCCESS);
    let mut other = 0;
    assert_eq!(cu!(cuMemAllocFromPoolAsync(&raw mut other, 5000, pool, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD8_v2(pointer, 1, 5000)), SUCCESS);
    assert_eq!(cu!(cuMemFreeAsync(pointer, 0)), SUCCESS);
    assert_eq!(memory_info().0, free);
    let default: Handle = get!(cuDeviceGetDefaultMemPool(0));
    assert_eq!(cu!(cuMemPoolDestroy(default)), INVALID_VALUE);
}
