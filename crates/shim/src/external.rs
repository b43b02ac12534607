//! Memory of another API (Vulkan, OpenGL, a video decoder) that CUDA is given the use of.
//!
//! Whoever made it, it is on the card because of this pod, and nobody else is charged for it. So it is charged while
//! it is imported: once for all processes of the pod that import it, where it can be recognised by its descriptor's
//! file, else to each of them.

use crate::account::Account;
use crate::arguments::Arguments;
use crate::code::{CuResult, SUCCESS};
use crate::memory::{begin, failed};
use crate::process::PROCESS;
use crate::shares::key_of_file;
use crate::table::Entry;
use crate::virtual_memory::{EXTERNAL, first, folded};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD` and `…_DMABUF_FD`.
const DESCRIPTORS: [u32; 2] = [1, 9];

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, as far as it matters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Description {
    kind: u32,
    padding: u32,
    /// Of the two words of a handle the first, or half of it.
    descriptor: i32,
    rest: [i32; 3],
    size: u64,
}

const _: () = {
    assert!(core::mem::offset_of!(Description, descriptor) == 8);
    assert!(core::mem::offset_of!(Description, size) == 24);
};

/// `cuImportExternalMemory(memory, description)`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let description = arguments.pointer::<Description>(1);
    // SAFETY: the caller's arguments; what the driver has written is read.
    unsafe {
        if description.is_null() {
            return arguments.call(entry);
        }
        let Description { kind, descriptor, size, .. } = description.read_unaligned();
        // Before the call: the driver closes the descriptor.
        let key = if DESCRIPTORS.contains(&kind) { key_of_file(descriptor) } else { None };
        let joined = key.and_then(|key| PROCESS.shares.hold(account, key, None));
        let charge = match begin(if joined.is_some() { 0 } else { size }) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let Some(charge) = charge else { return code };
        if code != SUCCESS {
            if let Some(place) = joined {
                PROCESS.shares.leave(account, place);
            }
            return failed(charge, code);
        }
        let place = joined.or_else(|| PROCESS.shares.hold(account, key?, Some(size)));
        first(folded(arguments.written(0)) | EXTERNAL, place, size);
        if place.is_some() {
            charge.reservation.cancel();
        } else {
            charge.reservation.commit(size);
        }
        code
    }
}
