//! What the driver says before any context: itself, its devices, its functions.

use std::ffi::{CStr, CString, c_void};

use simgpu_device::Machine;

use crate::{
    api::{
        INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_FOUND, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS, cu,
        cuCtxCreate_v2, cuGetProcAddress_v2, get,
    },
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing_works_before_initialisation_but_the_versions", env: &[], run: uninitialised },
    Scenario {
        name: "devices_are_the_machines_cards_and_say_that_they_are_simulated",
        env: CARDS,
        run: devices,
    },
    Scenario { name: "every_attribute_is_answered", env: &[], run: attributes },
    Scenario {
        name: "visible_devices_choose_and_order_the_cards",
        env: &[("SIMGPU_CARDS", "3"), ("CUDA_VISIBLE_DEVICES", "2,GPU-1cc30521,9,1")],
        run: visible,
    },
    Scenario {
        name: "without_a_visible_device_initialisation_finds_none",
        env: &[("CUDA_VISIBLE_DEVICES", "-1")],
        run: hidden,
    },
    Scenario {
        name: "the_fastest_card_comes_first",
        env: &[("SIMGPU_CARDS", "T4,L4,H100-80GB")],
        run: fastest,
    },
    Scenario {
        name: "in_bus_order_the_cards_keep_their_places",
        env: &[("SIMGPU_CARDS", "T4,L4,H100-80GB"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")],
        run: bus_order,
    },
    Scenario { name: "the_resolver_gives_the_variant_of_the_version_asked_for", env: &[], run: resolver },
    Scenario {
        name: "an_older_driver_hides_what_came_later",
        env: &[("SIMGPU_FAULTS", "driver=11040")],
        run: older_driver,
    },
    Scenario { name: "there_are_no_private_tables", env: &[], run: private_tables },
    Scenario { name: "errors_have_their_real_names", env: &[], run: error_names },
];

const CARDS: &[(&str, &str)] = &[("SIMGPU_CARDS", "A100-80GB,Sim-4GB")];

fn name(device: i32) -> String {
    let mut name = [0; 64];
    assert_eq!(cu!(cuDeviceGetName(name.as_mut_ptr(), 64, device)), SUCCESS);
    // SAFETY: the driver ended it with a zero.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().unwrap().to_owned()
}

fn uninitialised() {
    let mut count = 0;
    assert_eq!(cu!(cuDeviceGetCount(&raw mut count)), NOT_INITIALIZED);
    assert_eq!(cu!(cuMemFree_v2(0)), NOT_INITIALIZED);
    let version: i32 = get!(cuDriverGetVersion());
    assert_eq!(version, 13050);
    assert_eq!(cu!(cuInit(1)), INVALID_VALUE);
    for _ in 0..9 {
        assert_eq!(cu!(cuInit(0)), SUCCESS);
    }
    let count: i32 = get!(cuDeviceGetCount());
    assert_eq!(count, 1);
}

fn devices() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let machine = Machine::open_from_env().unwrap();
    let count: i32 = get!(cuDeviceGetCount());
    assert_eq!(count, 2);
    for (device, card) in (0..).zip(machine.cards()) {
        assert_eq!(get!(cuDeviceGet(device)), device);
        assert_eq!(name(device), card.name());
        assert!(name(device).contains("simulated"));
        let uuid: [u8; 16] = get!(cuDeviceGetUuid_v2(device));
        assert_eq!(uuid, card.uuid().0);
        let total: usize = get!(cuDeviceTotalMem_v2(device));
        assert_eq!(total as u64, card.total_memory());
        let bus: i32 = get!(cuDeviceGetAttribute(33, device));
        assert_eq!(u32::try_from(bus).unwrap(), card.pci().bus);
    }
    let mut device = 0;
    assert_eq!(cu!(cuDeviceGet(&raw mut device, 2)), INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGet(std::ptr::null_mut(), 0)), INVALID_VALUE);
    assert_eq!(cu!(cuDeviceGetCount(std::ptr::null_mut())), INVALID_VALUE);
}

fn attributes() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let value = |number| -> i32 { get!(cuDeviceGetAttribute(number, 0)) };
    for number in 1..=161 {
        value(number);
    }
    let mut nothing = 0_i32;
    for number in [-1, 0, 162, 9999] {
        assert_eq!(cu!(cuDeviceGetAttribute(&raw mut nothing, number, 0)), INVALID_VALUE, "{number}");
    }
    assert_eq!((value(1), value(10), value(16)), (1024, 32, 108));
    assert_eq!((value(75), value(76)), (8, 0));
    // Pools, and no pools on the host.
    assert_eq!((value(115), value(144)), (1, 0));
}

fn visible() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let machine = Machine::open_from_env().unwrap();
    let count: i32 = get!(cuDeviceGetCount());
    assert_eq!(count, 2);
    for (device, index) in [(0, 2), (1, 0)] {
        let uuid: [u8; 16] = get!(cuDeviceGetUuid_v2(device));
        assert_eq!(uuid, machine.card(index).unwrap().uuid().0);
    }
    // Memory is taken from the card, not from the one whose index is the ordinal.
    let _context: u64 = get!(cuCtxCreate_v2(0, 0));
    let used: Vec<_> = machine.cards().map(|card| card.used_memory() > 0).collect();
    assert_eq!(used, [false, false, true]);
}

