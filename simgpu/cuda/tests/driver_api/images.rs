//! Code: what is found in it, and what launches are checked for.

use std::{ffi::c_void, path::Path};

use crate::{
    api::{
        Handle, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NO_BINARY_FOR_GPU,
        NOT_FOUND, SUCCESS, cu, empty_kernel, get, memory_info, read, start,
    },
    runner::Scenario,
};

const CC_90: &[(&str, &str)] = &[("SIMGPU_CARDS", "H100-80GB")];
const T4: &[(&str, &str)] = &[("SIMGPU_CARDS", "T4")];

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "every_form_of_the_same_code_declares_the_same", env: &[], run: forms },
    Scenario { name: "a_fat_binary_gives_machine_code_to_its_card", env: CC_90, run: fat_for_its_card },
    Scenario { name: "a_fat_binary_gives_text_to_any_newer_card", env: T4, run: fat_for_others },
    Scenario { name: "what_is_no_code_for_the_card_is_refused", env: &[], run: refused },
    Scenario { name: "variables_take_memory_and_hold_bytes", env: &[], run: variables },
    Scenario { name: "launches_that_can_not_be_are_refused", env: &[], run: launches },
];

fn image(name: &str) -> Vec<u8> {
    let mut bytes =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(name)).unwrap();
    bytes.push(0);
    bytes
}

fn load(bytes: &[u8]) -> Result<Handle, i32> {
    let mut module = 0;
    let code = cu!(cuModuleLoadData(&raw mut module, bytes.as_ptr().cast()));
    if code == SUCCESS { Ok(module) } else { Err(code) }
}

fn attribute(function: Handle, number: i32) -> i32 {
    get!(cuFuncGetAttribute(number, function))
}

fn parameters(function: Handle) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for place in 0.. {
        let (mut offset, mut size) = (0, 0);
        match cu!(cuFuncGetParamInfo(function, place, &raw mut offset, &raw mut size)) {
            SUCCESS => found.push((offset, size)),
            code => {
                assert_eq!(code, INVALID_VALUE);
                break;
            }
        }
    }
    found
}

/// The four parameters of `scale`: a pointer, a float, a structure of 24 bytes, an integer.
const PARAMETERS: [(usize, usize); 4] = [(0, 8), (8, 4), (16, 24), (40, 4)];

fn check(name: &str) -> Handle {
    let module = load(&image(name)).unwrap();
    let scale: Handle = get!(cuModuleGetFunction(module, c"scale".as_ptr()));
    assert_eq!(parameters(scale), PARAMETERS, "{name}");
    assert_eq!((attribute(scale, 0), attribute(scale, 1)), (256, 1024), "{name}");
    let empty: Handle = get!(cuModuleGetFunction(module, c"empty".as_ptr()));
    assert_eq!((parameters(empty), attribute(empty, 0)), (Vec::new(), 1024), "{name}");
    assert_ne!(empty, scale);
    let mut none = 0;
    assert_eq!(cu!(cuModuleGetFunction(&raw mut none, module, c"scal".as_ptr())), NOT_FOUND);
    let (mut pointer, mut size) = (0, 0);
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(&raw mut pointer, &raw mut size, module, c"table".as_ptr())),
        SUCCESS
    );
    assert_eq!(size, 400);
    scale
}

fn forms() {
    let _context = start();
    for name in ["scale.ptx", "scale-sm80-abi7.cubin", "scale-sm80-abi8.cubin"] {
        check(name);
    }
    assert_eq!(load(&image("scale-sm90-abi8.cubin")), Err(NO_BINARY_FOR_GPU));
}

/// As the compiler puts a fat binary into programs: magic, version, address.
#[repr(C)]
struct Wrapper(u32, u32, *const u8, *const c_void);

fn fat_for_its_card() {
    let _context = start();
    assert_eq!(attribute(check("scale.fatbin"), 6), 90);
    let bytes = image("scale.fatbin");
    let wrapper = Wrapper(0x4662_43B1, 1, bytes.as_ptr(), std::ptr::null());
    let module: Handle = get!(cuModuleLoadData((&raw const wrapper).cast()));
    let _scale: Handle = get!(cuModuleGetFunction(module, c"scale".as_ptr()));
}

fn fat_for_others() {
    let _context = start();
    assert_eq!(attribute(check("scale.fatbin"), 6), 75);
}

