//! The driver's calls about arrays, textures and surfaces.

use gpupool_nvidia::cuda::{
    CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL, CU_MEM_HANDLE_TYPE_GENERIC, CU_MEM_OPERATION_TYPE_MAP,
    CU_MEM_OPERATION_TYPE_UNMAP, CU_RESOURCE_TYPE_ARRAY, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarrayMapInfo,
};

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::physical,
    objects::{
        array::{self, ArrayDescriptor, MappedParts, array, mipmapped},
        context::current,
        stream::{legacy, own, target},
    },
};

/// Tiles of a sparse array are this large in bytes; so is the alignment of an array's memory.
const TILE: u64 = 64 << 10;
/// Sides of a tile by the bytes of an element, of two and of three dimensions.
const TILES_2D: [(u64, [u32; 3]); 5] =
    [(1, [256, 256, 1]), (2, [256, 128, 1]), (4, [128, 128, 1]), (8, [128, 64, 1]), (16, [64, 64, 1])];

impl From<CUDA_ARRAY_DESCRIPTOR> for ArrayDescriptor {
    fn from(given: CUDA_ARRAY_DESCRIPTOR) -> Self {
        let (width, height) = (given.Width, given.Height);
        Self { width, height, depth: 0, format: given.Format, channels: given.NumChannels, flags: 0 }
    }
}

impl From<CUDA_ARRAY_DESCRIPTOR_v1> for ArrayDescriptor {
    fn from(given: CUDA_ARRAY_DESCRIPTOR_v1) -> Self {
        let [width, height] = [given.Width, given.Height].map(|side| side as usize);
        Self { width, height, depth: 0, format: given.Format, channels: given.NumChannels, flags: 0 }
    }
}

impl From<CUDA_ARRAY3D_DESCRIPTOR_v1> for ArrayDescriptor {
    fn from(given: CUDA_ARRAY3D_DESCRIPTOR_v1) -> Self {
        let [width, height, depth] = [given.Width, given.Height, given.Depth].map(|side| side as usize);
        let CUDA_ARRAY3D_DESCRIPTOR_v1 { Format: format, NumChannels: channels, Flags: flags, .. } = given;
        Self { width, height, depth, format, channels, flags }
    }
}

impl From<ArrayDescriptor> for CUDA_ARRAY_DESCRIPTOR {
    fn from(array: ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, format, channels, .. } = array;
        Self { Width: width, Height: height, Format: format, NumChannels: channels }
    }
}

impl From<ArrayDescriptor> for CUDA_ARRAY_DESCRIPTOR_v1 {
    fn from(array: ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, format, channels, .. } = array;
        Self { Width: narrow(width), Height: narrow(height), Format: format, NumChannels: channels }
    }
}

impl From<ArrayDescriptor> for CUDA_ARRAY3D_DESCRIPTOR {
    fn from(array: ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, depth, format, channels, flags } = array;
        Self {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        }
    }
}

impl From<ArrayDescriptor> for CUDA_ARRAY3D_DESCRIPTOR_v1 {
    fn from(array: ArrayDescriptor) -> Self {
        let ArrayDescriptor { width, height, depth, format, channels, flags } = array;
        Self {
            Width: narrow(width),
            Height: narrow(height),
            Depth: narrow(depth),
            Format: format,
            NumChannels: channels,
            Flags: flags,
        }
    }
}

/// Sides have fewer than 32 bits.
fn narrow(side: usize) -> u32 {
    u32::try_from(side).unwrap_or(u32::MAX)
}

/// Makes an array.
///
/// # Safety
/// `out` is null or valid for a write, `descriptor` is null or valid for a read of `T`; neither need be
/// aligned.
unsafe fn create<T: Into<ArrayDescriptor> + Copy>(out: *mut Handle, descriptor: *const T) -> CuResult {
    current()?;
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: by this function's contract.
    unsafe { put(out, array::create(read(descriptor)?.into())?) }
}

/// Writes what memory an array needs that was made without any.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn requirements(
    out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    descriptor: &ArrayDescriptor,
    size: u64,
) -> CuResult {
    if !descriptor.deferred() {
        return Err(CuError::INVALID_VALUE);
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // SAFETY: by this function's contract.
    unsafe {
        put(
            out,
            CUDA_ARRAY_MEMORY_REQUIREMENTS {
                size,
                alignment: usize::try_from(TILE).unwrap_or(usize::MAX),
                reserved: [0; 4],
            },
        )
    }
}

/// Writes how a sparse array is divided.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn sparse(
    out: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    descriptor: &ArrayDescriptor,
    size: u64,
) -> CuResult {
    if !descriptor.sparse() {
        return Err(CuError::INVALID_VALUE);
    }
    let element = descriptor.element()?;
    let tile = TILES_2D.iter().find(|(bytes, _)| *bytes == element).map_or([1; 3], |(_, tile)| *tile);
    let tile = if descriptor.depth > 0 { [tile[0] / 4, tile[1] / 4, 16] } else { tile };
    // Levels smaller than a tile share a tail.
    let small = |level: u32| {
        descriptor.width >> level < tile[0] as usize || descriptor.height >> level < tile[1] as usize
    };
    let first_level_of_tail = (0..32).find(|&level| small(level)).unwrap_or(32);
    let tail = if first_level_of_tail == 0 { size } else { TILE };
    // SAFETY: by this function's contract.
    unsafe {
        put(
            out,
            CUDA_ARRAY_SPARSE_PROPERTIES {
                tileWidth: tile[0],
                tileHeight: tile[1],
                tileDepth: tile[2],
                miptailFirstLevel: first_level_of_tail,
                miptailSize: tail,
                flags: 0,
                reserved: [0; 4],
            },
        )
    }
}

