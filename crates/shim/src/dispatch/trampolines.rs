//! The few pieces of assembly: entry points that must leave every argument alone, or must not be seen as the caller.
//!
//! A gate and a launch take any number of arguments of any kind, so they may touch only what the calling convention
//! leaves free before a function begins (`rax`, `r10`, `r11`). `dlsym` must be left by a jump, because the real one
//! looks at the address that it will return to.
//!
//! Every entry point begins with `mov eax, row`, five bytes: the code behind it may need the row, and the row of an
//! entry point can be read there.

use core::arch::naked_asm;
use core::mem::offset_of;

use gpupool_nvidia::cuda::{CUDA_ERROR_INVALID_CONTEXT, CUresult};

use crate::agent::pages::Pages;
use crate::hooks::{graphs, launches};
use crate::lease::{self, Access};
use crate::real;
use crate::state::{self, Mode, PROCESS, Process, ProcessStage};
use crate::table::{Class, Entry};

const _: () = assert!(offset_of!(Process, targets) == 0);

/// Where the address of the mark lies in the state.
const MARK_OFFSET: usize = offset_of!(Process, pages) + offset_of!(Pages, submitted);

/// A gate's body: go where every gate goes.
macro_rules! gate {
    ($entry:expr) => {
        core::arch::naked_asm!(
            "mov eax, {row}",
            "jmp {pass}",
            row = const $entry.index(),
            pass = sym $crate::dispatch::trampolines::pass,
        )
    };
}

/// An identity row's body: as a gate's; what to do without a target may be to call `hook`.
macro_rules! identity {
    ($entry:expr, $hook:path) => {
        core::arch::naked_asm!(
            "mov eax, {row}",
            "lea r10, [rip + {hook}]",
            "jmp {pass}",
            row = const $entry.index(),
            hook = sym $hook,
            pass = sym $crate::dispatch::trampolines::pass,
        )
    };
}

/// A launch's body: as a gate's, if the ledger's mark for submitted work is set. The agent takes the mark away once a
/// second, so that a launch goes the long way that often, where it also learns whether its pod has a core limit; where
/// it has one, the target is [`paced`](crate::hooks::launches::paced), which wants to know the row.
macro_rules! launch {
    ($entry:expr) => {
        core::arch::naked_asm!(
            "mov eax, {row}",
            "jmp {submit}",
            row = const $entry.index(),
            submit = sym $crate::dispatch::trampolines::submit,
        )
    };
}

/// A hook's body: be the function of that path, under another name.
macro_rules! direct {
    ($entry:expr, $hook:path) => {
        core::arch::naked_asm!("mov eax, {row}", "jmp {hook}", row = const $entry.index(), hook = sym $hook)
    };
}

pub(super) use {direct, gate, identity, launch};

/// Jumps to a row's target if there is one, else finds out what to do. The row's index comes in `eax`, an identity
/// row's own function in `r10`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn pass() {
    naked_asm!(
        "lea r11, [rip + {state}]",
        "mov r11, qword ptr [r11 + 8 * rax]",
        "test r11, r11",
        "je {slow}",
        "jmp r11",
        state = sym PROCESS,
        slow = sym not_open,
    )
}

/// The same for launches, which go straight on only while the mark for submitted work is set.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn submit() {
    naked_asm!(
        "lea r11, [rip + {state}]",
        "mov r10, qword ptr [r11 + {mark}]",
        "mov r11, qword ptr [r11 + 8 * rax]",
        "test r11, r11",
        "je {slow}",
        "cmp dword ptr [r10], 0",
        "je {slow}",
        "jmp r11",
        state = sym PROCESS,
        mark = const MARK_OFFSET,
        slow = sym not_open,
    )
}

/// The way of a gate or launch whose target is not set, and now and then of any launch: asks [`open`] with all arguments saved, then goes on to the
/// real function as if nothing had happened, or returns the error. The row's index comes in `eax`, an identity row's
/// own function in `r10`.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn not_open() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov edi, eax",
        "mov rsi, r10",
        "call {open}",
        "mov r11, rax",
        "mov eax, edx",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2:",
        "ret",
        open = sym open,
    )
}

/// What [`not_open`] does next: jump to `address`, or return `code` where that is 0. `code` is in `eax` either way,
/// where [`launches::paced`] looks for the row.
#[repr(C)]
pub(crate) struct Opened {
    address: usize,
    code: CUresult,
}

/// Does what a row's class asks for before its first call.
extern "C" fn open(row: u32, hook: usize) -> Opened {
    let barred = |code| Opened { address: 0, code };
    let Some(entry) = Entry::from_index(row as usize) else { return barred(CUDA_ERROR_INVALID_CONTEXT) };
    let address = graphs::launcher(entry);
    let go = Opened { address, code: 0 };
    if real::find(entry).address().is_none() {
        return go;
    }
    if state::mode() == Mode::NoPool {
        state::open_row(entry, address);
        return go;
    }
    let stage = state::stage();
    match entry.class() {
        Class::Identity if stage == ProcessStage::Initialised => Opened { address: hook, code: 0 },
        // There can be no context yet, nor anything that could be launched.
        Class::NeedsContext | Class::Launches if stage == ProcessStage::Initialised => {
            barred(CUDA_ERROR_INVALID_CONTEXT)
        }
        Class::Identity if stage != ProcessStage::Granted => go,
        Class::Gate | Class::NeedsContext | Class::Identity if stage == ProcessStage::Granted => {
            state::open_row(entry, address);
            go
        }
        _ => match lease::ensure() {
            Access::Uncharged => go,
            Access::Leased(account) => {
                let launches = entry.class() == Class::Launches;
                if launches {
                    account.slot().mark_submitted();
                }
                let paced: unsafe extern "C" fn() = launches::paced;
                let limited = launches && account.core_rate().is_limited();
                let target = if limited { (paced as *const ()).expose_provenance() } else { address };
                state::open_row(entry, target);
                Opened { address: target, code: row.cast_signed() }
            }
            Access::Denied(code) => barred(code),
        },
    }
}

const _: () = {
    // `open` answers in rax and rdx only while its answer has two words.
    assert!(size_of::<Opened>() == 16);
    let _ = &raw const PROCESS;
};
