//! CUDA arrays and mipmapped arrays.
//!
//! The bytes of an array lie row by row, level by level; what it takes of the card is more, since real ones are tiled.

use std::sync::{Arc, Mutex};

use gpupool_nvidia::cuda::{
    CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_HALF, CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT16,
    CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X2,
    CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X2,
    CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X2,
    CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X2,
    CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16,
    CU_AD_FORMAT_UNSIGNED_INT32, CUDA_ARRAY3D_COLOR_ATTACHMENT, CUDA_ARRAY3D_CUBEMAP,
    CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DEPTH_TEXTURE, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED,
    CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_SURFACE_LDST, CUDA_ARRAY3D_TEXTURE_GATHER,
    CUDA_ARRAY3D_VIDEO_ENCODE_DECODE, CUarray_format,
};

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::{
        physical,
        space::{self, AllocationKind, CopyPointer, CopyRegion},
    },
    objects::context::current,
    sync::lock,
};

/// Every flag that an array can have.
const FLAGS: u32 = CUDA_ARRAY3D_LAYERED
    | CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_CUBEMAP
    | CUDA_ARRAY3D_TEXTURE_GATHER
    | CUDA_ARRAY3D_DEPTH_TEXTURE
    | CUDA_ARRAY3D_COLOR_ATTACHMENT
    | CUDA_ARRAY3D_SPARSE
    | CUDA_ARRAY3D_DEFERRED_MAPPING
    | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
/// Flags of arrays whose slices are layers: their levels have all of them.
const LAYERS: u32 = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;

/// Rows of a tiled array are padded to so many bytes, planes to so many rows, and the whole to so many bytes.
const ROW: u64 = 64;
const ROWS: u64 = 8;
const WHOLE: u64 = 64 << 10;

/// Longest side of arrays of one, two and three dimensions: what the device attributes say.
const MOST: [[u64; 3]; 3] = [[131_072, 1, 1], [131_072, 65_536, 1], [16_384, 16_384, 16_384]];
const MOST_LAYERS: u64 = 2048;

/// What an array is made of: sides in elements, 0 where it has no such side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: CUarray_format,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// An array, or a level of a mipmapped one.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) descriptor: ArrayDescriptor,
    /// Where its bytes are, and the context that it belongs to; `None` where it has no memory of its own.
    base: Option<u64>,
    context: Handle,
    /// The mipmapped array that it is a level of, or 0.
    whole: Handle,
    /// Physical memory that was mapped into it, by what part it is.
    mapped: MappedParts,
}

/// A mipmapped array: its levels, the largest first.
#[derive(Debug)]
pub(crate) struct MipmappedArray {
    pub(crate) descriptor: ArrayDescriptor,
    context: Handle,
    base: Option<u64>,
    pub(crate) levels: Vec<Handle>,
    mapped: MappedParts,
}

/// A part of a sparse array, and the physical memory mapped there.
pub(crate) type MappedParts = Mutex<Vec<([u64; 5], Handle)>>;

static ARRAYS: Registry<Array> = Registry::new();
static MIPMAPPED: Registry<MipmappedArray> = Registry::new();

impl From<CUDA_ARRAY3D_DESCRIPTOR> for ArrayDescriptor {
    fn from(given: CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        Self {
            width: given.Width,
            height: given.Height,
            depth: given.Depth,
            format: given.Format,
            channels: given.NumChannels,
            flags: given.Flags,
        }
    }
}

/// Bytes of a channel and channels of a format of normalised integers, which says its channels itself.
const fn normalised(format: CUarray_format) -> Option<(u64, u64)> {
    Some(match format {
        CU_AD_FORMAT_UNORM_INT8X1 | CU_AD_FORMAT_SNORM_INT8X1 => (1, 1),
        CU_AD_FORMAT_UNORM_INT8X2 | CU_AD_FORMAT_SNORM_INT8X2 => (1, 2),
        CU_AD_FORMAT_UNORM_INT8X4 | CU_AD_FORMAT_SNORM_INT8X4 => (1, 4),
        CU_AD_FORMAT_UNORM_INT16X1 | CU_AD_FORMAT_SNORM_INT16X1 => (2, 1),
        CU_AD_FORMAT_UNORM_INT16X2 | CU_AD_FORMAT_SNORM_INT16X2 => (2, 2),
        CU_AD_FORMAT_UNORM_INT16X4 | CU_AD_FORMAT_SNORM_INT16X4 => (2, 4),
        _ => return None,
    })
}

