//! Textures and surfaces: what they look at is checked, how they sample it is kept and given back when asked.

use gpupool_nvidia::cuda::{
    CU_RESOURCE_TYPE_ARRAY, CU_RESOURCE_TYPE_LINEAR, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
    CU_RESOURCE_TYPE_PITCH2D, CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_linear, CUDA_RESOURCE_DESC_pitch2D,
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray_format,
};

use crate::{
    error::{CuError, CuResult},
    handles::Registry,
    memory::space,
    objects::array::{ArrayDescriptor, array, mipmapped},
};

/// A texture object.
#[derive(Debug)]
pub(crate) struct Texture {
    pub(crate) resource: CUDA_RESOURCE_DESC,
    pub(crate) sampling: CUDA_TEXTURE_DESC,
    pub(crate) view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

pub(crate) static TEXTURES: Registry<Texture> = Registry::new();
pub(crate) static SURFACES: Registry<CUDA_RESOURCE_DESC> = Registry::new();

/// Fails where there is nothing that can be looked at.
pub(crate) fn check(resource: &CUDA_RESOURCE_DESC, for_surface: bool) -> CuResult {
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => array(resource.res[0]).map(|_| ()),
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY if !for_surface => mipmapped(resource.res[0]).map(|_| ()),
        CU_RESOURCE_TYPE_LINEAR if !for_surface => {
            // SAFETY: integers only.
            let linear: CUDA_RESOURCE_DESC_linear = unsafe { inner(resource) };
            element(linear.format, linear.numChannels)?;
            check_memory(linear.devPtr, Some(linear.sizeInBytes as u64))
        }
        CU_RESOURCE_TYPE_PITCH2D if !for_surface => {
            // SAFETY: integers only.
            let pitched: CUDA_RESOURCE_DESC_pitch2D = unsafe { inner(resource) };
            let row = (pitched.width as u64).checked_mul(element(pitched.format, pitched.numChannels)?);
            let before = (pitched.height as u64).checked_sub(1);
            let before = before.and_then(|rows| rows.checked_mul(pitched.pitchInBytes as u64));
            check_memory(pitched.devPtr, row.and_then(|row| before?.checked_add(row)))
        }
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The structure that goes with the type of a resource.
///
/// # Safety
/// Any bytes are a valid `T`.
unsafe fn inner<T: Copy>(resource: &CUDA_RESOURCE_DESC) -> T {
    const { assert!(size_of::<T>() <= 128) };
    // SAFETY: it is shorter than the room; the caller vouches for the rest.
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