/// Maps or unmaps the memory of one part of a sparse array.
fn map_one(info: &CUarrayMapInfo) -> CuResult {
    let (array, whole);
    let (descriptor, mapped): (&ArrayDescriptor, &MappedParts) = match info.resourceType {
        CU_RESOURCE_TYPE_ARRAY => {
            array = self::array(info.resource)?;
            (&array.descriptor, array.mapped())
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            whole = mipmapped(info.resource)?;
            (&whole.descriptor, whole.mapped())
        }
        _ => return Err(CuError::INVALID_VALUE),
    };
    if !descriptor.sparse()
        || info.subresourceType > CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
        || info.flags != 0
        || info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC
    {
        return Err(CuError::INVALID_VALUE);
    }
    let [a, b, c, d] = info.subresource;
    let part = [u64::from(info.subresourceType), a, b, c, d];
    match info.memOperationType {
        CU_MEM_OPERATION_TYPE_MAP if info.offset < physical::physical(info.memHandle)?.size => {
            array::map_part(mapped, part, info.memHandle)
        }
        CU_MEM_OPERATION_TYPE_UNMAP => array::map_part(mapped, part, 0),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// Maps or unmaps parts of sparse arrays.
///
/// # Safety
/// `list` is null or valid for reads of `count` values; it need not be aligned.
unsafe fn map(list: *const CUarrayMapInfo, count: u32, stream: Handle) -> CuResult {
    target(stream)?.not_capturing()?;
    for place in 0..count as usize {
        // SAFETY: by this function's contract the list has that many.
        map_one(&unsafe { read(list.wrapping_add(place)) }?)?;
    }
    Ok(())
}

entry! {
    cuArrayCreate(out: *mut Handle, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) { create(out, descriptor) }
    cuArrayCreate_v2(out: *mut Handle, descriptor: *const CUDA_ARRAY_DESCRIPTOR) { create(out, descriptor) }
    cuArray3DCreate(out: *mut Handle, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) { create(out, descriptor) }
    cuArray3DCreate_v2(out: *mut Handle, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) { create(out, descriptor) }
    cuArrayDestroy(handle: Handle) { array::destroy(handle) }
    cuArrayGetDescriptor(out: *mut CUDA_ARRAY_DESCRIPTOR_v1, handle: Handle) {
        put(out, array(handle)?.descriptor.into())
    }
    cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, handle: Handle) {
        put(out, array(handle)?.descriptor.into())
    }
    cuArray3DGetDescriptor(out: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, handle: Handle) {
        put(out, array(handle)?.descriptor.into())
    }
    cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, handle: Handle) {
        put(out, array(handle)?.descriptor.into())
    }
    cuArrayGetMemoryRequirements(out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, handle: Handle, device: i32) {
        initialised()?.card(device)?;
        let array = array(handle)?;
        requirements(out, &array.descriptor, array.descriptor.footprint()?)
    }
    cuArrayGetSparseProperties(out: *mut CUDA_ARRAY_SPARSE_PROPERTIES, handle: Handle) {
        let array = array(handle)?;
        sparse(out, &array.descriptor, array.descriptor.footprint()?)
    }
    cuMipmappedArrayCreate(out: *mut Handle, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32) {
        current()?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, array::create_mipmapped(read(descriptor)?.into(), levels)?)
    }
    cuMipmappedArrayGetLevel(out: *mut Handle, handle: Handle, level: u32) {
        let whole = mipmapped(handle)?;
        put(out, whole.levels.get(level as usize).copied().ok_or(CuError::INVALID_VALUE)?)
    }
    cuMipmappedArrayDestroy(handle: Handle) { array::destroy_mipmapped(handle) }
    cuMipmappedArrayGetMemoryRequirements(out: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, handle: Handle, device: i32) {
        initialised()?.card(device)?;
        let whole = mipmapped(handle)?;
        requirements(out, &whole.descriptor, whole.footprint()?)
    }
    cuMipmappedArrayGetSparseProperties(out: *mut CUDA_ARRAY_SPARSE_PROPERTIES, handle: Handle) {
        let whole = mipmapped(handle)?;
        sparse(out, &whole.descriptor, whole.footprint()?)
    }
    cuMemMapArrayAsync(list: *const CUarrayMapInfo, count: u32, stream: Handle) { map(list, count, legacy(stream)) }
    cuMemMapArrayAsync_ptsz(list: *const CUarrayMapInfo, count: u32, stream: Handle) { map(list, count, own(stream)) }
}
