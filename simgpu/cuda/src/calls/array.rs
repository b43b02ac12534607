//! The driver's calls about arrays, textures and surfaces.

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::Handle,
    memory::physical,
    objects::{
        array::{self, Descriptor, MappedParts, array, mipmapped},
        context::current,
        stream::{legacy, own, target},
    },
};

/// Tiles of a sparse array are this large in bytes; so is the alignment of an array's memory.
const TILE: u64 = 64 << 10;
/// Sides of a tile by the bytes of an element, of two and of three dimensions.
const TILES_2D: [(u64, [u32; 3]); 5] =
    [(1, [256, 256, 1]), (2, [256, 128, 1]), (4, [128, 128, 1]), (8, [128, 64, 1]), (16, [64, 64, 1])];

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Flat {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// The first forms of both descriptors, with 32-bit sizes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct OldFlat {
    width: u32,
    height: u32,
    format: u32,
    channels: u32,
}

/// See [`OldFlat`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct OldDescriptor {
    width: u32,
    height: u32,
    depth: u32,
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Requirements {
    size: usize,
    alignment: usize,
    reserved: [u32; 4],
}

/// `CUDA_ARRAY_SPARSE_PROPERTIES`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Sparse {
    tile: [u32; 3],
    first_level_of_tail: u32,
    tail: u64,
    flags: u32,
    reserved: [u32; 4],
}

/// `CUarrayMapInfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct MapInfo {
    /// 0 array, 1 mipmapped array.
    kind: u32,
    resource: Handle,
    /// 0 a box of a level, 1 the tail of small levels.
    part_kind: u32,
    part: [u64; 4],
    /// 1 map, 2 unmap.
    operation: u32,
    handle_kind: u32,
    memory: Handle,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

