//! The library that is loaded into every GPU program of a sharing group.
//!
//! Built with feature `preload` it is a shared object without std that exports the rows of [`table`] and nothing
//! else. Built without, it is an ordinary library whose parts can be tested.
//!
//! What it is for: a program that uses a GPU waits for its pod's turn, sees one card of its pod's size, and cannot
//! take more memory than its pod may. What it must never do: break the program. So it never exits, never writes to
//! standard output, has no threads, no signal handlers and no allocator, leaves `errno` alone, and does nothing at
//! all in a process that never asks for CUDA or NVML.
//!
//! From the top, each knowing only those below (`FLOORS`):
//!
//! * `dispatch`: how programs get to the hooks, and which row of the table leads to which;
//! * `hooks`: what is done instead of a call or around it, a file per family;
//! * `charging`: what several hooks do alike to keep the pod's account right;
//! * `lease`: when a lease is taken, and when it ends;
//! * `real`: the real functions;
//! * `state`: what this process is to the pool, and what it holds;
//! * `agent`: the conversation with the agent, and the pages that came with it;
//! * [`table`]: what there is to interpose;
//! * `loaded`: the objects of this process and their symbols;
//! * `environment`, `lock`, `stop`, `sys`, `text`: the ground.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(feature = "preload"),
    allow(dead_code, reason = "only the built library has callers for everything")
)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the shim is written for x86-64 Linux: its trampolines and system calls are");

mod dispatch;

mod hooks;

mod charging;

mod lease;

mod real;

mod state;

mod agent;

pub mod table;

mod environment;
mod loaded;
mod lock;
mod stop;

mod sys;
mod text;

/// There is no std to panic with, and no panic to be had: a test on the built library fails if this function, which
/// has a section of its own, was not thrown away as unreachable.
#[cfg(all(feature = "preload", not(test)))]
#[panic_handler]
#[unsafe(link_section = "gpupool_panic")]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        sys::yield_now();
    }
}
