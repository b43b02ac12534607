//! Hooks of any form: the arguments of a call as words, kept while its family looks at them.
//!
//! Most calls of a family differ in their arguments' number and order only, and go to the driver as they came. So one
//! piece of assembly takes the words out of the registers and off the stack, and one function per family is enough.
//! No such call has a floating-point argument, and what the caller put on its stack is at least as much as is read.

use core::arch::naked_asm;

use crate::account::Account;
use crate::code::{CuResult, INVALID_CONTEXT, NOT_FOUND};
use crate::pointers::Kind;
use crate::process::{self, Stage, Way};
use crate::stop;
use crate::table::{Class, Entry};
use crate::{arrays, contexts, external, graphs, ipc, measured, memory, pools, real, virtual_memory};

/// The first six words of a call, from its registers, and eight from the caller's stack.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Arguments([usize; 14]);

impl Arguments {
    /// Those of a call of two.
    pub(crate) fn two<T, U>(first: *mut T, second: *mut U) -> Self {
        let mut words = [0; 14];
        (words[0], words[1]) = (first.expose_provenance(), second.expose_provenance());
        Self(words)
    }

    /// What the caller's stack holds: a structure that is passed as it is, up to 64 bytes.
    pub(crate) fn on_stack(&self) -> [u64; 8] {
        let [_, _, _, _, _, _, stack @ ..] = self.0;
        stack.map(|word| word as u64)
    }

    /// An argument as a number.
    pub(crate) fn word(&self, place: usize) -> usize {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// An argument of 32 bits, whose word may hold anything in its upper half.
    pub(crate) fn half(&self, place: usize) -> u32 {
        u32::try_from(self.word(place) & 0xffff_ffff).unwrap_or(0)
    }

    /// An argument as an address of a `T`; null where the caller passed that.
    pub(crate) fn pointer<T>(&self, place: usize) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.word(place))
    }

    /// What the driver has written to the place that an argument names; 0 where there is none.
    ///
    /// # Safety
    /// A call that was given the argument must have succeeded.
    pub(crate) unsafe fn written(&self, place: usize) -> u64 {
        let place = self.pointer::<u64>(place);
        // SAFETY: the caller's promise; handles and addresses have eight bytes.
        if place.is_null() { 0 } else { unsafe { place.read_unaligned() } }
    }

    /// Calls the real function of a row with these arguments.
    ///
    /// # Safety
    /// They must be what the row's function asks for.
    #[inline(never)]
    #[allow(clippy::many_single_char_names, reason = "words that mean nothing here")]
    pub(crate) unsafe fn call(&self, entry: Entry) -> CuResult {
        type Any = unsafe extern "C" fn(
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
        ) -> CuResult;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = self.0;
        // SAFETY: a function reads the arguments that it has, which are the first of these in every such function.
        unsafe {
            let function: Any = core::mem::transmute::<*const (), _>(core::ptr::with_exposed_provenance(
                real::callable(entry),
            ));
            stop::at(b"calling");
            let code = function(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
            stop::at(b"called");
            code
        }
    }
}

/// The entry points of families. The row's index comes in `eax`.
///
/// # Safety
/// As the driver's function of that row.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn enter() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        // Above the frame: its link and the return address, then the caller's stack.
        "lea r10, [rbp + 16]",
        "mov r11d, 64",
        "2:",
        "push qword ptr [r10 + r11 - 8]",
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
        "call {hooked}",
        "leave",
        "ret",
        hooked = sym hooked,
    )
}

/// How a call of a family may go on. Before the first grant there is no context; and what gives memory back or waits
/// must not wait for a lease that it does not need.
fn way(entry: Entry) -> Way {
    match (entry.class(), process::stage()) {
        (Class::Settles | Class::Charges, Stage::Initialised) => Way::Barred(INVALID_CONTEXT),
        (Class::Frees | Class::Settles, _) => process::account().map_or(Way::Plain, Way::Leased),
        _ => process::lease(),
    }
}

/// Hands a call to its family.
unsafe extern "C" fn hooked(row: u32, arguments: &Arguments) -> CuResult {
    let Some(entry) = Entry::from_index(row as usize) else { return NOT_FOUND };
    match way(entry) {
        Way::Barred(code) => code,
        // SAFETY: the caller's arguments.
        Way::Plain => unsafe { arguments.call(entry) },
        // SAFETY: as above.
        Way::Leased(account) => unsafe { in_family(entry, arguments, &account) },
    }
}