impl From<Flat> for Descriptor {
    fn from(flat: Flat) -> Self {
        let Flat { width, height, format, channels } = flat;
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

impl From<OldFlat> for Descriptor {
    fn from(old: OldFlat) -> Self {
        let OldFlat { width, height, format, channels } = old;
        Self { width: width as usize, height: height as usize, depth: 0, format, channels, flags: 0 }
    }
}

impl From<OldDescriptor> for Descriptor {
    fn from(old: OldDescriptor) -> Self {
        let OldDescriptor { width, height, depth, format, channels, flags } = old;
        let [width, height, depth] = [width, height, depth].map(|side| side as usize);
        Self { width, height, depth, format, channels, flags }
    }
}

/// Sides have fewer than 32 bits.
fn narrow(side: usize) -> u32 {
    u32::try_from(side).unwrap_or(u32::MAX)
}

unsafe fn create<T: Into<Descriptor> + Copy>(out: *mut Handle, descriptor: *const T) -> CuResult {
    current()?;
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: the driver API's contract.
    unsafe { put(out, array::create(read(descriptor)?.into())?) }
}

unsafe fn requirements(out: *mut Requirements, descriptor: &Descriptor, size: u64) -> CuResult {
    if !descriptor.deferred() {
        return Err(CuError::INVALID_VALUE);
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(out, Requirements { size, alignment: 64 << 10, reserved: [0; 4] }) }
}

unsafe fn sparse(out: *mut Sparse, descriptor: &Descriptor, size: u64) -> CuResult {
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
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(out, Sparse { tile, first_level_of_tail, tail, flags: 0, reserved: [0; 4] }) }
}

/// Maps or unmaps the memory of one part of a sparse array.
fn map_one(info: &MapInfo) -> CuResult {
    let (array, whole);
    let (descriptor, mapped): (&Descriptor, &MappedParts) = match info.kind {
        0 => {
            array = self::array(info.resource)?;
            (&array.descriptor, array.mapped())
        }
        1 => {
            whole = mipmapped(info.resource)?;
            (&whole.descriptor, whole.mapped())
        }
        _ => return Err(CuError::INVALID_VALUE),
    };
    if !descriptor.sparse() || info.part_kind > 1 || info.flags != 0 || info.handle_kind != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let [a, b, c, d] = info.part;
    let part = [u64::from(info.part_kind), a, b, c, d];
    match info.operation {
        1 if info.offset < physical::physical(info.memory)?.size => {
            array::map_part(mapped, part, info.memory)
        }
        2 => array::map_part(mapped, part, 0),
        _ => Err(CuError::INVALID_VALUE),
    }
}

unsafe fn map(list: *const MapInfo, count: u32, stream: Handle) -> CuResult {
    target(stream)?.not_capturing()?;
    for place in 0..count as usize {
        // SAFETY: the driver API's contract: a list of that many.
        map_one(&unsafe { read(list.wrapping_add(place)) }?)?;
    }
    Ok(())
}

entry! {
    cuArrayCreate(out: *mut Handle, descriptor: *const OldFlat) { create(out, descriptor) }
    cuArrayCreate_v2(out: *mut Handle, descriptor: *const Flat) { create(out, descriptor) }
    cuArray3DCreate(out: *mut Handle, descriptor: *const OldDescriptor) { create(out, descriptor) }
    cuArray3DCreate_v2(out: *mut Handle, descriptor: *const Descriptor) { create(out, descriptor) }
    cuArrayDestroy(handle: Handle) { array::destroy(handle) }
    cuArrayGetDescriptor(out: *mut OldFlat, handle: Handle) {
        let Descriptor { width, height, format, channels, .. } = array(handle)?.descriptor;
        put(out, OldFlat { width: narrow(width), height: narrow(height), format, channels })
    }
    cuArrayGetDescriptor_v2(out: *mut Flat, handle: Handle) {
        let Descriptor { width, height, format, channels, .. } = array(handle)?.descriptor;
        put(out, Flat { width, height, format, channels })
    }
    cuArray3DGetDescriptor(out: *mut OldDescriptor, handle: Handle) {
        let Descriptor { width, height, depth, format, channels, flags } = array(handle)?.descriptor;
        let [width, height, depth] = [width, height, depth].map(narrow);
        put(out, OldDescriptor { width, height, depth, format, channels, flags })
    }
    cuArray3DGetDescriptor_v2(out: *mut Descriptor, handle: Handle) { put(out, array(handle)?.descriptor) }
    cuArrayGetMemoryRequirements(out: *mut Requirements, handle: Handle, device: i32) {
        initialised()?.card(device)?;
        let array = array(handle)?;
        requirements(out, &array.descriptor, array.descriptor.footprint()?)
    }
    cuArrayGetSparseProperties(out: *mut Sparse, handle: Handle) {
        let array = array(handle)?;
        sparse(out, &array.descriptor, array.descriptor.footprint()?)
    }
    cuMipmappedArrayCreate(out: *mut Handle, descriptor: *const Descriptor, levels: u32) {
        current()?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, array::create_mipmapped(read(descriptor)?, levels)?)
    }
    cuMipmappedArrayGetLevel(out: *mut Handle, handle: Handle, level: u32) {
        let whole = mipmapped(handle)?;
        put(out, whole.levels.get(level as usize).copied().ok_or(CuError::INVALID_VALUE)?)
    }
    cuMipmappedArrayDestroy(handle: Handle) { array::destroy_mipmapped(handle) }
    cuMipmappedArrayGetMemoryRequirements(out: *mut Requirements, handle: Handle, device: i32) {
        initialised()?.card(device)?;
        let whole = mipmapped(handle)?;
        requirements(out, &whole.descriptor, whole.footprint()?)
    }
    cuMipmappedArrayGetSparseProperties(out: *mut Sparse, handle: Handle) {
        let whole = mipmapped(handle)?;
        sparse(out, &whole.descriptor, whole.footprint()?)
    }
    cuMemMapArrayAsync(list: *const MapInfo, count: u32, stream: Handle) { map(list, count, legacy(stream)) }
    cuMemMapArrayAsync_ptsz(list: *const MapInfo, count: u32, stream: Handle) { map(list, count, own(stream)) }
}

const _: () = {
    assert!(size_of::<Descriptor>() == 40);
    assert!(size_of::<Requirements>() == 32);
    assert!(size_of::<Sparse>() == 48);
    assert!(size_of::<MapInfo>() == 96);
};
