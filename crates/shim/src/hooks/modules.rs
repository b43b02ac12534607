//! What takes memory that nobody asks for by size: loaded code, limits of a context, green contexts.
//!
//! What one of them takes is what the card has less of afterwards, so far as the pod's other calls don't account for
//! it. Somebody else who takes memory of the card in the same microseconds falsifies that, so what can be believed is
//! bounded; what a large module takes beyond that, and what the driver loads later, shows as unaccounted. What puts
//! the pod over its limit is ended again.

use gpupool_nvidia::cuda::{
    CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUlimit,
    CUresult,
};

use crate::charging::allocations::{begin, failed};
use crate::charging::{contexts, physical_memory};
use crate::real::arguments::Arguments;
use crate::real::call;
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::tables::AllocationEntry;
use crate::state::tables::keys::{ContextHandle, LoadedHandle};
use crate::state::tables::values::Allocation;
use crate::table::Entry;

/// Most that one call is believed to have taken, in bytes; given back is never more than was taken before.
const MOST: i64 = 256 << 20;

/// Limits of a context that are buffers of the size that is set.
const BUFFERS: [CUlimit; 2] = [CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE];

/// What the card has free and the pod is charged, read one after the other.
struct MemoryReading {
    /// Free bytes of the card.
    free: u64,
    /// Bytes that the pod is charged.
    charged: u64,
}

impl MemoryReading {
    /// Nothing where the driver cannot say: it needs a current context.
    fn now(account: &Account) -> Option<Self> {
        let (mut free, mut total): (usize, usize) = (0, 0);
        // SAFETY: places for the answers.
        let code = unsafe {
            call!(Entry::cuMemGetInfo_v2, &raw mut free => *mut usize, &raw mut total => *mut usize)
        };
        (code == CUDA_SUCCESS).then(|| Self { free: free as u64, charged: account.committed() })
    }

    /// Bytes that were taken since an earlier moment and not charged; negative where some were given back.
    fn taken_since(&self, earlier: &Self) -> i64 {
        let taken = earlier.free.wrapping_sub(self.free).cast_signed();
        let charged = self.charged.wrapping_sub(earlier.charged).cast_signed();
        taken.wrapping_sub(charged).min(MOST)
    }
}

/// Calls the real function, and measures what it took.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose pointers are null or the program's, as NVIDIA documents
/// them. None is followed here.
unsafe fn measure(entry: Entry, arguments: &Arguments, account: &Account) -> (CUresult, i64) {
    let before = MemoryReading::now(account);
    // SAFETY: the caller's arguments.
    let code = unsafe { arguments.call(entry) };
    let taken = match (before, MemoryReading::now(account)) {
        (Some(before), Some(after)) if code == CUDA_SUCCESS => after.taken_since(&before),
        _ => 0,
    };
    (code, taken)
}

/// Charges what was measured to a thing that lives in the current context, beside what it was charged before.
fn charge(account: &Account, thing: AllocationEntry<'_>, taken: i64) {
    let before = thing.remove().map_or(0, |piece| piece.bytes);
    let bytes = before.saturating_add_signed(taken);
    if bytes > before {
        account.charge_anyway(bytes - before);
    } else {
        account.release(before - bytes);
    }
    let piece = Allocation { bytes, owner: contexts::current_owner(account) };
    if bytes != 0 && thing.insert(piece).is_err() {
        account.release(bytes);
    }
}

/// `cuModuleLoad…`, `cuLibraryLoad…`, and `cuGreenCtxCreate`, with which the primary context may turn up.
///
/// # Safety
/// `arguments` are those of a call of the row's function, whose pointers are null or the program's, as NVIDIA documents
/// them. Read is the first: null, or to the handle, 8 bytes, which the driver writes.
pub(crate) unsafe fn load(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    if account.over_limit() {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the caller's arguments.
    unsafe {
        let (code, taken) = measure(entry, arguments, account);
        if code != CUDA_SUCCESS {
            return code;
        }
        let noted = if entry == Entry::cuGreenCtxCreate { contexts::note_primary(account) } else { 0 };
        let taken = taken.saturating_sub_unsigned(noted);
        let thing = PROCESS.tables.loaded.entry(LoadedHandle(arguments.written(0)));
        if taken > 0 {
            charge(account, thing, taken);
            if account.over_limit() {
                charge(account, thing, -taken);
                call!(ends(entry), thing.handle() => u64);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        code
    }
}

/// What ends a thing that an entry point made.
fn ends(entry: Entry) -> Entry {
    match entry {
        Entry::cuLibraryLoadData | Entry::cuLibraryLoadFromFile => Entry::cuLibraryUnload,
        Entry::cuGreenCtxCreate => Entry::cuGreenCtxDestroy,
        _ => Entry::cuModuleUnload,
    }
}

/// `cuCtxSetLimit(limit, value)`: a buffer is charged as it was asked for, the rest is measured.
///
/// # Safety
/// `arguments` are those of a call of the row's function, `cuCtxSetLimit`: two numbers.
pub(crate) unsafe fn set_limit(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    let limit = arguments.half(0);
    let mut now: usize = 0;
    // SAFETY: a place for the answer.
    unsafe { call!(Entry::cuCtxGetLimit, &raw mut now => *mut usize, limit => CUlimit) };
    let asked = arguments.word(1).wrapping_sub(now).cast_signed() as i64;
    let asked = if BUFFERS.contains(&limit) { asked } else { 0 };
    let announced = match begin(u64::try_from(asked).unwrap_or(0)) {
        Ok(Some(announced)) => announced,
        // SAFETY: the caller's arguments.
        Ok(None) => return unsafe { arguments.call(entry) },
        Err(code) => return code,
    };
    // SAFETY: the caller's arguments.
    let (code, taken) = unsafe { measure(entry, arguments, account) };
    if code != CUDA_SUCCESS {
        return failed(announced, code);
    }
    let limits = PROCESS.tables.context_limits.entry(ContextHandle(contexts::current()));
    charge(account, limits, if asked == 0 { taken } else { asked });
    announced.reservation.cancel();
    code
}

/// `cuModuleUnload`, `cuLibraryUnload`, `cuGreenCtxDestroy`.
///
/// # Safety
/// `arguments` are those of a call of the row's function: a `CUmodule`, `CUlibrary` or `CUgreenCtx`, which is not
/// followed here.
pub(crate) unsafe fn unload(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        physical_memory::end(entry, arguments, account, |account, handle| {
            let taken = PROCESS.tables.loaded.remove(LoadedHandle(handle));
            account.release(taken.map_or(0, |taken| taken.bytes));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn reading(free: u64, charged: u64) -> MemoryReading {
        MemoryReading { free, charged }
    }

    #[test]
    fn what_is_gone_from_the_card_and_not_charged_was_taken() {
        assert_eq!(reading(900, 50).taken_since(&reading(1000, 50)), 100);
        assert_eq!(reading(900, 80).taken_since(&reading(1000, 50)), 70);
        assert_eq!(reading(1000, 50).taken_since(&reading(900, 50)), -100);
        assert_eq!(reading(0, 0).taken_since(&reading(1 << 40, 0)), MOST);
        assert_eq!(reading(1 << 40, 0).taken_since(&reading(0, 0)), -(1 << 40));
    }
}