unsafe fn in_family(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    // SAFETY: the caller's arguments, each to the family of its row.
    unsafe {
        match entry {
            Entry::cuArrayCreate
            | Entry::cuArrayCreate_v2
            | Entry::cuArray3DCreate
            | Entry::cuArray3DCreate_v2
            | Entry::cuMipmappedArrayCreate => arrays::create(entry, arguments),
            Entry::cuArrayDestroy | Entry::cuMipmappedArrayDestroy => {
                virtual_memory::end(entry, arguments, account, Kind::Array)
            }
            Entry::cuModuleUnload | Entry::cuLibraryUnload | Entry::cuGreenCtxDestroy => {
                virtual_memory::end(entry, arguments, account, Kind::Measured)
            }
            Entry::cuDestroyExternalMemory => virtual_memory::end(entry, arguments, account, Kind::External),
            Entry::cuMemRelease => virtual_memory::end(entry, arguments, account, Kind::Physical),
            Entry::cuMemCreate => virtual_memory::create(entry, arguments),
            Entry::cuMemMap => virtual_memory::map(entry, arguments, account),
            Entry::cuMemUnmap => virtual_memory::unmap(entry, arguments, account),
            Entry::cuMemRetainAllocationHandle => virtual_memory::retain_handle(entry, arguments),
            Entry::cuMemExportToShareableHandle => virtual_memory::export(entry, arguments, account),
            Entry::cuMemImportFromShareableHandle => virtual_memory::import(entry, arguments, account),
            Entry::cuMemMapArrayAsync | Entry::cuMemMapArrayAsync_ptsz => {
                virtual_memory::map_array(entry, arguments, account)
            }
            Entry::cuGraphAddMemAllocNode
            | Entry::cuGraphAddNode
            | Entry::cuGraphAddNode_v2
            | Entry::cuGraphAddNode_v3 => graphs::add_node(entry, arguments),
            Entry::cuGraphInstantiate
            | Entry::cuGraphInstantiate_v2
            | Entry::cuGraphInstantiateWithFlags
            | Entry::cuGraphInstantiateWithParams
            | Entry::cuGraphInstantiateWithParams_ptsz => graphs::instantiate(entry, arguments, account),
            Entry::cuGraphUpload | Entry::cuGraphUpload_ptsz => graphs::upload(entry, arguments, account),
            Entry::cuGraphExecDestroy => graphs::destroy(entry, arguments),
            Entry::cuIpcGetMemHandle => ipc::get(entry, arguments, account),
            Entry::cuIpcOpenMemHandle | Entry::cuIpcOpenMemHandle_v2 => ipc::open(entry, arguments, account),
            Entry::cuIpcCloseMemHandle => virtual_memory::end(entry, arguments, account, Kind::Opened),
            Entry::cuMemAllocManaged => memory::alloc_managed(entry, arguments),
            Entry::cuMemAllocPitch_v2 => memory::alloc_pitch(entry, arguments),
            Entry::cuMemFreeAsync | Entry::cuMemFreeAsync_ptsz => memory::free_async(entry, arguments),
            Entry::cuMemAllocAsync
            | Entry::cuMemAllocAsync_ptsz
            | Entry::cuMemAllocFromPoolAsync
            | Entry::cuMemAllocFromPoolAsync_ptsz => pools::alloc(entry, arguments, account),
            Entry::cuMemPoolCreate | Entry::cuMemGetDefaultMemPool | Entry::cuMemGetMemPool => {
                pools::named(entry, arguments)
            }
            Entry::cuMemPoolDestroy => pools::destroy(entry, arguments, account),
            Entry::cuCtxCreate
            | Entry::cuCtxCreate_v2
            | Entry::cuCtxCreate_v3
            | Entry::cuCtxCreate_v4
            | Entry::cuGLCtxCreate
            | Entry::cuGLCtxCreate_v2
            | Entry::cuVDPAUCtxCreate
            | Entry::cuVDPAUCtxCreate_v2 => contexts::create(entry, arguments),
            Entry::cuCtxDestroy | Entry::cuCtxDestroy_v2 | Entry::cuCtxDetach => {
                contexts::destroy(entry, arguments)
            }
            Entry::cuModuleLoad
            | Entry::cuModuleLoadData
            | Entry::cuModuleLoadDataEx
            | Entry::cuModuleLoadFatBinary
            | Entry::cuLibraryLoadData
            | Entry::cuLibraryLoadFromFile
            | Entry::cuGreenCtxCreate => measured::load(entry, arguments, account),
            Entry::cuCtxSetLimit => measured::set_limit(entry, arguments, account),
            Entry::cuImportExternalMemory => external::import(entry, arguments, account),
            _ => pools::settling(entry, arguments),
        }
    }
}
