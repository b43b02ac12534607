//! Physical memory that a program makes, maps where it likes, and passes on.
//!
//! It lives as long as a handle of it is held or it is mapped anywhere, in this process or, where it can be exported,
//! in any other. What can't be exported has its bytes in a file of this process without a name; what can, in a segment.

use std::{
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_FABRIC, CU_MEM_HANDLE_TYPE_NONE,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_WIN32, CU_MEM_HANDLE_TYPE_WIN32_KMT,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemLocation,
};
use simgpu_device::{Segment, SegmentCharge};

use crate::{
    device::{
        initialised::{Initialised, initialised},
        segments,
    },
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::space::{self, Owner},
    sync::lock,
};

/// Physical memory comes in multiples of this many bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// Every kind of handle that there is.
const HANDLE_TYPES: CUmemAllocationHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    | CU_MEM_HANDLE_TYPE_WIN32
    | CU_MEM_HANDLE_TYPE_WIN32_KMT
    | CU_MEM_HANDLE_TYPE_FABRIC;

/// What a program asked of physical memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties(CUmemAllocationProp);

// SAFETY: nobody follows the pointer in it, which means something on other systems only.
unsafe impl Send for Properties {}
// SAFETY: as above.
unsafe impl Sync for Properties {}

/// Where the bytes are.
#[derive(Debug)]
enum Backing {
    /// In the process's own file, from this offset on; charged to a card, or not.
    Own(u64, Option<usize>),
    Shared(Segment),
}

#[derive(Debug, Default)]
struct UseCounts {
    handles: u32,
    mappings: u32,
}

/// A piece of physical memory.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) properties: Properties,
    /// Bytes.
    pub(crate) size: u64,
    backing: Backing,
    uses: Mutex<UseCounts>,
}

static PHYSICALS: Registry<Physical> = Registry::new();
/// The file without a name, and where its unused part begins. Offsets are never used again.
static OWN: OnceLock<OwnedFd> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

impl From<CUmemAllocationProp> for Properties {
    fn from(asked: CUmemAllocationProp) -> Self {
        Self(asked)
    }
}

impl From<Properties> for CUmemAllocationProp {
    fn from(properties: Properties) -> Self {
        properties.0
    }
}

impl Properties {
    /// Device memory that can be exported as a descriptor.
    const fn exportable_on(device: i32) -> Self {
        Self(CUmemAllocationProp {
            r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: CUmemLocation { r#type: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            win32HandleMetaData: std::ptr::null_mut(),
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        })
    }

    /// Fails where no such memory can be made.
    fn check(&self) -> CuResult {
        if self.0.r#type != CU_MEM_ALLOCATION_TYPE_PINNED || self.handle_types() & !HANDLE_TYPES != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        match self.0.location.r#type {
            CU_MEM_LOCATION_TYPE_DEVICE => drop(initialised()?.card(self.0.location.id)?),
            CU_MEM_LOCATION_TYPE_HOST..=CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {}
            _ => return Err(CuError::INVALID_VALUE),
        }
        if self.handle_types() & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
            Err(CuError::NOT_SUPPORTED)
        } else {
            Ok(())
        }
    }

    const fn handle_types(&self) -> CUmemAllocationHandleType {
        self.0.requestedHandleTypes
    }

    /// The device that it lies on, as a CUDA ordinal; `None` for the host's memory.
    fn device(&self) -> Option<i32> {
        (self.0.location.r#type == CU_MEM_LOCATION_TYPE_DEVICE).then_some(self.0.location.id)
    }

    /// The smallest and the recommended size in bytes. Fails as [`create`] does.
    pub(crate) fn granularity(&self) -> CuResult<u64> {
        self.check().map(|()| GRANULARITY)
    }
}

fn own() -> CuResult<&'static OwnedFd> {
    if let Some(file) = OWN.get() {
        return Ok(file);
    }
    // SAFETY: a new file; its name ends with a zero byte.
    let made = unsafe {
        let fd = libc::memfd_create(c"simulated device memory".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 || libc::ftruncate(fd, i64::MAX) != 0 {
            return Err(CuError::OPERATING_SYSTEM);
        }
        OwnedFd::from_raw_fd(fd)
    };
    Ok(OWN.get_or_init(|| made))
}

/// Makes physical memory; the handle is its first.
pub(crate) fn create(size: u64, properties: Properties) -> CuResult<Handle> {
    properties.check()?;
    if size == 0 || !size.is_multiple_of(GRANULARITY) {
        return Err(CuError::INVALID_VALUE);
    }
    let state = initialised()?;
    let card = match properties.device() {
        Some(device) => Some(state.card(device)?.index()),
        None => None,
    };
    let backing = if properties.handle_types() == CU_MEM_HANDLE_TYPE_NONE {
        own()?;
        if let Some(card) = card {
            state.process()?.take_memory(card, size)?;
        }
        Backing::Own(NEXT.fetch_add(size, Relaxed), card)
    } else {
        let counted = if card.is_some() { SegmentCharge::Card } else { SegmentCharge::Nobody };
        Backing::Shared(segments::create(card.unwrap_or(0), size, counted)?)
    };
    Ok(enter(size, properties, backing))
}

fn enter(size: u64, properties: Properties, backing: Backing) -> Handle {
    let uses = Mutex::new(UseCounts { handles: 1, mappings: 0 });
    PHYSICALS.add(Physical { properties, size, backing, uses })
}

/// The memory behind a handle that the program holds.
pub(crate) fn physical(handle: Handle) -> CuResult<Arc<Physical>> {
    let found = PHYSICALS.find(handle).filter(|found| lock(&found.uses).handles > 0);
    found.ok_or(CuError::INVALID_VALUE)
}

