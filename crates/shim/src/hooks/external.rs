//! Memory of another API (Vulkan, OpenGL, a video decoder) that CUDA is given the use of.
//!
//! Whoever made it, it is on the card because of this pod, and nobody else is charged for it. So it is charged while
//! it is imported: once for all processes of the pod that import it, where it can be recognised by its descriptor's
//! file, else to each of them.

use gpupool_nvidia::cuda::{
    CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_SUCCESS, CUresult,
};

use crate::charging::allocations::{begin, failed};
use crate::charging::physical_memory::{self, first, let_go};
use crate::real::arguments::Arguments;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::shared_memory::key_of_file;
use crate::state::tables::keys::PhysicalMemory;
use crate::table::Entry;

/// Types of handles that are a descriptor.
const DESCRIPTORS: [u32; 2] =
    [CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD];

/// `cuImportExternalMemory(memory, description)`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuImportExternalMemory`: the first is null or points to a
/// `CUexternalMemory`, 8 bytes, that may be written; the second is null or points to a
/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, 104 bytes.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let description = arguments.pointer::<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>(1);
    // SAFETY: the caller's arguments; what the driver has written is read.
    unsafe {
        if description.is_null() {
            return arguments.call(entry);
        }
        let CUDA_EXTERNAL_MEMORY_HANDLE_DESC { r#type, fd, size, .. } = description.read_unaligned();
        // Before the call: the driver closes the descriptor.
        let key = if DESCRIPTORS.contains(&r#type) { key_of_file(fd) } else { None };
        let joined = key.and_then(|key| PROCESS.shared_memory.hold(account, key, None));
        let charge = match begin(if joined.is_some() { 0 } else { size }) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let Some(charge) = charge else { return code };
        if code != CUDA_SUCCESS {
            if let Some(place) = joined {
                PROCESS.shared_memory.leave(account, place);
            }
            return failed(charge, code);
        }
        let place = joined.or_else(|| PROCESS.shared_memory.hold(account, key?, Some(size)));
        first(PhysicalMemory::external(arguments.written(0)), place, size);
        if place.is_some() {
            charge.reservation.cancel();
        } else {
            charge.reservation.commit(size);
        }
        code
    }
}

/// `cuDestroyExternalMemory`.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuDestroyExternalMemory`: a `CUexternalMemory`, which is not
/// followed here.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        physical_memory::end(entry, arguments, account, |account, handle| {
            let_go(account, PhysicalMemory::external(handle));
        })
    }
}