fn hidden() {
    assert_eq!(cu!(cuInit(0)), NO_DEVICE);
    let mut count = 7;
    assert_eq!(cu!(cuDeviceGetCount(&raw mut count)), NOT_INITIALIZED);
}

fn fastest() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    assert!(name(0).contains("H100") && name(1).contains("T4") && name(2).contains("L4"));
}

fn bus_order() {
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    assert!(name(0).contains("T4") && name(1).contains("L4") && name(2).contains("H100"));
}

/// Code, address and status that the resolver answers.
fn resolve(name: &str, version: i32, flags: u64) -> (i32, *const c_void, i32) {
    let (mut code, mut status) = (std::ptr::null_mut(), -1);
    let name = CString::new(name).unwrap();
    let result = cu!(cuGetProcAddress_v2(name.as_ptr(), &raw mut code, version, flags, &raw mut status));
    (result, code, status)
}

fn resolver() {
    let found = |name: &str, version, flags| {
        let (code, address, status) = resolve(name, version, flags);
        assert_eq!((code, status), (SUCCESS, 0), "{name} {version}");
        address
    };
    let contexts: Vec<_> =
        [2000, 3020, 11039, 11040, 12050, 13050].map(|v| found("cuCtxCreate", v, 0)).to_vec();
    assert_eq!(contexts[1], cuCtxCreate_v2 as *const c_void);
    assert_eq!(contexts[1], contexts[2]);
    assert_eq!(contexts[4], contexts[5]);
    assert!(contexts[0] != contexts[1] && contexts[2] != contexts[3] && contexts[3] != contexts[4]);
    assert_eq!(found("cuGetProcAddress", 12000, 0), cuGetProcAddress_v2 as *const c_void);
    // With flag 2 the variant with the thread's own default stream, where there is one.
    assert_ne!(found("cuLaunchKernel", 7000, 2), found("cuLaunchKernel", 7000, 0));
    assert_eq!(found("cuMemAlloc", 7000, 2), found("cuMemAlloc", 7000, 0));
    assert_eq!(found("cuLaunchKernel", 4000, 2), found("cuLaunchKernel", 4000, 0));

    assert_eq!(resolve("", 0, 0), (NOT_FOUND, std::ptr::null(), 1));
    assert_eq!(resolve("cuNoSuchThing", 13050, 0), (NOT_FOUND, std::ptr::null(), 1));
    assert_eq!(resolve("cuCtxCreate_v2", 13050, 0), (NOT_FOUND, std::ptr::null(), 1));
    assert_eq!(resolve("cuLibraryLoadData", 11080, 0), (NOT_FOUND, std::ptr::null(), 2));
    assert_eq!(resolve("cuInit", 13050, 8).0, INVALID_VALUE);
    let null = std::ptr::null_mut();
    let mut code = null;
    assert_eq!(cu!(cuGetProcAddress_v2(c"cuInit".as_ptr(), &raw mut code, 13050, 0, null.cast())), SUCCESS);
    assert_eq!(cu!(cuGetProcAddress_v2(c"cuNone".as_ptr(), &raw mut code, 13050, 0, null.cast())), NOT_FOUND);
    assert_eq!(
        cu!(cuGetProcAddress_v2(std::ptr::null(), &raw mut code, 13050, 0, null.cast())),
        INVALID_VALUE
    );
}

fn older_driver() {
    let version: i32 = get!(cuDriverGetVersion());
    assert_eq!(version, 11040);
    assert_eq!(resolve("cuLibraryLoadData", 13050, 0), (NOT_FOUND, std::ptr::null(), 2));
    assert_eq!(resolve("cuCtxCreate", 13050, 0).1, resolve("cuCtxCreate", 11040, 0).1);
    assert_eq!(resolve("cuMemAlloc", 13050, 0).0, SUCCESS);
}

fn private_tables() {
    let mut table = std::ptr::without_provenance(1);
    for first in 0..=255 {
        assert_eq!(cu!(cuGetExportTable(&raw mut table, &[first; 16])), NOT_FOUND);
        assert!(table.is_null());
    }
}

fn error_names() {
    let text = |code, of: unsafe extern "C" fn(i32, *mut *const std::ffi::c_char) -> i32| {
        let mut text = std::ptr::null();
        // SAFETY: the variable is ours.
        assert_eq!(unsafe { of(code, &raw mut text) }, SUCCESS);
        // SAFETY: a text that lives as long as the driver.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap()
    };
    assert_eq!(text(0, crate::api::cuGetErrorName), "CUDA_SUCCESS");
    assert_eq!(text(2, crate::api::cuGetErrorName), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(text(2, crate::api::cuGetErrorString), "out of memory");
    assert_eq!(text(801, crate::api::cuGetErrorString), "operation not supported");
    let mut name = std::ptr::null();
    assert_eq!(cu!(cuGetErrorName(12345, &raw mut name)), INVALID_VALUE);
    assert!(name.is_null());
    // What is exported and not implemented says so, and touches nothing.
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let mut array = 77;
    assert_eq!(cu!(cuMulticastCreate(&raw mut array, std::ptr::null())), NOT_SUPPORTED);
    assert_eq!(array, 77);
}
