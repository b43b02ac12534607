//! The driver's calls about textures and surfaces.

use crate::{
    calls::entry::{entry, put, read},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::space,
    objects::{
        array::{Descriptor, array, mipmapped},
        context::current,
    },
};

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Resource {
    /// 0 array, 1 mipmapped array, 2 linear memory, 3 pitched memory.
    kind: u32,
    what: [u64; 16],
    flags: u32,
}

/// `CUDA_TEXTURE_DESC` and `CUDA_RESOURCE_VIEW_DESC`: kept, and given back when asked.
type Sampling = [u32; 26];
/// See [`Sampling`].
type View = [u32; 28];

/// A texture object.
#[derive(Debug)]
struct Texture {
    resource: Resource,
    sampling: Sampling,
    view: Option<View>,
}

static TEXTURES: Registry<Texture> = Registry::new();
static SURFACES: Registry<Resource> = Registry::new();

impl Resource {
    /// Fails where there is nothing that can be looked at.
    fn check(&self, for_surface: bool) -> CuResult {
        let [what, format, ..] = self.what;
        let (bytes, rows, pitch) = match self.kind {
            0 => return array(what).map(|_| ()),
            1 if !for_surface => return mipmapped(what).map(|_| ()),
            2 if !for_surface => (self.what[2], 1, 0),
            3 if !for_surface => (self.what[2], self.what[3], self.what[4]),
            _ => return Err(CuError::INVALID_VALUE),
        };
        let words = format.to_le_bytes();
        let word = |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        let descriptor =
            Descriptor { width: 1, height: 0, depth: 0, format: word(0), channels: word(4), flags: 0 };
        let row = if self.kind == 3 { bytes.checked_mul(descriptor.element()?) } else { Some(bytes) };
        let length = row.and_then(|row| rows.checked_sub(1)?.checked_mul(pitch)?.checked_add(row));
        let found = space::find(what).ok_or(CuError::INVALID_VALUE)?;
        let fits = length.is_some_and(|length| length > 0 && found.holds(what, length));
        if fits && found.kind.on_device() { Ok(()) } else { Err(CuError::INVALID_VALUE) }
    }
}

/// A resource that a texture, or a surface, can look at.
unsafe fn seen(resource: *const Resource, by_surface: bool) -> CuResult<Resource> {
    current()?;
    // SAFETY: the driver API's contract.
    let resource = unsafe { read(resource) }?;
    resource.check(by_surface)?;
    Ok(resource)
}

entry! {
    cuTexObjectCreate(
        out: *mut Handle,
        resource: *const Resource,
        sampling: *const Sampling,
        view: *const View,
    ) {
        let (resource, sampling) = (seen(resource, false)?, read(sampling)?);
        let view = if view.is_null() { None } else { Some(read(view)?) };
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, TEXTURES.add(Texture { resource, sampling, view }))
    }
    cuTexObjectDestroy(object: Handle) { TEXTURES.remove(object).map(|_| ()) }
    cuTexObjectGetResourceDesc(out: *mut Resource, object: Handle) { put(out, TEXTURES.get(object)?.resource) }
    cuTexObjectGetTextureDesc(out: *mut Sampling, object: Handle) { put(out, TEXTURES.get(object)?.sampling) }
    cuTexObjectGetResourceViewDesc(out: *mut View, object: Handle) {
        put(out, TEXTURES.get(object)?.view.ok_or(CuError::INVALID_VALUE)?)
    }
    cuSurfObjectCreate(out: *mut Handle, resource: *const Resource) {
        let resource = seen(resource, true)?;
        if out.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, SURFACES.add(resource))
    }
    cuSurfObjectDestroy(object: Handle) { SURFACES.remove(object).map(|_| ()) }
    cuSurfObjectGetResourceDesc(out: *mut Resource, object: Handle) { put(out, *SURFACES.get(object)?) }
}

const _: () = assert!(size_of::<Resource>() == 144);
