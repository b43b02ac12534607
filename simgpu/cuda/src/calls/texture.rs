//! The driver's calls about textures and surfaces.

use gpupool_nvidia::cuda::{
    CU_RESOURCE_TYPE_ARRAY, CU_RESOURCE_TYPE_LINEAR, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
    CU_RESOURCE_TYPE_PITCH2D, CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_linear, CUDA_RESOURCE_DESC_pitch2D,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray_format,
};

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::space,
    objects::{
        array::{ArrayDescriptor, array, mipmapped},
        context::current,
    },
};

/// A texture object.
#[derive(Debug)]
struct Texture {
    resource: CUDA_RESOURCE_DESC,
    sampling: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

static TEXTURES: Registry<Texture> = Registry::new();
static SURFACES: Registry<CUDA_RESOURCE_DESC> = Registry::new();

/// Fails where there is nothing that can be looked at.
fn check(resource: &CUDA_RESOURCE_DESC, for_surface: bool) -> CuResult {
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => array(resource.res[0]).map(|_| ()),
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY if !for_surface => mipmapped(resource.res[0]).map(|_| ()),
        CU_RESOURCE_TYPE_LINEAR if !for_surface => {
            let linear: CUDA_RESOURCE_DESC_linear = inner(resource);
            element(linear.format, linear.numChannels)?;
            check_memory(linear.devPtr, Some(linear.sizeInBytes as u64))
        }
        CU_RESOURCE_TYPE_PITCH2D if !for_surface => {
            let pitched: CUDA_RESOURCE_DESC_pitch2D = inner(resource);
            let row = (pitched.width as u64).checked_mul(element(pitched.format, pitched.numChannels)?);
            let before = (pitched.height as u64).checked_sub(1);
            let before = before.and_then(|rows| rows.checked_mul(pitched.pitchInBytes as u64));
            check_memory(pitched.devPtr, row.and_then(|row| before?.checked_add(row)))
        }
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The structure that goes with the type of a resource.
fn inner<T: Copy>(resource: &CUDA_RESOURCE_DESC) -> T {
    const { assert!(size_of::<T>() <= 128) };
    // SAFETY: both structures are integers only, and shorter than the room.
    unsafe { (&raw const resource.res).cast::<T>().read_unaligned() }
}

/// Bytes of an element.
fn element(format: CUarray_format, channels: u32) -> CuResult<u64> {
    ArrayDescriptor { width: 1, height: 0, depth: 0, format, channels, flags: 0 }.element()
}

/// Fails unless `length` bytes at `address` are one allocation's memory on the card.
fn check_memory(address: u64, length: Option<u64>) -> CuResult {
    let found = space::find(address).ok_or(CuError::INVALID_VALUE)?;
    let fits = length.is_some_and(|length| length > 0 && found.holds(address, length));
    if fits && found.kind.on_device() { Ok(()) } else { Err(CuError::INVALID_VALUE) }
}

/// A resource that a texture, or a surface, can look at.
///
/// # Safety
/// `resource` is null or valid for a read; it need not be aligned.
unsafe fn seen(resource: *const CUDA_RESOURCE_DESC, by_surface: bool) -> CuResult<CUDA_RESOURCE_DESC> {
    current()?;
    // SAFETY: by this function's contract.
    let resource = unsafe { read(resource) }?;
    check(&resource, by_surface)?;
    Ok(resource)
}

entry! {
    cuTexObjectCreate(
        out: *mut Handle,
        resource: *const CUDA_RESOURCE_DESC,
        sampling: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC,
    ) {
        let (resource, sampling) = (seen(resource, false)?, read(sampling)?);
        let view = if view.is_null() { None } else { Some(read(view)?) };
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, TEXTURES.add(Texture { resource, sampling, view }))
    }
    cuTexObjectDestroy(object: Handle) { TEXTURES.remove(object).map(|_| ()) }
    cuTexObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, object: Handle) {
        put(out, TEXTURES.get(object)?.resource)
    }
    cuTexObjectGetTextureDesc(out: *mut CUDA_TEXTURE_DESC, object: Handle) {
        put(out, TEXTURES.get(object)?.sampling)
    }
    cuTexObjectGetResourceViewDesc(out: *mut CUDA_RESOURCE_VIEW_DESC, object: Handle) {
        put(out, TEXTURES.get(object)?.view.ok_or(CuError::INVALID_VALUE)?)
    }
    cuSurfObjectCreate(out: *mut Handle, resource: *const CUDA_RESOURCE_DESC) {
        let resource = seen(resource, true)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, SURFACES.add(resource))
    }
    cuSurfObjectDestroy(object: Handle) { SURFACES.remove(object).map(|_| ()) }
    cuSurfObjectGetResourceDesc(out: *mut CUDA_RESOURCE_DESC, object: Handle) { put(out, *SURFACES.get(object)?) }
}
