//! Memory of another API (Vulkan, OpenGL, a video decoder) that CUDA is given the use of.
//!
//! Whoever made it, it is on the card because of this pod, and nobody else is charged for it. So it is charged while
//! it is imported: once for all processes of the pod that import it, where it can be recognised by its descriptor's
//! file, else to each of them.

use crate::account::Account;
use crate::arguments::Arguments;
use crate::code::{CuResult, SUCCESS};
use crate::memory::{begin, failed};
use crate::pointers::{Kind, Piece};
use crate::process::{self, PROCESS};
use crate::shares::Key;
use crate::table::Entry;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD` and `…_DMABUF_FD`.
const DESCRIPTORS: [u32; 2] = [1, 9];

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, as far as it matters.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Description {
    kind: u32,
    descriptor: i64,
    rest: u64,
    size: u64,
}

/// `cuImportExternalMemory(memory, description)`.
///
/// # Safety
/// As the driver's, like every function here.
pub(crate) unsafe fn import(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let description = arguments.pointer::<Description>(1);
    // SAFETY: the caller's arguments.
    unsafe {
        if description.is_null() {
            return arguments.call(entry);
        }
        let Description { kind, descriptor, size, .. } = description.read_unaligned();
        let file = i32::try_from(descriptor & 0xffff_ffff).ok().filter(|_| DESCRIPTORS.contains(&kind));
        // The driver closes the descriptor.
        let key = file.and_then(Key::of_file).filter(|key| key.unique);
        let joined = key.and_then(|key| PROCESS.shares.join(account, key.word)).map(|(place, _)| place);
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
        let (memory, bytes) = (arguments.written(0), charge.reservation.bytes());
        let place = joined.or_else(|| PROCESS.shares.share(account, key?.word, bytes));
        let (kind, note) = match place {
            Some(place) => (Kind::Place, place as u64 + 1),
            None => (Kind::External, bytes),
        };
        let _ = PROCESS.pointers.insert(kind.of(memory), Piece::note(note));
        if place.is_some() {
            charge.reservation.cancel();
        } else {
            charge.reservation.commit(bytes);
        }
        code
    }
}

/// `cuDestroyExternalMemory(memory)`.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, account: &Account) -> CuResult {
    let memory = arguments.word(0) as u64;
    // Before the call, or another thread could be given the handle anew in between.
    let place = PROCESS.pointers.remove(Kind::Place.of(memory));
    let private = PROCESS.pointers.remove(Kind::External.of(memory));
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    for (kind, piece) in [(Kind::Place, place), (Kind::External, private)] {
        let Some(piece) = piece else { continue };
        if code != SUCCESS {
            let _ = PROCESS.pointers.insert(kind.of(memory), piece);
        } else if kind == Kind::External {
            account.release(piece.bytes);
        } else if let Ok(place) = usize::try_from(piece.bytes - 1) {
            PROCESS.shares.leave(account, place);
        }
    }
    if code == SUCCESS && account.slot().contexts() == 0 {
        process::release_if_idle();
    }
    code
}