impl ArrayDescriptor {
    /// Bytes of an element, by `CUarray_format` and channels.
    pub(crate) fn element(&self) -> CuResult<u64> {
        let channels = u64::from(self.channels);
        let each = match self.format {
            CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
            CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
            CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
            format => {
                let (bytes, own) = normalised(format).ok_or(CuError::INVALID_VALUE)?;
                return if channels == own { Ok(bytes * own) } else { Err(CuError::INVALID_VALUE) };
            }
        };
        if matches!(channels, 1 | 2 | 4) { Ok(each * channels) } else { Err(CuError::INVALID_VALUE) }
    }

    fn check(&self) -> CuResult {
        self.element()?;
        let sides = [self.width as u64, self.height as u64, self.depth as u64];
        let layered = self.flags & LAYERS != 0;
        let shape = if layered {
            sides[1].min(1)
        } else if sides[2] > 0 {
            2
        } else {
            sides[1].min(1)
        };
        let most = MOST[usize::try_from(shape).unwrap_or(2)];
        let most = if layered { [most[0], most[1], MOST_LAYERS] } else { most };
        let within = sides.iter().zip(most).all(|(&side, most)| side <= most);
        let cube = self.flags & CUDA_ARRAY3D_CUBEMAP == 0
            || (sides[0] == sides[1] && sides[2].is_multiple_of(6) && sides[2] > 0);
        let layers = self.flags & CUDA_ARRAY3D_LAYERED == 0 || sides[2] > 0;
        let solid = sides[2] == 0 || sides[1] > 0 || layered;
        let fits = sides[0] > 0 && within && cube && layers && solid && self.flags & !FLAGS == 0;
        if fits { Ok(()) } else { Err(CuError::INVALID_VALUE) }
    }

    /// Bytes of a row, rows, and slices.
    fn extent(&self) -> CuResult<[u64; 3]> {
        Ok([self.width as u64 * self.element()?, self.height.max(1) as u64, self.depth.max(1) as u64])
    }

    /// Bytes that it takes of the card.
    pub(crate) fn footprint(&self) -> CuResult<u64> {
        let [row, rows, slices] = self.extent()?;
        let rows = if rows > 1 { rows.next_multiple_of(ROWS) } else { rows };
        let bytes = row.next_multiple_of(ROW).checked_mul(rows).and_then(|plane| plane.checked_mul(slices));
        bytes.and_then(|bytes| bytes.checked_next_multiple_of(WHOLE)).ok_or(CuError::OUT_OF_MEMORY)
    }

    /// The same for an array whose memory is brought by somebody else.
    pub(crate) const fn without_memory(self) -> Self {
        Self { flags: self.flags | CUDA_ARRAY3D_DEFERRED_MAPPING, ..self }
    }

    pub(crate) const fn sparse(&self) -> bool {
        self.flags & CUDA_ARRAY3D_SPARSE != 0
    }

    pub(crate) const fn deferred(&self) -> bool {
        self.flags & CUDA_ARRAY3D_DEFERRED_MAPPING != 0
    }

    /// Level number `level` of it.
    fn level(&self, level: u32) -> Self {
        let half = |side: usize| if side == 0 { 0 } else { (side >> level).max(1) };
        let depth = if self.flags & LAYERS == 0 { half(self.depth) } else { self.depth };
        Self { width: half(self.width), height: half(self.height), depth, ..*self }
    }

    /// Most levels that it can have.
    fn most_levels(&self) -> u32 {
        let depth = if self.flags & LAYERS == 0 { self.depth } else { 0 };
        self.width.max(self.height).max(depth).max(1).ilog2() + 1
    }
}

/// Memory for `bytes` in the current context; none where the program brings it later.
fn memory(descriptor: &ArrayDescriptor, bytes: u64) -> CuResult<(Option<u64>, Handle)> {
    let context = current()?;
    let base = if descriptor.sparse() || descriptor.deferred() {
        None
    } else {
        Some(space::allocate(AllocationKind::Array, bytes, context.owner(), 0)?)
    };
    Ok((base, context.handle))
}

/// Makes an array.
pub(crate) fn create(descriptor: ArrayDescriptor) -> CuResult<Handle> {
    descriptor.check()?;
    let (base, context) = memory(&descriptor, descriptor.footprint()?)?;
    Ok(ARRAYS.add(Array { descriptor, base, context, whole: 0, mapped: MappedParts::default() }))
}