fn refused() {
    let _context = start();
    assert_eq!(load(b"no code at all\0"), Err(INVALID_PTX));
    assert_eq!(load(b"\0"), Err(INVALID_PTX));
    assert_eq!(load(b".version 8.0 .target sm_100 .entry k() { ret; }\0"), Err(NO_BINARY_FOR_GPU));
    let mut module = 0;
    assert_eq!(cu!(cuModuleLoadData(&raw mut module, std::ptr::null())), INVALID_VALUE);
    // Whatever byte is wrong, the answer is an answer.
    for name in ["scale-sm80-abi8.cubin", "scale.fatbin"] {
        let whole = image(name);
        // Not the words that say how long it is: a program that lies about those passes memory that it doesn't have.
        let start = if name.ends_with("cubin") { 64 } else { 16 };
        for place in start..whole.len() {
            let mut broken = whole.clone();
            broken[place] ^= 0xFF;
            if let Ok(module) = load(&broken) {
                assert_eq!(cu!(cuModuleUnload(module)), SUCCESS);
            }
        }
    }
}

fn variables() {
    let _context = start();
    let (free, _) = memory_info();
    let module = load(&image("scale.ptx")).unwrap();
    // Three variables, and the code itself.
    assert_eq!(memory_info().0, free - 3 * 512 - 65536);
    let (mut pointer, mut size) = (0, 0);
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(&raw mut pointer, &raw mut size, module, c"counter".as_ptr())),
        SUCCESS
    );
    assert_eq!((read(pointer, 4), size), (vec![0; 4], 4));
    assert_eq!(cu!(cuMemsetD32_v2(pointer, 5, 1)), SUCCESS);
    assert_eq!(cu!(cuMemFree_v2(pointer)), INVALID_VALUE);
    assert_eq!(cu!(cuModuleUnload(module)), SUCCESS);
    assert_eq!(memory_info().0, free);
    // Machine code brings first values; what had the memory before is wiped.
    let module = load(&image("scale-sm80-abi8.cubin")).unwrap();
    for (name, value) in [(c"counter", 0_u32), (c"answer", 42)] {
        assert_eq!(
            cu!(cuModuleGetGlobal_v2(&raw mut pointer, &raw mut size, module, name.as_ptr())),
            SUCCESS
        );
        assert_eq!(read(pointer, 4), value.to_le_bytes());
    }
    assert_eq!(cu!(cuModuleUnload(module)), SUCCESS);
    assert_eq!(cu!(cuModuleUnload(module)), INVALID_HANDLE);
}

fn launches() {
    let _context = start();
    let module = load(&image("scale.ptx")).unwrap();
    let scale: Handle = get!(cuModuleGetFunction(module, c"scale".as_ptr()));
    let none = std::ptr::null_mut();
    let mut values = [none; 4];
    let parameters: *mut *mut c_void = values.as_mut_ptr();
    let launch = |function, grid: u32, block: u32, shared, parameters| {
        cu!(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, parameters, std::ptr::null_mut()))
    };
    assert_eq!(launch(scale, 10, 256, 0, parameters), SUCCESS);
    assert_eq!(launch(scale, 10, 257, 0, parameters), LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(launch(scale, 10, 1025, 0, parameters), INVALID_VALUE);
    assert_eq!(launch(scale, 0, 1, 0, parameters), INVALID_VALUE);
    assert_eq!(launch(scale, 1, 0, 0, parameters), INVALID_VALUE);
    assert_eq!(launch(scale, 1, 1, 0, std::ptr::null_mut()), INVALID_VALUE);
    assert_eq!(launch(0x99, 1, 1, 0, parameters), INVALID_HANDLE);
    assert_eq!(launch(scale, 1, 1, (48 << 10) + 1, parameters), INVALID_VALUE);
    assert_eq!(cu!(cuFuncSetAttribute(scale, 8, 100 << 10)), SUCCESS);
    assert_eq!(launch(scale, 1, 1, 100 << 10, parameters), SUCCESS);
    assert_eq!(cu!(cuFuncSetAttribute(scale, 8, 200 << 10)), INVALID_VALUE);
    let empty = empty_kernel();
    assert_eq!(launch(empty, 1 << 20, 1024, 0, std::ptr::null_mut()), SUCCESS);
    let cooperative =
        |blocks| cu!(cuLaunchCooperativeKernel(empty, blocks, 1, 1, 1024, 1, 1, 0, 0, std::ptr::null_mut()));
    assert_eq!((cooperative(216), cooperative(217)), (SUCCESS, 720));
    assert_eq!(cu!(cuModuleUnload(module)), SUCCESS);
    assert_eq!(launch(scale, 1, 1, 0, parameters), INVALID_HANDLE);
}
