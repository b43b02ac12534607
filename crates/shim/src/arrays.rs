//! Arrays: device memory in a layout of the driver's own, so that what one takes cannot be told from its dimensions.
//!
//! A driver since CUDA 11.6 tells it of an array whose memory is yet to come. So before the array itself such a twin
//! is made, asked and destroyed. Where that is not to be had, dimensions rounded up to the layout's blocks must do.
//! Arrays that are sparse, or get their memory later, take none: what is mapped into them is charged by itself.

use crate::arguments::Arguments;
use crate::code::{CuResult, SUCCESS};
use crate::memory::{begin, finish};
use crate::pointers::Kind;
use crate::real::{call, unlisted};
use crate::table::Entry;

/// A handle of the driver.
type Array = u64;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const SPARSE: u32 = 0x40;
const DEFERRED: u32 = 0x80;
/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers, which every level of a mipmapped array has all of.
const LAYERED: u32 = 0x01;

/// Memory of arrays comes in tiles of this many bytes.
const TILE: u64 = 64 << 10;

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Shape {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[derive(Debug, Default)]
#[repr(C)]
struct Requirements {
    size: usize,
    alignment: usize,
    reserved: [u32; 4],
}

impl Shape {
    /// Reads what the caller describes, in the form of its call.
    unsafe fn read(entry: Entry, place: *const u32) -> Self {
        let long: *const usize = place.cast();
        // SAFETY: the caller's description has the form of its call; sizes have 32 bits in the oldest.
        unsafe {
            let short = |word: usize| place.add(word).read_unaligned();
            let long = |word: usize| long.add(word).read_unaligned();
            match entry {
                Entry::cuArrayCreate => Self {
                    width: short(0) as usize,
                    height: short(1) as usize,
                    format: short(2),
                    channels: short(3),
                    ..Self::default()
                },
                Entry::cuArrayCreate_v2 => {
                    let (format, channels) = (short(4), short(5));
                    Self { width: long(0), height: long(1), format, channels, ..Self::default() }
                }
                Entry::cuArray3DCreate => Self {
                    width: short(0) as usize,
                    height: short(1) as usize,
                    depth: short(2) as usize,
                    format: short(3),
                    channels: short(4),
                    flags: short(5),
                },
                _ => Self {
                    width: long(0),
                    height: long(1),
                    depth: long(2),
                    format: short(6),
                    channels: short(7),
                    flags: short(8),
                },
            }
        }
    }

    /// Bytes of an element: `CUarray_format` says how a channel is written, or for the kinds that are packed the whole.
    fn element(&self) -> u64 {
        let channels = u64::from(self.channels.max(1));
        match self.format {
            0x01 | 0x08 => channels,
            0x02 | 0x09 | 0x10 => 2 * channels,
            // These say their channels themselves, four of 16 bits at most.
            0xc0..=0xcb => 8,
            // Blocks of 16 texels in 8 or 16 bytes.
            0x91..=0x9d => 1,
            _ => 4 * channels,
        }
    }

    /// Bytes of `levels` levels, each row, each stack of rows and the whole rounded up to the blocks that memory is
    /// laid out in.
    fn estimate(&self, levels: u32) -> u64 {
        let bytes = (0..levels.clamp(1, 32)).fold(0, |sum: u64, level| {
            let at = |size: usize| (size as u64 >> level).max(1);
            let row = at(self.width).saturating_mul(self.element());
            let row = row.checked_next_multiple_of(64).unwrap_or(u64::MAX);
            let rows = at(self.height);
            let rows = if rows == 1 { 1 } else { rows.checked_next_multiple_of(8).unwrap_or(u64::MAX) };
            let layers = if self.flags & LAYERED == 0 { at(self.depth) } else { (self.depth as u64).max(1) };
            sum.saturating_add(row.saturating_mul(rows).saturating_mul(layers))
        });
        bytes.checked_next_multiple_of(TILE).unwrap_or(u64::MAX)
    }

    /// What the driver would take, asked of a twin without memory.
    fn asked(&self, levels: u32) -> Option<u64> {
        let twin = Self { flags: self.flags | DEFERRED, ..*self };
        let (mut array, mut needs): (Array, _) = (0, Requirements::default());
        let place = (&raw mut needs).expose_provenance();
        // SAFETY: the driver's forms of these calls, with places for the answers; device 0 is the only one.
        let code = unsafe {
            let made = if levels == 0 {
                call!(Entry::cuArray3DCreate_v2, &raw mut array => *mut Array, &raw const twin => *const Self)
            } else {
                call!(Entry::cuMipmappedArrayCreate, &raw mut array => *mut Array,
                    &raw const twin => *const Self, levels => u32)
            };
            let question: &[u8] = match levels {
                _ if made != SUCCESS => return None,
                0 => b"cuArrayGetMemoryRequirements",
                _ => b"cuMipmappedArrayGetMemoryRequirements",
            };
            let code = unlisted(question, [place, usize::try_from(array).unwrap_or(0), 0]);
            call!(destroys(levels), array => Array);
            code
        };
        (code == SUCCESS).then_some(needs.size as u64)
    }
}

/// What destroys an array of so many levels, 0 for one that has none.
fn destroys(levels: u32) -> Entry {
    if levels == 0 { Entry::cuArrayDestroy } else { Entry::cuMipmappedArrayDestroy }
}

fn give_back(key: u64) {
    // SAFETY: made a moment ago, and told to nobody.
    unsafe { call!(Entry::cuArrayDestroy, Kind::Array.of(key) => Array) };
}

fn give_back_levels(key: u64) {
    // SAFETY: made a moment ago, and told to nobody.
    unsafe { call!(Entry::cuMipmappedArrayDestroy, Kind::Array.of(key) => Array) };
}

/// Makes an array, of one level or several.
///
/// # Safety
/// As the driver's function of that row.
pub(crate) unsafe fn create(entry: Entry, arguments: &Arguments) -> CuResult {
    let (levels, undo): (u32, fn(u64)) = match entry {
        Entry::cuMipmappedArrayCreate => (arguments.half(2).max(1), give_back_levels),
        _ => (0, give_back),
    };
    let described = arguments.pointer::<u32>(1);
    // SAFETY: the caller's arguments; what the driver has accepted it has described.
    unsafe {
        if described.is_null() || arguments.word(0) == 0 {
            return arguments.call(entry);
        }
        let shape = Shape::read(entry, described);
        if shape.flags & (SPARSE | DEFERRED) != 0 {
            return arguments.call(entry);
        }
        let bytes = shape.asked(levels).unwrap_or_else(|| shape.estimate(levels));
        let charge = match begin(bytes) {
            Ok(charge) => charge,
            Err(code) => return code,
        };
        let code = arguments.call(entry);
        let array = if code == SUCCESS { arguments.written(0) } else { 0 };
        finish(charge, code, Kind::Array.of(array), bytes, undo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_counts_bytes_and_never_bits() {
        let shape = Shape { width: 1024, height: 512, format: 0x20, channels: 4, ..Shape::default() };
        assert_eq!(shape.estimate(0), 1024 * 512 * 16);
        let bytes = |format, channels| Shape { format, channels, ..shape }.element();
        assert_eq!([bytes(0x01, 1), bytes(0x09, 2), bytes(0x10, 4), bytes(0x03, 1)], [1, 4, 8, 4]);
    }

    #[test]
    fn levels_shrink_and_layers_do_not() {
        let shape = Shape { width: 256, height: 256, depth: 4, format: 0x20, channels: 1, flags: 0 };
        assert_eq!(shape.estimate(2), 256 * 256 * 4 * 4 + 128 * 128 * 4 * 2);
        let layered = Shape { flags: LAYERED, ..shape };
        assert_eq!(layered.estimate(2), 256 * 256 * 4 * 4 + 128 * 128 * 4 * 4);
    }

    #[test]
    fn an_absurd_size_stays_absurd() {
        let shape = Shape { width: usize::MAX, height: usize::MAX, depth: usize::MAX, ..Shape::default() };
        assert_eq!(shape.estimate(1), u64::MAX);
    }
}
