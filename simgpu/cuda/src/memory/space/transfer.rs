//! Moving and filling bytes: what a program may touch, and how.

use crate::{
    error::{CuError, CuResult},
    memory::space::{AddressSpace, AllocationKind, SPACE},
    sync::read,
};

/// What a pointer in a copy is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPointer {
    /// Memory that the driver knows.
    Device(u64),
    /// The program's own memory.
    Host(u64),
    /// Either: found out by the address.
    Unified(u64),
}

impl CopyPointer {
    /// The same side, `bytes` further on.
    pub(crate) const fn offset(self, bytes: u64) -> Self {
        match self {
            Self::Device(address) => Self::Device(address.wrapping_add(bytes)),
            Self::Host(address) => Self::Host(address.wrapping_add(bytes)),
            Self::Unified(address) => Self::Unified(address.wrapping_add(bytes)),
        }
    }

    /// The address, if `bytes` from there on may be read, or written where `writes`: now, or when a capture runs.
    fn checked(self, space: &AddressSpace, bytes: u64, writes: bool, when: CheckFor) -> CuResult<usize> {
        let (address, host_allowed) = match self {
            Self::Device(address) => (address, false),
            Self::Host(address) | Self::Unified(address) => (address, true),
        };
        let valid = match space.find(address) {
            // Registered memory may be part of a larger buffer of the program's.
            Some(found) if found.kind == AllocationKind::Registered && host_allowed => true,
            Some(found) => found.holds(address, bytes) && found.allows(writes),
            None if when == CheckFor::Recording && space.is_held(address, bytes) => true,
            None => host_allowed && address != 0 && !space.covers(address),
        };
        usize::try_from(address).ok().filter(|_| valid).ok_or(CuError::INVALID_VALUE)
    }
}

/// For when the memory that a copy touches has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckFor {
    /// At once: memory must be there.
    Execution,
    /// Perhaps as part of a graph: memory that a graph is going to allocate will be there.
    Recording,
}

/// Where a copy begins on one side, and how far apart its rows and slices are there in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyRegion {
    pub(crate) start: CopyPointer,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// A copy of `slices` times `rows` rows of `width` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryCopy {
    pub(crate) to: CopyRegion,
    pub(crate) from: CopyRegion,
    pub(crate) width: u64,
    pub(crate) rows: u64,
    pub(crate) slices: u64,
}

/// A rectangular fill with a pattern of 1, 2 or 4 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryFill {
    pub(crate) to: u64,
    pub(crate) pattern: [u8; 4],
    /// Bytes of the pattern.
    pub(crate) unit: u64,
    /// Patterns in a row.
    pub(crate) count: u64,
    pub(crate) rows: u64,
    pub(crate) pitch: u64,
}

impl CopyRegion {
    /// A single row.
    const fn row_at(start: CopyPointer) -> Self {
        Self { start, pitch: 0, slice: 0 }
    }

    fn row(&self, slice: u64, row: u64) -> CopyPointer {
        self.start.offset(slice.wrapping_mul(self.slice).wrapping_add(row.wrapping_mul(self.pitch)))
    }
}

impl MemoryCopy {
    /// A copy of `bytes` in a row.
    pub(crate) const fn plain(to: CopyPointer, from: CopyPointer, bytes: u64) -> Self {
        Self { to: CopyRegion::row_at(to), from: CopyRegion::row_at(from), width: bytes, rows: 1, slices: 1 }
    }

    fn each_row(&self, mut row: impl FnMut(CopyPointer, CopyPointer) -> CuResult) -> CuResult {
        for slice in 0..self.slices {
            for number in 0..self.rows {
                row(self.to.row(slice, number), self.from.row(slice, number))?;
            }
        }
        Ok(())
    }

    /// Fails with `CUDA_ERROR_INVALID_VALUE` where it would touch what is not the program's to touch.
    pub(crate) fn check(&self) -> CuResult {
        self.check_in(&read(&SPACE), CheckFor::Recording)
    }

    fn check_in(&self, space: &AddressSpace, when: CheckFor) -> CuResult {
        if self.width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            to.checked(space, self.width, true, when)?;
            from.checked(space, self.width, false, when).map(|_| ())
        })
    }

    /// Moves the bytes. All or nothing: every row is checked before the first byte moves.
    pub(crate) fn run(&self) -> CuResult {
        // The lock is held throughout: nobody frees what is being copied.
        let space = read(&SPACE);
        self.check_in(&space, CheckFor::Execution)?;
        let width = usize::try_from(self.width).map_err(|_| CuError::INVALID_VALUE)?;
        if width == 0 {
            return Ok(());
        }
        self.each_row(|to, from| {
            let (to, from) = (
                to.checked(&space, self.width, true, CheckFor::Execution)?,
                from.checked(&space, self.width, false, CheckFor::Execution)?,
            );
            // SAFETY: what the driver knows was checked; the program vouches for its own memory.
            unsafe {
                std::ptr::copy(
                    std::ptr::with_exposed_provenance::<u8>(from),
                    std::ptr::with_exposed_provenance_mut::<u8>(to),
                    width,
                );
            }
            Ok(())
        })
    }
}

impl MemoryFill {
    /// Fails with `CUDA_ERROR_INVALID_VALUE` where it would touch what is not the program's to touch.
    pub(crate) fn check(&self) -> CuResult {
        self.check_in(&read(&SPACE), CheckFor::Recording)
    }

    fn check_in(&self, space: &AddressSpace, when: CheckFor) -> CuResult {
        let width = self.count.checked_mul(self.unit).ok_or(CuError::INVALID_VALUE)?;
        if !self.to.is_multiple_of(self.unit) || (self.rows > 1 && self.pitch < width) {
            return Err(CuError::INVALID_VALUE);
        }
        for row in 0..if width == 0 { 0 } else { self.rows } {
            CopyPointer::Device(self.to)
                .offset(row.wrapping_mul(self.pitch))
                .checked(space, width, true, when)?;
        }
        Ok(())
    }

    /// Writes the pattern. All or nothing, as in [`MemoryCopy::run`].
    pub(crate) fn run(&self) -> CuResult {
        let space = read(&SPACE);
        self.check_in(&space, CheckFor::Execution)?;
        let width = usize::try_from(self.count * self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let unit = usize::try_from(self.unit).map_err(|_| CuError::INVALID_VALUE)?;
        let pattern = &self.pattern[..unit];
        for row in 0..if width == 0 { 0 } else { self.rows } {
            let to = CopyPointer::Device(self.to).offset(row.wrapping_mul(self.pitch)).checked(
                &space,
                width as u64,
                true,
                CheckFor::Execution,
            )?;
            // SAFETY: checked right above, and the lock keeps it so.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(to), width) };
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                bytes.fill(pattern[0]);
            } else {
                bytes.chunks_exact_mut(unit).for_each(|place: &mut [u8]| place.copy_from_slice(pattern));
            }
        }
        Ok(())
    }
}
