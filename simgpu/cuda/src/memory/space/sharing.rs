//! Allocations whose bytes other processes can see.

use std::os::fd::RawFd;

use simgpu_device::Segment;

use crate::{
    device::{initialised::initialised, segments},
    error::{CuError, CuResult},
    memory::space::{Allocation, AllocationKind, Owner, SPACE},
    sync::write,
};

/// Makes the plain allocation that begins at `base` one that other processes can open, unless it is that already.
pub(crate) fn share(base: u64) -> CuResult<Segment> {
    let mut space = write(&SPACE);
    let allocation = space.live.get_mut(&base).filter(|found| found.kind == AllocationKind::Device);
    let allocation = allocation.ok_or(CuError::INVALID_VALUE)?;
    if let Some(segment) = allocation.segment {
        return Ok(segment);
    }
    let segment = segments::convert(allocation.owner.card, allocation.size)?;
    if let Err(error) = move_into(allocation, &segment) {
        // Its memory is the segment's now, and so it stays.
        allocation.segment = Some(segment);
        return Err(error);
    }
    allocation.segment = Some(segment);
    Ok(segment)
}

/// Moves the bytes of an allocation into a segment, which takes their place. The lock on the space keeps everybody
/// else from them meanwhile.
fn move_into(allocation: &Allocation, segment: &Segment) -> CuResult {
    let process = initialised()?.process()?;
    let (base, size) = (address(allocation.base)?, address(allocation.size)?);
    let mapped = |place| {
        // SAFETY: either a new place, or that of the allocation, which has whole pages of its own.
        unsafe { process.map_segment(segment, 0, segment.bytes, place, libc::PROT_READ | libc::PROT_WRITE) }
            .ok_or(CuError::OUT_OF_MEMORY)
    };
    let copy = mapped(None)?;
    // SAFETY: both are as long as the allocation; the second mapping was made for this.
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(copy);
        std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance::<u8>(base), to, size);
        libc::munmap(to.cast(), address(segment.bytes)?);
    }
    mapped(Some(base)).map(|_| ())
}

/// Makes an allocation of the first `size` bytes of a segment that this process holds.
pub(crate) fn open(segment: Segment, size: u64, kind: AllocationKind, owner: Owner) -> CuResult<u64> {
    let process = initialised()?.process()?;
    let mut space = write(&SPACE);
    let base = space.arena.allocate(size).ok_or(CuError::OUT_OF_MEMORY)?;
    // SAFETY: the block is new and has whole pages of its own.
    let mapped = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        process.map_segment(&segment, 0, size, Some(address(base)?), protection)
    };
    if mapped.is_none() {
        space.arena.free(base, size);
        return Err(CuError::OUT_OF_MEMORY);
    }
    space.enter(base, size, kind, owner, 0).segment = Some(segment);
    Ok(base)
}

/// Makes an allocation of `size` bytes of a file from `offset` on.
pub(crate) fn open_file(
    file: RawFd,
    offset: u64,
    size: u64,
    kind: AllocationKind,
    owner: Owner,
) -> CuResult<u64> {
    let start = i64::try_from(offset).map_err(|_| CuError::INVALID_VALUE)?;
    let mut space = write(&SPACE);
    let base = space.arena.allocate(size).ok_or(CuError::OUT_OF_MEMORY)?;
    let place = std::ptr::with_exposed_provenance_mut(address(base)?);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the block is new and has whole pages of its own.
    if unsafe { libc::mmap(place, address(size)?, protection, flags, file, start) } == libc::MAP_FAILED {
        space.arena.free(base, size);
        return Err(CuError::INVALID_VALUE);
    }
    space.enter(base, size, kind, owner, 0);
    Ok(base)
}

/// Puts fresh memory of this process in the place of a segment's.
pub(super) fn uncover(base: u64, size: u64) {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    if let (Ok(base), Ok(size)) = (address(base), address(size)) {
        // SAFETY: the block's own pages, which nobody uses any more.
        unsafe { libc::mmap(std::ptr::with_exposed_provenance_mut(base), size, protection, kind, -1, 0) };
    }
}

fn address(value: u64) -> CuResult<usize> {
    usize::try_from(value).map_err(|_| CuError::INVALID_VALUE)
}
