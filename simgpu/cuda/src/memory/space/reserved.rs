//! Reserved ranges of addresses, and what is mapped into them.

use std::ffi::c_void;

use gpupool_nvidia::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

use crate::{
    error::{CuError, CuResult},
    memory::space::{AddressSpace, Allocation, AllocationKind, Owner, SPACE},
    sync::{read, write},
};

/// Reservations begin and end on multiples of this many bytes.
const PAGE: u64 = 4096;
/// Where a reservation begins if nothing else is asked for.
const ALIGNMENT: u64 = 2 << 20;

/// Reserves `size` bytes of addresses, on a multiple of `alignment` (0: of the driver's choice).
pub(crate) fn reserve(size: u64, alignment: u64) -> CuResult<u64> {
    let alignment = if alignment == 0 { ALIGNMENT } else { alignment };
    if size == 0 || !size.is_multiple_of(PAGE) || !alignment.is_power_of_two() {
        return Err(CuError::INVALID_VALUE);
    }
    let alignment = alignment.max(PAGE);
    let room = size.checked_add(alignment).ok_or(CuError::OUT_OF_MEMORY)?;
    let found = blank(0, room, 0)?;
    let start = found.next_multiple_of(alignment);
    // What the alignment cost at both ends goes back.
    unmap(found, start - found);
    unmap(start + size, found + room - start - size);
    write(&SPACE).reserved.insert(start, size);
    Ok(start)
}

/// Ends a reservation, the whole of it and with nothing mapped into it.
pub(crate) fn free(start: u64, size: u64) -> CuResult {
    let mut space = write(&SPACE);
    if space.reserved.get(&start) != Some(&size) || space.within(start, size).next().is_some() {
        return Err(CuError::INVALID_VALUE);
    }
    space.reserved.remove(&start);
    unmap(start, size);
    Ok(())
}

/// Maps physical memory at `base`, which must lie in a reservation where nothing is mapped yet. `place` puts the bytes
/// there, without access.
pub(crate) fn map(
    base: u64,
    size: u64,
    physical: u64,
    owner: Owner,
    place: impl FnOnce() -> CuResult,
) -> CuResult {
    let end = base.checked_add(size).ok_or(CuError::INVALID_VALUE)?;
    let mut space = write(&SPACE);
    let inside =
        space.reserved.range(..=base).next_back().is_some_and(|(start, length)| end <= start + length);
    if !inside || space.within(base, size).next().is_some() {
        return Err(CuError::INVALID_VALUE);
    }
    place()?;
    space.enter(base, size, AllocationKind::Mapped(physical), owner, 0);
    Ok(())
}

/// Ends the mappings that make up exactly this range; gives what they were.
pub(crate) fn unmap_all(base: u64, size: u64) -> CuResult<Vec<Allocation>> {
    let mut space = write(&SPACE);
    let mappings = space.exactly(base, size)?;
    for mapping in &mappings {
        space.live.remove(&mapping.base);
        blank(mapping.base, mapping.size, libc::MAP_FIXED)?;
    }
    Ok(mappings)
}

/// Sets how the mappings that make up exactly this range may be accessed.
pub(crate) fn set_access(base: u64, size: u64, access: u32) -> CuResult {
    let mut space = write(&SPACE);
    let mappings = space.exactly(base, size)?;
    // The driver checks what programs ask for; its own copies need no more than two kinds of pages.
    let protection = match access {
        CU_MEM_ACCESS_FLAGS_PROT_NONE => libc::PROT_NONE,
        CU_MEM_ACCESS_FLAGS_PROT_READ | CU_MEM_ACCESS_FLAGS_PROT_READWRITE => {
            libc::PROT_READ | libc::PROT_WRITE
        }
        _ => return Err(CuError::INVALID_VALUE),
    };
    for mapping in mappings {
        let (start, length) = (pointer(mapping.base)?, bytes(mapping.size)?);
        // SAFETY: the mapping's own pages.
        if unsafe { libc::mprotect(start, length, protection) } != 0 {
            return Err(CuError::OPERATING_SYSTEM);
        }
        if let Some(mapping) = space.live.get_mut(&mapping.base) {
            mapping.flags = access;
        }
    }
    Ok(())
}

/// The mapping that `address` lies in.
pub(crate) fn mapping(address: u64) -> Option<Allocation> {
    read(&SPACE).find(address).copied().filter(|found| matches!(found.kind, AllocationKind::Mapped(_)))
}

impl AddressSpace {
    /// What touches this range.
    fn within(&self, base: u64, size: u64) -> impl Iterator<Item = &Allocation> {
        let end = base.saturating_add(size);
        self.live
            .range(..end)
            .rev()
            .map(|(_, found)| found)
            .take_while(move |found| found.base + found.size > base)
    }

    /// The mappings that make up exactly this range, without a gap.
    fn exactly(&self, base: u64, size: u64) -> CuResult<Vec<Allocation>> {
        let mut mappings: Vec<_> = self.within(base, size).copied().collect();
        mappings.reverse();
        let mut reached = base;
        for mapping in &mappings {
            if mapping.base != reached || !matches!(mapping.kind, AllocationKind::Mapped(_)) {
                return Err(CuError::INVALID_VALUE);
            }
            reached += mapping.size;
        }
        if size == 0 || reached != base.saturating_add(size) {
            Err(CuError::INVALID_VALUE)
        } else {
            Ok(mappings)
        }
    }
}

/// Addresses without memory behind them.
fn blank(start: u64, size: u64, fixed: libc::c_int) -> CuResult<u64> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new place, or one that the caller has the use of.
    let found = unsafe { libc::mmap(pointer(start)?, bytes(size)?, libc::PROT_NONE, kind, -1, 0) };
    if found == libc::MAP_FAILED { Err(CuError::OUT_OF_MEMORY) } else { Ok(found as u64) }
}

fn unmap(start: u64, size: u64) {
    if let (Ok(start), Ok(size)) = (pointer(start), bytes(size))
        && size > 0
    {
        // SAFETY: reserved by this module, and nobody uses it any more.
        unsafe { libc::munmap(start, size) };
    }
}

fn pointer(address: u64) -> CuResult<*mut c_void> {
    bytes(address).map(std::ptr::with_exposed_provenance_mut)
}

fn bytes(size: u64) -> CuResult<usize> {
    usize::try_from(size).map_err(|_| CuError::OUT_OF_MEMORY)
}
