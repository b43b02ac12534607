//! The driver's calls about textures and surfaces.

use gpupool_nvidia::cuda::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::Handle,
    objects::{
        context::current,
        texture::{SURFACES, TEXTURES, Texture, check},
    },
};

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
