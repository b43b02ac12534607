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
//! Layers, each knowing only those below:
//!
//! * `entry_points`, `trampolines`, `resolve`: how programs get to the hooks;
//! * `identity`, `contexts`, `memory`, `pools`, `arrays`, `virtual_memory`, `graphs`, `external`, `ipc`,
//!   `measured`, `launches`,
//!   `costs`, `nvml`: the hooks, those of whole families behind `arguments`;
//! * `process`, `account`, `shares`: what this process is to the pool;
//! * `client`, `connection`, `waiting`: the conversation with the agent;
//! * [`table`], `real`, `loaded`, `elf`: what there is to interpose, and where the real functions lie;
//! * `sys`, `lock`, `pointers`, `text`, `environment`, `visible`: the ground.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(feature = "preload"),
    allow(dead_code, reason = "only the built library has callers for everything")
)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the shim is written for x86-64 Linux: its trampolines and system calls are");

mod account;
mod arguments;
mod arrays;
mod client;
mod code;
mod connection;
mod contexts;
mod costs;
mod elf;
mod entry_points;
mod environment;
mod external;
mod graphs;
mod identity;
mod ipc;
mod launches;
mod loaded;
mod lock;
mod measured;
mod memory;
pub mod names;
mod nvml;
#[cfg(not(feature = "preload"))]
pub mod passes;
mod pointers;
mod pools;
mod process;
mod real;
mod resolve;
mod shares;
mod stop;
mod sys;
pub mod table;
mod text;
mod trampolines;
mod virtual_memory;
mod visible;
mod waiting;

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
