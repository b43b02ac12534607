//! Every exported function, asked for nothing: it answers with a code, before initialisation, without a context and
//! with one.

use std::ffi::{CString, c_void};

use simgpu_device::Machine;

use crate::{
    api::{Handle, NOT_INITIALIZED, SUCCESS, cu, get},
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing_but_a_few_works_before_initialisation", env: &[], run: before },
    Scenario { name: "null_pointers_and_zeros_are_answered_with_a_code", env: &[], run: zeros },
    Scenario { name: "without_a_context_nothing_needs_one_silently", env: &[], run: without_context },
];

type Call = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

/// Symbol, and the function itself.
fn all() -> Vec<(&'static str, Call)> {
    let table = include_str!("../../entry_points.tsv");
    let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| {
        let [symbol, base, version, flavour] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let name = CString::new(base).unwrap();
        let flags = if flavour == "plain" { 1 } else { 2 };
        let (mut code, mut status): (*mut c_void, i32) = (std::ptr::null_mut(), 9);
        let version = version.parse().unwrap();
        let found = cu!(cuGetProcAddress_v2(name.as_ptr(), &raw mut code, version, flags, &raw mut status));
        assert_eq!(found, SUCCESS, "{symbol}");
        // SAFETY: every function of the driver takes no more than this, in registers and on the stack.
        (symbol, unsafe { std::mem::transmute::<*mut c_void, Call>(code) })
    })
    .collect()
}

/// What may be asked of a driver that was not initialised.
const EARLY: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

fn call(function: Call) -> i32 {
    function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

fn before() {
    for (symbol, function) in all() {
        if !EARLY.contains(&symbol) {
            assert_eq!(call(function), NOT_INITIALIZED, "{symbol}");
        }
    }
}

fn zeros() {
    let functions = all();
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    let _context: Handle = get!(cuCtxCreate_v2(0, 0));
    for (symbol, function) in functions {
        let code = call(function);
        assert!((0..=999).contains(&code) && code != 999, "{symbol} answers {code}");
        // What took the context away is followed by another one.
        let current: Handle = get!(cuCtxGetCurrent());
        if current == 0 {
            let _next: Handle = get!(cuCtxCreate_v2(0, 0));
        }
    }
    // Nothing that failed kept any memory.
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    let contexts = card.processes()[0].contexts;
    assert_eq!(card.used_memory(), u64::from(contexts) * card.model().context_memory);
}

fn without_context() {
    let functions = all();
    assert_eq!(cu!(cuInit(0)), SUCCESS);
    for (symbol, function) in functions {
        let code = call(function);
        assert!((0..=999).contains(&code) && code != 999, "{symbol} answers {code}");
        assert_eq!(get!(cuCtxGetCurrent()) as Handle, 0, "{symbol} made a context");
    }
    let card = Machine::open_from_env().unwrap().card(0).unwrap();
    assert_eq!(card.used_memory(), 0);
}
