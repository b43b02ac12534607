//! The way to hooks that are handed their arguments as words: one piece of assembly takes the words out of the registers
//! and off the stack, and one function per family is enough.

use core::arch::naked_asm;

use gpupool_nvidia::cuda::{CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_FOUND, CUresult};

use crate::lease::{self, Access};
use crate::real::arguments::Arguments;
use crate::state::account::Account;
use crate::state::{self, ProcessStage};
use crate::table::{Class, Entry};

/// A hook of this form, called only where the process has an account.
///
/// # Safety
/// The arguments must be those of a call of the row's function.
pub(super) type WordHook = unsafe fn(Entry, &Arguments, &Account) -> CUresult;

/// The body of the code that leads the rows of such a hook to it: go where all of these go, with its address.
macro_rules! to_hook {
    ($hook:path) => {
        core::arch::naked_asm!(
            "lea r10, [rip + {hook}]",
            "jmp {enter}",
            hook = sym $hook,
            enter = sym $crate::dispatch::words::enter,
        )
    };
}
pub(super) use to_hook;

/// Goes on to such a hook. The row's index comes in `eax`, the hook's address in `r10`.
///
/// # Safety
/// `r10` must be the address of a [`WordHook`]; everything else is as the program passes it to the row's function.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        // Above the frame, its link and the return address: eight words of the caller's stack, the last first.
        "mov r11d, 64",
        "2:",
        "push qword ptr [rbp + r11 + 8]",
        "sub r11d, 8",
        "jne 2b",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov edi, eax",
        "mov rsi, rsp",
        "mov rdx, r10",
        "call {hooked}",
        "leave",
        "ret",
        hooked = sym hooked,
    )
}

/// How such a call may go on. Before the first grant there is no context; and what gives memory back or waits must not
/// wait for a lease that it does not need.
fn access(entry: Entry) -> Access {
    match (entry.class(), state::stage()) {
        (Class::Settles | Class::Charges, ProcessStage::Initialised) => {
            Access::Denied(CUDA_ERROR_INVALID_CONTEXT)
        }
        (Class::Frees | Class::Settles, _) => state::account().map_or(Access::Uncharged, Access::Leased),
        _ => lease::ensure(),
    }
}

/// Calls the hook at an address, if the call may go on.
///
/// # Safety
/// `hook` must be the address of a [`WordHook`], `arguments` those of a call of the row's function.
unsafe extern "C" fn hooked(row: u32, arguments: &Arguments, hook: usize) -> CUresult {
    let Some(entry) = Entry::from_index(row as usize) else { return CUDA_ERROR_NOT_FOUND };
    match access(entry) {
        Access::Denied(code) => code,
        // SAFETY: the caller's arguments.
        Access::Uncharged => unsafe { arguments.call(entry) },
        // SAFETY: as above; and the caller's promise about the hook.
        Access::Leased(account) => unsafe {
            let hook: WordHook =
                core::mem::transmute::<*const (), _>(core::ptr::with_exposed_provenance(hook));
            hook(entry, arguments, &account)
        },
    }
}
