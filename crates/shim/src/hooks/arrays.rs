//! Arrays: device memory in a layout of the driver's own, so that what one takes cannot be told from its dimensions.
//!
//! A driver since CUDA 11.6 tells it of an array whose memory is yet to come. So before the array itself such a twin
//! is made, asked and destroyed. Where that is not to be had, dimensions rounded up to the layout's blocks must do.
//! Arrays that are sparse, or get their memory later, take none: what is mapped into them is charged by itself.

use gpupool_nvidia::cuda::{
    CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, CU_AD_FORMAT_HALF, CU_AD_FORMAT_SIGNED_INT8,
    CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_UNORM_INT8X1,
    CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1,
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE, CUDA_SUCCESS, CUarray_format,
    CUresult,
};

use crate::charging::allocations::{begin, finish};
use crate::charging::physical_memory;
use crate::real::arguments::Arguments;
use crate::real::{call, unlisted};
use crate::state::PROCESS;
use crate::state::account::Account;
use crate::state::tables::keys::ArrayHandle;
use crate::table::Entry;

/// A handle of the driver.
type Array = u64;

/// Memory of arrays comes in blocks of this many bytes.
const BLOCK: u64 = 64 << 10;

/// An array, as its maker describes it.
#[derive(Clone, Copy)]
struct Shape(CUDA_ARRAY3D_DESCRIPTOR);

impl Shape {
    /// Reads what the caller describes, in the form of its call.
    ///
    /// # Safety
    /// `place` must be that of a description in the form that the row's function takes.
    unsafe fn read(entry: Entry, place: *const u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match entry {
                Entry::cuArrayCreate => {
                    let array = place.cast::<CUDA_ARRAY_DESCRIPTOR_v1>().read_unaligned();
                    let sides = [array.Width as usize, array.Height as usize, 0];
                    Self::new(sides, array.Format, array.NumChannels, 0)
                }
                Entry::cuArrayCreate_v2 => {
                    let array = place.cast::<CUDA_ARRAY_DESCRIPTOR>().read_unaligned();
                    Self::new([array.Width, array.Height, 0], array.Format, array.NumChannels, 0)
                }
                Entry::cuArray3DCreate => {
                    let array = place.cast::<CUDA_ARRAY3D_DESCRIPTOR_v1>().read_unaligned();
                    let sides = [array.Width as usize, array.Height as usize, array.Depth as usize];
                    Self::new(sides, array.Format, array.NumChannels, array.Flags)
                }
                _ => Self(place.cast::<CUDA_ARRAY3D_DESCRIPTOR>().read_unaligned()),
            }
        }
    }

    /// An array of these sides, 0 for each that it does not have.
    const fn new(
        [width, height, depth]: [usize; 3],
        format: CUarray_format,
        channels: u32,
        flags: u32,
    ) -> Self {
        Self(CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        })
    }

    /// Bytes of an element: `CUarray_format` says how a channel is written, or for the kinds that are packed the whole.
    fn element(&self) -> u64 {
        let channels = u64::from(self.0.NumChannels.max(1));
        match self.0.Format {
            CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => channels,
            CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2 * channels,
            // These say their channels themselves, four of 16 bits at most.
            CU_AD_FORMAT_UNORM_INT8X1..=CU_AD_FORMAT_SNORM_INT16X4 => 8,
            // Blocks of 16 texels in 8 or 16 bytes.
            CU_AD_FORMAT_BC1_UNORM..=CU_AD_FORMAT_BC7_UNORM_SRGB => 1,
            _ => 4 * channels,
        }
    }

    /// Bytes of `levels` levels, each row, each stack of rows and the whole rounded up to the blocks that memory is
    /// laid out in.
    fn estimate(&self, levels: u32) -> u64 {
        let bytes = (0..levels.clamp(1, 32)).fold(0, |sum: u64, level| {
            let at = |size: usize| (size as u64 >> level).max(1);
            let row = at(self.0.Width).saturating_mul(self.element());
            let row = row.checked_next_multiple_of(64).unwrap_or(u64::MAX);
            let rows = at(self.0.Height);
            let rows = if rows == 1 { 1 } else { rows.checked_next_multiple_of(8).unwrap_or(u64::MAX) };
            let layers = if self.0.Flags & CUDA_ARRAY3D_LAYERED == 0 {
                at(self.0.Depth)
            } else {
                (self.0.Depth as u64).max(1)
            };
            sum.saturating_add(row.saturating_mul(rows).saturating_mul(layers))
        });
        bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
    }

    /// What the driver would take, asked of a twin without memory.
    fn asked(&self, levels: u32) -> Option<u64> {
        let twin = CUDA_ARRAY3D_DESCRIPTOR { Flags: self.0.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING, ..self.0 };
        let (mut array, mut needs): (Array, _) = (0, CUDA_ARRAY_MEMORY_REQUIREMENTS::default());
        let place = (&raw mut needs).expose_provenance();
        // SAFETY: the driver's forms of these calls, with places for the answers; device 0 is the only one.
        let code = unsafe {
            let made = if levels == 0 {
                call!(Entry::cuArray3DCreate_v2, &raw mut array => *mut Array, &raw const twin => *const CUDA_ARRAY3D_DESCRIPTOR)
            } else {
                call!(Entry::cuMipmappedArrayCreate, &raw mut array => *mut Array,
                    &raw const twin => *const CUDA_ARRAY3D_DESCRIPTOR, levels => u32)
            };
            let question: &[u8] = match levels {
                _ if made != CUDA_SUCCESS => return None,
                0 => b"cuArrayGetMemoryRequirements",
                _ => b"cuMipmappedArrayGetMemoryRequirements",
            };
            let code = unlisted(question, [place, usize::try_from(array).unwrap_or(0), 0]);
            call!(destroys(levels), array => Array);
            code
        };
        (code == CUDA_SUCCESS).then_some(needs.size as u64)
    }
}

