//! Copies of rectangles and boxes as programs describe them: `CUDA_MEMCPY2D`, `CUDA_MEMCPY3D` and
//! `CUDA_MEMCPY3D_PEER`.

use gpupool_nvidia::cuda::{
    CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D,
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype,
};

use crate::{
    error::{CuError, CuResult},
    handles::Handle,
    memory::space::{CopyPointer, CopyRegion, MemoryCopy},
    objects::array,
};

use CopyPointer::{Device, Host, Unified};

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
struct CopySide {
    /// Where it begins: bytes in a row, rows, slices.
    origin: [usize; 3],
    /// Level of a mipmapped array: only 0 there is.
    level: usize,
    memory_type: CUmemorytype,
    host: u64,
    device: u64,
    array: Handle,
    /// Bytes from row to row, 0 for rows without a gap.
    pitch: usize,
    /// Rows from slice to slice, 0 for slices without a gap.
    height: usize,
}

/// How much is copied: bytes of a row, rows, slices.
type Extent = [usize; 3];

impl CopySide {
    /// Where the copy begins on this side.
    fn region(&self, [width, rows, slices]: Extent) -> CuResult<CopyRegion> {
        if self.level != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        if self.memory_type == CU_MEMORYTYPE_ARRAY {
            return array::array(self.array)?.place(self.origin, [width, rows, slices]);
        }
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let height = if self.height == 0 { rows } else { self.height };
        if pitch < width || (slices > 1 && height < rows) {
            return Err(CuError::INVALID_VALUE);
        }
        let start = match self.memory_type {
            CU_MEMORYTYPE_HOST => Host(self.host),
            CU_MEMORYTYPE_DEVICE => Device(self.device),
            CU_MEMORYTYPE_UNIFIED => Unified(self.device),
            _ => return Err(CuError::INVALID_VALUE),
        };
        let slice = pitch.checked_mul(height).ok_or(CuError::INVALID_VALUE)?;
        let [x, y, z] = self.origin;
        let offset = z.checked_mul(slice).zip(y.checked_mul(pitch));
        let offset = offset.and_then(|(slices, rows)| slices.checked_add(rows)?.checked_add(x));
        let offset = offset.ok_or(CuError::INVALID_VALUE)?;
        Ok(CopyRegion { start: start.offset(offset as u64), pitch: pitch as u64, slice: slice as u64 })
    }
}

fn between(to: &CopySide, from: &CopySide, extent: Extent) -> CuResult<MemoryCopy> {
    let (to, from) = (to.region(extent)?, from.region(extent)?);
    let [width, rows, slices] = extent.map(|side| side as u64);
    Ok(MemoryCopy { to, from, width, rows, slices })
}

/// The copy that a rectangle describes. Fails where a side is none.
pub(crate) fn rectangle(described: &CUDA_MEMCPY2D) -> CuResult<MemoryCopy> {
    let from = CopySide {
        origin: [described.srcXInBytes, described.srcY, 0],
        level: 0,
        memory_type: described.srcMemoryType,
        host: described.srcHost,
        device: described.srcDevice,
        array: described.srcArray,
        pitch: described.srcPitch,
        height: 0,
    };
    let to = CopySide {
        origin: [described.dstXInBytes, described.dstY, 0],
        level: 0,
        memory_type: described.dstMemoryType,
        host: described.dstHost,
        device: described.dstDevice,
        array: described.dstArray,
        pitch: described.dstPitch,
        height: 0,
    };
    between(&to, &from, [described.WidthInBytes, described.Height, 1])
}

/// The sides of a copy of a box; the structures with and without contexts have the same fields otherwise.
macro_rules! box_copy {
    ($described:expr) => {{
        let described = $described;
        let from = CopySide {
            origin: [described.srcXInBytes, described.srcY, described.srcZ],
            level: described.srcLOD,
            memory_type: described.srcMemoryType,
            host: described.srcHost,
            device: described.srcDevice,
            array: described.srcArray,
            pitch: described.srcPitch,
            height: described.srcHeight,
        };
        let to = CopySide {
            origin: [described.dstXInBytes, described.dstY, described.dstZ],
            level: described.dstLOD,
            memory_type: described.dstMemoryType,
            host: described.dstHost,
            device: described.dstDevice,
            array: described.dstArray,
            pitch: described.dstPitch,
            height: described.dstHeight,
        };
        between(&to, &from, [described.WidthInBytes, described.Height, described.Depth])
    }};
}

/// The copy that a box describes. Fails where a side is none.
pub(crate) fn copy(described: &CUDA_MEMCPY3D) -> CuResult<MemoryCopy> {
    box_copy!(described)
}

/// As [`copy`], between two contexts: all of them reach all memory here.
pub(crate) fn copy_between_contexts(described: &CUDA_MEMCPY3D_PEER) -> CuResult<MemoryCopy> {
    box_copy!(described)
}

/// The description of a copy: whatever its sides were, they are places in memory now.
pub(crate) fn describe(copy: &MemoryCopy) -> CUDA_MEMCPY3D {
    let narrow = |value| usize::try_from(value).unwrap_or(usize::MAX);
    let side = |place: &CopyRegion| {
        let (memory_type, host, device) = match place.start {
            Host(address) => (CU_MEMORYTYPE_HOST, address, 0),
            Device(address) => (CU_MEMORYTYPE_DEVICE, 0, address),
            Unified(address) => (CU_MEMORYTYPE_UNIFIED, 0, address),
        };
        let height = place.slice.checked_div(place.pitch).map_or(0, narrow);
        let pitch = narrow(place.pitch);
        CopySide { origin: [0; 3], level: 0, memory_type, host, device, array: 0, pitch, height }
    };
    let (source, destination) = (side(&copy.from), side(&copy.to));
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: source.memory_type,
        srcHost: source.host,
        srcDevice: source.device,
        srcArray: 0,
        reserved0: 0,
        srcPitch: source.pitch,
        srcHeight: source.height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: destination.memory_type,
        dstHost: destination.host,
        dstDevice: destination.device,
        dstArray: 0,
        reserved1: 0,
        dstPitch: destination.pitch,
        dstHeight: destination.height,
        WidthInBytes: narrow(copy.width),
        Height: narrow(copy.rows),
        Depth: narrow(copy.slices),
    }
}
