//! The structures by which programs describe copies of rectangles and boxes: `CUDA_MEMCPY2D` and `CUDA_MEMCPY3D`.

use crate::{
    error::{CuError, CuResult},
    handles::Handle,
    memory::space::{CopyPointer, CopyRegion, MemoryCopy},
    objects::array,
};

use CopyPointer::{Device, Host, Unified};

/// `CU_MEMORYTYPE_ARRAY`.
const ARRAY: u32 = 3;

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Plane {
    x: usize,
    y: usize,
    /// 1 host, 2 device, 3 array, 4 unified.
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rectangle {
    from: Plane,
    to: Plane,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Solid {
    x: usize,
    y: usize,
    z: usize,
    /// Level of detail: 0.
    level: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: Handle,
    /// Reserved, or the context of a copy between two.
    context: Handle,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body {
    from: Solid,
    to: Solid,
    width: usize,
    height: usize,
    depth: usize,
}

/// How much is copied: bytes, rows, slices.
#[derive(Debug, Clone, Copy)]
struct Extent {
    width: usize,
    height: usize,
    depth: usize,
}

impl From<Plane> for Solid {
    fn from(plane: Plane) -> Self {
        let Plane { x, y, kind, host, device, array, pitch } = plane;
        Self { x, y, z: 0, level: 0, kind, host, device, array, context: 0, pitch, height: 0 }
    }
}

impl From<Rectangle> for Body {
    fn from(rectangle: Rectangle) -> Self {
        let Rectangle { from, to, width, height } = rectangle;
        Self { from: from.into(), to: to.into(), width, height, depth: 1 }
    }
}

impl Solid {
    /// Where the copy begins on this side.
    fn place(&self, extent: Extent) -> CuResult<CopyRegion> {
        if self.level != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        if self.kind == ARRAY {
            let array = array::array(self.array)?;
            return array.place([self.x, self.y, self.z], [extent.width, extent.height, extent.depth]);
        }
        let pitch = if self.pitch == 0 { extent.width } else { self.pitch };
        let rows = if self.height == 0 { extent.height } else { self.height };
        if pitch < extent.width || (extent.depth > 1 && rows < extent.height) {
            return Err(CuError::INVALID_VALUE);
        }
        let start = match self.kind {
            1 => Host(self.host),
            2 => Device(self.device),
            4 => Unified(self.device),
            _ => return Err(CuError::INVALID_VALUE),
        };
        let slice = pitch.checked_mul(rows).ok_or(CuError::INVALID_VALUE)?;
        let offset = self.z.checked_mul(slice).zip(self.y.checked_mul(pitch));
        let offset = offset.and_then(|(slices, rows)| slices.checked_add(rows)?.checked_add(self.x));
        let offset = offset.ok_or(CuError::INVALID_VALUE)?;
        Ok(CopyRegion { start: start.offset(offset as u64), pitch: pitch as u64, slice: slice as u64 })
    }
}

impl Body {
    /// The description of a copy: whatever its sides were, they are places in memory now.
    pub(crate) fn of(copy: &MemoryCopy) -> Self {
        let size = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let solid = |place: &CopyRegion| {
            let (kind, host, device) = match place.start {
                Host(address) => (1, address, 0),
                Device(address) => (2, 0, address),
                Unified(address) => (4, 0, address),
            };
            let height = place.slice.checked_div(place.pitch).map_or(0, size);
            let pitch = size(place.pitch);
            Solid { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: 0, context: 0, pitch, height }
        };
        let (width, height, depth) = (size(copy.width), size(copy.rows), size(copy.slices));
        Self { from: solid(&copy.from), to: solid(&copy.to), width, height, depth }
    }

    /// The copy that it describes. Fails where a side is none.
    pub(crate) fn copy(&self) -> CuResult<MemoryCopy> {
        let extent = Extent { width: self.width, height: self.height, depth: self.depth };
        let (to, from) = (self.to.place(extent)?, self.from.place(extent)?);
        let (width, rows, slices) = (self.width as u64, self.height as u64, self.depth as u64);
        Ok(MemoryCopy { to, from, width, rows, slices })
    }
}

const _: () = {
    assert!(size_of::<Rectangle>() == 128);
    assert!(size_of::<Body>() == 200);
};