/// What destroys an array of so many levels, 0 for one that has none.
fn destroys(levels: u32) -> Entry {
    if levels == 0 { Entry::cuArrayDestroy } else { Entry::cuMipmappedArrayDestroy }
}

/// Makes an array, of one level or several.
///
/// # Safety
/// `arguments` are those of a call of the row's function, which makes an array: the first is null or points to a
/// handle, 8 bytes, that may be written; the second is null or points to the description, in the form that the row
/// takes: of `cuArrayCreate` 16 bytes, of `cuArrayCreate_v2` 24, of `cuArray3DCreate` 24, of the others 40.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments, _: &Account) -> CUresult {
    let levels = if entry == Entry::cuMipmappedArrayCreate { arguments.half(2).max(1) } else { 0 };
    let described = arguments.pointer::<u32>(1);
    // SAFETY: the caller's arguments; what the driver has accepted it has described.
    unsafe {
        if described.is_null() || arguments.word(0) == 0 {
            return arguments.call(entry);
        }
        let shape = Shape::read(entry, described);
        if shape.0.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0 {
            return arguments.call(entry);
        }
        let bytes = shape.asked(levels).unwrap_or_else(|| shape.estimate(levels));
        let charge = match begin(bytes) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let array = if code == CUDA_SUCCESS { arguments.written(0) } else { 0 };
        let array = PROCESS.tables.arrays.entry(ArrayHandle(array));
        finish(charge, code, array, bytes, destroys(levels))
    }
}

/// What is remembered of an array that is destroyed.
fn forget(account: &Account, handle: u64) {
    let (tables, array) = (&PROCESS.tables, ArrayHandle(handle));
    account.release(tables.arrays.remove(array).map_or(0, |allocation| allocation.bytes));
    // What was mapped into a sparse array is mapped there no more.
    if let Some(number) = tables.sparse_arrays.remove(array) {
        while let Some(tile) = tables.tiles.take_one(number) {
            physical_memory::let_go(account, tile.memory);
        }
    }
}

/// `cuArrayDestroy`, `cuMipmappedArrayDestroy`.
///
/// # Safety
/// `arguments` are those of a call of the row's function: a `CUarray` or `CUmipmappedArray`, which is not followed
/// here.
pub(crate) unsafe fn destroy(entry: Entry, arguments: &Arguments, account: &Account) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { physical_memory::end(entry, arguments, account, forget) }
}

#[cfg(test)]
mod tests {
    use gpupool_nvidia::cuda::{CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_UNSIGNED_INT32};

    use super::*;

    #[test]
    fn an_estimate_counts_bytes_and_never_bits() {
        let shape = Shape::new([1024, 512, 0], CU_AD_FORMAT_FLOAT, 4, 0);
        assert_eq!(shape.estimate(0), 1024 * 512 * 16);
        let bytes = |format, channels| Shape::new([1024, 512, 0], format, channels, 0).element();
        assert_eq!(
            [
                bytes(CU_AD_FORMAT_UNSIGNED_INT8, 1),
                bytes(CU_AD_FORMAT_SIGNED_INT16, 2),
                bytes(CU_AD_FORMAT_HALF, 4),
                bytes(CU_AD_FORMAT_UNSIGNED_INT32, 1)
            ],
            [1, 4, 8, 4]
        );
    }

    #[test]
    fn levels_shrink_and_layers_do_not() {
        let shape = Shape::new([256, 256, 4], CU_AD_FORMAT_FLOAT, 1, 0);
        assert_eq!(shape.estimate(2), 256 * 256 * 4 * 4 + 128 * 128 * 4 * 2);
        let layered = Shape::new([256, 256, 4], CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
        assert_eq!(layered.estimate(2), 256 * 256 * 4 * 4 + 128 * 128 * 4 * 4);
    }

    #[test]
    fn an_absurd_size_stays_absurd() {
        let shape = Shape::new([usize::MAX; 3], CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
        assert_eq!(shape.estimate(1), u64::MAX);
    }
}