/// Changes how often the memory is used; with the last use it goes.
fn change(handle: Handle, change: impl FnOnce(&mut UseCounts) -> CuResult) -> CuResult {
    let found = PHYSICALS.find(handle).ok_or(CuError::INVALID_VALUE)?;
    let mut uses = lock(&found.uses);
    change(&mut uses)?;
    if uses.handles == 0 && uses.mappings == 0 {
        PHYSICALS.remove(handle)?;
        found.end();
    }
    Ok(())
}

fn decrement(count: &mut u32) -> CuResult {
    *count = count.checked_sub(1).ok_or(CuError::INVALID_VALUE)?;
    Ok(())
}

/// One more handle of memory that may have none.
pub(crate) fn retain(handle: Handle) -> CuResult {
    change(handle, |uses| {
        uses.handles += 1;
        Ok(())
    })
}

/// One handle less.
pub(crate) fn release(handle: Handle) -> CuResult {
    change(handle, |uses| decrement(&mut uses.handles))
}

/// Notes that the memory is part of something, a range of addresses or a sparse array.
pub(crate) fn add_mapping(handle: Handle) -> CuResult {
    physical(handle)?;
    change(handle, |uses| {
        uses.mappings += 1;
        Ok(())
    })
}

/// Takes back [`add_mapping`].
pub(crate) fn remove_mapping(handle: Handle) {
    // What is mapped is known.
    let _ = change(handle, |uses| decrement(&mut uses.mappings));
}

/// Maps the first `size` bytes of the memory at `base`.
pub(crate) fn map(base: u64, size: u64, offset: u64, handle: Handle) -> CuResult {
    let found = physical(handle)?;
    let fits = offset == 0 && size != 0 && size <= found.size;
    if !fits || !base.is_multiple_of(GRANULARITY) || !size.is_multiple_of(GRANULARITY) {
        return Err(CuError::INVALID_VALUE);
    }
    let device = found.properties.device().unwrap_or(0);
    let owner = Owner { context: 0, device, card: initialised()?.card(device)?.index() };
    add_mapping(handle)?;
    space::reserved::map(base, size, handle, owner, || found.place(base, size))
        .inspect_err(|_| remove_mapping(handle))
}

/// Ends the mappings that make up exactly this range.
pub(crate) fn unmap(base: u64, size: u64) -> CuResult {
    for mapping in space::reserved::unmap_all(base, size)? {
        if let space::AllocationKind::Mapped(handle) = mapping.kind {
            remove_mapping(handle);
        }
    }
    Ok(())
}

/// A descriptor for another process.
pub(crate) fn export(handle: Handle, kind: CUmemAllocationHandleType) -> CuResult<OwnedFd> {
    match (kind, &physical(handle)?.backing) {
        (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, Backing::Shared(segment)) => segments::export(segment),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// A handle of the memory that a descriptor stands for.
pub(crate) fn import(descriptor: i32, kind: CUmemAllocationHandleType) -> CuResult<Handle> {
    if kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
        return Err(if kind & HANDLE_TYPES == 0 { CuError::INVALID_VALUE } else { CuError::NOT_SUPPORTED });
    }
    let segment = segments::import(descriptor)?.ok_or(CuError::INVALID_VALUE)?;
    let device = initialised()?.cards.iter().position(|card| card.index() == segment.card);
    let device = device.and_then(|device| i32::try_from(device).ok()).ok_or(CuError::INVALID_DEVICE);
    // A descriptor without bytes stands for a pool.
    let device = if segment.bytes == 0 { Err(CuError::INVALID_VALUE) } else { device };
    let device = device.inspect_err(|_| segments::release(&segment))?;
    Ok(enter(segment.bytes, Properties::exportable_on(device), Backing::Shared(segment)))
}

impl Physical {
    /// Puts its first `size` bytes at `base`, without access.
    fn place(&self, base: u64, size: u64) -> CuResult {
        let (start, length) = (
            usize::try_from(base).map_err(|_| CuError::INVALID_VALUE)?,
            usize::try_from(size).map_err(|_| CuError::INVALID_VALUE)?,
        );
        let placed = match &self.backing {
            Backing::Shared(segment) => {
                // SAFETY: a reserved place with nothing mapped there.
                unsafe {
                    initialised()?.process()?.map_segment(segment, 0, size, Some(start), libc::PROT_NONE)
                }
                .is_some()
            }
            Backing::Own(offset, _) => {
                let offset = i64::try_from(*offset).map_err(|_| CuError::OUT_OF_MEMORY)?;
                let place = std::ptr::with_exposed_provenance_mut(start);
                let kind = libc::MAP_SHARED | libc::MAP_FIXED;
                // SAFETY: as above.
                let placed =
                    unsafe { libc::mmap(place, length, libc::PROT_NONE, kind, own()?.as_raw_fd(), offset) };
                placed != libc::MAP_FAILED
            }
        };
        if placed { Ok(()) } else { Err(CuError::OUT_OF_MEMORY) }
    }

    /// Gives the memory back.
    fn end(&self) {
        match &self.backing {
            Backing::Shared(segment) => segments::release(segment),
            Backing::Own(offset, card) => {
                if let (Ok(file), Ok(offset), Ok(size)) =
                    (own(), i64::try_from(*offset), i64::try_from(self.size))
                {
                    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    // SAFETY: the file is the process's own.
                    unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, size) };
                }
                if let (Some(card), Ok(process)) = (card, initialised().and_then(Initialised::process)) {
                    process.give_memory(*card, self.size);
                }
            }
        }
    }
}