/// Makes a mipmapped array of at most `levels` levels.
pub(crate) fn create_mipmapped(descriptor: ArrayDescriptor, levels: u32) -> CuResult<Handle> {
    descriptor.check()?;
    let count = levels.min(descriptor.most_levels());
    if count == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let mut sizes = Vec::new();
    for level in 0..count {
        sizes.push(descriptor.level(level).footprint()?);
    }
    let (base, context) = memory(&descriptor, sizes.iter().sum())?;
    let whole = crate::handles::fresh();
    let mut next = base;
    let mut levels = Vec::new();
    for (level, size) in (0..count).zip(sizes) {
        let descriptor = descriptor.level(level);
        levels.push(ARRAYS.add(Array {
            descriptor,
            base: next,
            context,
            whole,
            mapped: MappedParts::default(),
        }));
        next = next.map(|next| next + size);
    }
    let mapped = MappedParts::default();
    MIPMAPPED.put(whole, Arc::new(MipmappedArray { descriptor, context, base, levels, mapped }));
    Ok(whole)
}

pub(crate) fn array(handle: Handle) -> CuResult<Arc<Array>> {
    ARRAYS.get(handle)
}

pub(crate) fn mipmapped(handle: Handle) -> CuResult<Arc<MipmappedArray>> {
    MIPMAPPED.get(handle)
}

/// Gives back an array's own memory, and the physical memory that was mapped into it.
fn end(base: Option<u64>, mapped: &MappedParts) {
    if let Some(base) = base {
        space::release(base, |found| found.kind == AllocationKind::Array);
    }
    for (_, memory) in lock(mapped).drain(..) {
        physical::remove_mapping(memory);
    }
}

/// Ends an array; a level goes with the whole only.
pub(crate) fn destroy(handle: Handle) -> CuResult {
    if array(handle)?.whole != 0 {
        return Err(CuError::INVALID_HANDLE);
    }
    let array = ARRAYS.remove(handle)?;
    end(array.base, &array.mapped);
    Ok(())
}

/// Ends a mipmapped array with its levels.
pub(crate) fn destroy_mipmapped(handle: Handle) -> CuResult {
    let whole = MIPMAPPED.remove(handle)?;
    ARRAYS.remove_all(|array| array.whole == handle);
    end(whole.base, &whole.mapped);
    Ok(())
}

/// What belongs to a context goes with it; the memory is given back with all its memory.
pub(crate) fn end_of_context(context: Handle) {
    for array in ARRAYS.remove_all(|array| array.context == context) {
        end(None, &array.mapped);
    }
    for whole in MIPMAPPED.remove_all(|whole| whole.context == context) {
        end(None, &whole.mapped);
    }
}

impl Array {
    /// Where a copy of `extent` (bytes, rows, slices) begins that starts at `origin` (bytes, rows, slices).
    pub(crate) fn place(&self, origin: [usize; 3], extent: [usize; 3]) -> CuResult<CopyRegion> {
        let whole = self.descriptor.extent()?;
        let inside = origin.iter().zip(extent).zip(whole).all(|((&origin, extent), whole)| {
            origin.checked_add(extent).is_some_and(|end| end as u64 <= whole)
        });
        let base = self.base.ok_or(CuError::NOT_SUPPORTED)?;
        if !inside {
            return Err(CuError::INVALID_VALUE);
        }
        let [pitch, slice] = [whole[0], whole[0] * whole[1]];
        let offset = origin[2] as u64 * slice + origin[1] as u64 * pitch + origin[0] as u64;
        Ok(CopyRegion { start: CopyPointer::Device(base + offset), pitch, slice })
    }

    /// `bytes` of it from `offset` on, in the order of its rows.
    pub(crate) fn bytes(&self, offset: u64, bytes: u64) -> CuResult<CopyPointer> {
        let all: u64 = self.descriptor.extent()?.iter().product();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= all);
        let base = self.base.ok_or(CuError::NOT_SUPPORTED)?;
        if inside { Ok(CopyPointer::Device(base + offset)) } else { Err(CuError::INVALID_VALUE) }
    }

    pub(crate) const fn mapped(&self) -> &MappedParts {
        &self.mapped
    }
}

impl MipmappedArray {
    /// Bytes that all levels take of the card together.
    pub(crate) fn footprint(&self) -> CuResult<u64> {
        let mut all = 0;
        for level in (0..).take(self.levels.len()) {
            all += self.descriptor.level(level).footprint()?;
        }
        Ok(all)
    }

    pub(crate) const fn mapped(&self) -> &MappedParts {
        &self.mapped
    }
}

/// Maps physical memory to a part of a sparse array, in the place of what was mapped there, or with 0 only ends that.
pub(crate) fn map_part(mapped: &MappedParts, part: [u64; 5], memory: Handle) -> CuResult {
    if memory != 0 {
        physical::add_mapping(memory)?;
    }
    let mut mapped = lock(mapped);
    if let Some(place) = mapped.iter().position(|(known, _)| *known == part) {
        physical::remove_mapping(mapped.swap_remove(place).1);
    }
    if memory != 0 {
        mapped.push((part, memory));
    }
    Ok(())
}
